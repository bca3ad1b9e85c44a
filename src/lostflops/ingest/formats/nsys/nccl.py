"""The collective of a kernel and its size, from the ranges of PyTorch and NCCL around its launch.

NCCL makes a range of each of its calls, with the size of the message as payload; exports have it if they were made with
`--include-json=true`. Calls between `ncclGroupStart` and `ncclGroupEnd` are launched by the latter: sends and receives
add up there, and of other calls only a single one can be identified.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from lostflops.ingest.common.columns import NULL, whole_or_none
from lostflops.ingest.formats.nsys.file import NsysFile
from lostflops.ingest.timeline.recording import CommCall, CommMetadata

SOURCE: Final = "nvtx"
_RANGES: Final = "NVTX_EVENTS"
_ANY: Final = "select 1 from NVTX_EVENTS where {} limit 1"
_BY_NUMBER: Final = " or textId in (select id from StringIds where value like 'nccl%')"
_SIZE: Final = "Message size [bytes]"
_DEEPEST: Final = 4
_LARGEST: Final = 1 << 50
_WHOLE: Final = frozenset({"AllReduce", "Broadcast", "Reduce"})
"""Calls with input and output as large as the message.

`AllGather` states its input, `ReduceScatter` its output.
"""


_MOVING: Final = _WHOLE | {"AllGather", "ReduceScatter", "Send", "Recv"}


class NcclCall(NamedTuple):
    """A range of NCCL on a thread."""

    lane: int
    start: int
    stop: int
    name: str
    size: int | None
    """None if the export has no payload."""


def nccl_calls(file: NsysFile) -> Iterator[tuple[int, NcclCall]]:
    """Yield ranges of NCCL, each with its thread; none if the export has no payloads. The caller sets their lanes."""
    columns = file.columns(_RANGES)
    by_number = {"id", "value"} <= file.columns("StringIds")
    payload = [name for name in ("jsonText", "jsonTextId") if name in columns]
    if (
        "text" not in columns
        or not payload
        or not file.rows(_ANY.format(" or ".join(f"{n} is not null" for n in payload)))
    ):
        return
    names = file.texts("select id from StringIds where value like 'nccl%'") if "textId" in columns else {}
    payloads = file.texts(f"select jsonTextId from {_RANGES}") if "jsonTextId" in columns else {}
    picked = ", ".join(file.integer(_RANGES, name) for name in ("globalTid", "start", "end", "textId", "jsonTextId"))
    said = "text like 'nccl%'" + _BY_NUMBER * (by_number and "textId" in columns)
    json = "jsonText" if "jsonText" in columns else "null"
    for batch in file.fetch_batches(
        f"select {picked}, text, {json} from {_RANGES} where eventType in (59, 60) and ({said})"
    ):
        for thread, start, stop, number, json_number, text, inline in batch:
            name = text.decode("utf-8", "replace") if isinstance(text, bytes) else names.get(number, "")
            size = message_size(inline if inline is not None else payloads.get(json_number))
            if NULL not in (thread, start, stop) and stop >= start:
                yield thread, NcclCall(-1, start, stop, name, size)


def message_size(payload: object) -> int | None:
    """Return the size of the message in the JSON of a range's payload, at whatever depth.

    >>> message_size('{"Payload": {"NCCL communicator ID": 77, "Message size [bytes]": 4096}}'), message_size("{")
    (4096, None)
    """
    if not isinstance(payload, (str, bytes)):
        return None
    try:
        found = _find_size(msgspec.json.decode(payload), _DEEPEST)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    size = whole_or_none(found)
    return size if size is not None and 0 <= size < _LARGEST else None


def _find_size(value: Any, depth: int) -> Any:
    if not depth or not isinstance(value, (dict, list)):
        return None
    if isinstance(value, dict) and _SIZE in value:
        return value[_SIZE]
    inner = value.values() if isinstance(value, dict) else value
    return next((found for one in inner if (found := _find_size(one, depth - 1)) is not None), None)


def with_sizes(asked: Sequence[CommCall], calls: Sequence[NcclCall]) -> list[CommCall]:
    """Return the calls of PyTorch (`asked`), or NCCL's calls inside them that launch kernels.

    A call of PyTorch is replaced if all sizes of the calls inside it are known. If only some are, both are returned:
    the inner call has more facts.
    """
    around: defaultdict[int, list[CommCall]] = defaultdict(list)
    for call in sorted(asked, key=lambda call: call.start):
        around[call.lane].append(call)
    sized: list[CommCall] = []
    replaced: set[int] = set()
    needed: set[int] = set()
    for launch, members in _launches(calls):
        sizes = _sizes(members)
        outer = _around(launch, around[launch.lane])
        if sizes is None:
            needed |= {id(outer)} if members else set()
            continue
        replaced |= {id(outer)}
        names = {call.name.removeprefix("nccl") for call in members}
        op = outer.metadata.op if outer and outer.metadata else names.pop() if len(names) == 1 else None
        metadata = CommMetadata(op=op, bytes_in=sizes[0], bytes_out=sizes[1], source=SOURCE)
        sized.append(CommCall(lane=launch.lane, start=launch.start, stop=launch.stop, metadata=metadata, seq=None))
    return [call for call in asked if id(call) not in replaced - needed] + sized


def _launches(calls: Sequence[NcclCall]) -> Iterator[tuple[NcclCall, list[NcclCall]]]:
    """Yield calls that launch kernels, each with the calls that the kernels carry out: itself, or those grouped."""
    grouped: defaultdict[int, list[NcclCall]] = defaultdict(list)
    depth: defaultdict[int, int] = defaultdict(int)
    for call in sorted(calls, key=lambda call: (call.lane, call.start, -call.stop)):
        if call.name == "ncclGroupStart":
            depth[call.lane] += 1
        elif call.name == "ncclGroupEnd":
            depth[call.lane] = max(0, depth[call.lane] - 1)
            if not depth[call.lane]:
                yield call, grouped.pop(call.lane, [])
        elif call.name.removeprefix("nccl") in _MOVING:
            if depth[call.lane]:
                grouped[call.lane].append(call)
            else:
                yield call, [call]


def _around(launch: NcclCall, asked: Sequence[CommCall]) -> CommCall | None:
    place = bisect_right(asked, launch.start, key=lambda call: call.start) - 1
    return asked[place] if place >= 0 and asked[place].stop >= launch.stop else None


def _sizes(calls: Sequence[NcclCall]) -> tuple[int | None, int | None] | None:
    """Return bytes in and out of calls that are launched together; None if they are not known.

    >>> call = NcclCall(0, 0, 1, "ncclSend", 8)
    >>> _sizes([call, call._replace(name="ncclRecv", size=16), call]), _sizes([call._replace(name="ncclAllGather")])
    ((16, 16), (8, None))
    """
    if not calls or any(call.size is None for call in calls):
        return None
    names = {call.name.removeprefix("nccl") for call in calls}
    if names <= {"Send", "Recv"}:
        sent, received = (
            sum(call.size or 0 for call in calls if call.name == name) for name in ("ncclSend", "ncclRecv")
        )
        return sent if "Send" in names else None, received if "Recv" in names else None
    if len(calls) > 1:
        return None
    (name,), size = names, calls[0].size
    return size if name != "ReduceScatter" else None, size if name != "AllGather" else None
