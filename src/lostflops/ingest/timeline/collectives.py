"""Rows of table `collectives` from communication kernels, the calls that made them, and gloo events.

A kernel's own metadata counts first; then the `record_param_comms` call around its launch, on the launching thread;
then the kernel's name, which shows the operation at best.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Final, Generic, NamedTuple, TypeVar

import numpy as np

from lostflops.account.facts.mesh_names import kinds_of
from lostflops.core.limits import LARGEST_WORLD
from lostflops.ingest.common.comm_names import exchanges_tokens, op_of_kernel, ranks_of_exchange
from lostflops.ingest.common.group_ids import group_id, parse_ranks
from lostflops.ingest.common.ops import canonical_op, dtype_bytes
from lostflops.ingest.timeline.lookups import innermost
from lostflops.ingest.timeline.recording import CommCall, CommMetadata, CommRow, TransferCall

Launch = tuple[int, int]
"""Lane and start of the runtime call that launched a kernel."""

Call = TypeVar("Call", CommCall, TransferCall)
_SHAPE = re.compile(r"\[[\d,\s]*\]")
_TYPE = re.compile(r'"([^"]*)"')


@dataclass(slots=True, kw_only=True)
class RecordedCollective:
    """One row of the table, except rank, event and step."""

    source: CommRow
    group_id: str | None = None
    group_size: int | None = None
    seq: int | None = None
    ordinal: int = 0
    order_source: str = ""
    op: str | None = None
    dtype: str | None = None
    bytes_in: int | None = None
    bytes_out: int | None = None
    peer: int | None = None
    metadata: str = "name"
    group_name: str | None = None
    group_description: str | None = None
    group_members: Sequence[int] | None = None


def name_peers(
    collectives: Sequence[RecordedCollective], calls: Sequence[TransferCall], group: tuple[str, list[int]] | None
) -> int:
    """Give gloo's transfers their group and peer, from the call in which they begin; return how many.

    The call has the peer's position in a group, but not which group: `group` is it, or None if that is not certain.
    """
    if group is None:
        return 0
    identity, members = group
    around = _CallFinder(calls)
    named = 0
    for collective in collectives:
        row = collective.source
        if row.on_device or collective.op not in ("send", "recv"):
            continue
        call = around.around((row.lane, row.start))
        if call is not None and call.place < len(members):
            collective.group_id, collective.group_size = identity, len(members)
            collective.peer = members[call.place]
            named += 1
    _number(collectives)
    return named


_PURPOSES: Final[tuple[frozenset[str], ...]] = (frozenset({"ep"}), frozenset({"ep", "etp"}), frozenset())
"""Kinds of groups that exchange tokens, the likeliest first; experts that share tensors get tokens of all together."""


def name_exchange(
    collectives: Sequence[RecordedCollective], listed: Sequence[Mapping[str, Any]], world_size: int | None
) -> None:
    """Give kernels that exchange tokens between experts their group.

    Such kernels have no metadata, but are compiled for a number of ranks. It is a group that the trace lists if only
    one of them has this size and no other purpose, or only one is called expert parallel; all ranks, if there are as
    many.
    """
    own = [one for one in collectives if one.group_id is None and exchanges_tokens(one.source.name)]
    sizes = {size for one in own if (size := ranks_of_exchange(one.source.name)) is not None}
    if len(sizes) != 1:
        return
    (size,) = sizes
    same = [group for group in listed if group["size"] == size]
    by_purpose = ([group for group in same if kinds_of(group["description"]) == kinds] for kinds in _PURPOSES)
    experts = next(filter(None, by_purpose), [])
    everyone = range(size) if size == world_size else None
    for one in own:
        one.group_size = size
        if len(experts) == 1:
            one.group_id = experts[0]["group_id"]
        elif everyone is not None and not same:
            one.group_id, one.group_name = group_id("ep", everyone), "ep"
            one.group_description, one.group_members = "expert parallel", everyone
    _number(collectives)


def build_collectives(
    rows: Sequence[CommRow],
    calls: Sequence[CommCall],
    launches: Mapping[int, Launch],
    known_groups: Mapping[str, str],
) -> tuple[list[RecordedCollective], Counter[str], int]:
    """Return collectives in order of start, counts of missing facts, and the number of calls without a kernel.

    `known_groups` maps a group's name to its id, from the trace's own list of groups.
    """
    finder = _CallFinder(calls)
    describe = _Describer(known_groups)
    losses: Counter[str] = Counter()
    collectives = []
    for row in sorted(rows, key=lambda row: (row.start, row.stop, row.row)):
        call = finder.around(launches.get(row.correlation)) if row.on_device else None
        if not row.on_device:
            collective = _gloo(row)
            losses["collectives_without_group"] += 1
        elif row.metadata is None and (call is None or call.metadata is None):
            collective = RecordedCollective(source=row, op=canonical_op(row.name) or op_of_kernel(row.name))
            if call is not None:
                collective.dtype, collective.bytes_in = _inputs(call.shapes, call.dtypes)
            losses["collectives_without_metadata"] += 1
        else:
            collective = describe(row, call)
        collectives.append(collective)
    _number(collectives)
    return collectives, losses, sum(map(_moves_data, finder.find_unused()))


class _CallFinder(Generic[Call]):
    """Finds the innermost call around a launch; a coalesced call contains those of its members."""

    def __init__(self, calls: Sequence[Call]) -> None:
        self._calls: Sequence[Call] = calls
        self._used: set[int] = set()
        self._by_lane: dict[int, tuple[list[int], list[int]]] = {}
        by_lane: dict[int, list[int]] = {}
        for number, call in enumerate(calls):
            by_lane.setdefault(call.lane, []).append(number)
        for lane, own in by_lane.items():
            start = np.array([calls[number].start for number in own], np.int64)
            stop = np.array([calls[number].stop + 1 for number in own], np.int64)
            times, inner, _ = innermost(start, stop)
            self._by_lane[lane] = times.tolist(), [own[i] if i >= 0 else -1 for i in inner.tolist()]

    def around(self, launch: Launch | None) -> Call | None:
        if launch is None or launch[0] not in self._by_lane:
            return None
        times, numbers = self._by_lane[launch[0]]
        index = bisect_right(times, launch[1]) - 1
        number = numbers[index] if index >= 0 else -1
        if number < 0:
            return None
        self._used.add(number)
        return self._calls[number]

    def find_unused(self) -> list[Call]:
        """Return calls without a launch inside."""
        return [call for number, call in enumerate(self._calls) if number not in self._used]


def _moves_data(call: CommCall) -> bool:
    return call.metadata is not None and canonical_op(call.metadata.op or "") is not None


class _Description(NamedTuple):
    """Facts derived from metadata, computed once for all collectives that share it."""

    op: str | None
    bytes_in: int | None
    bytes_out: int | None
    peer: int | None
    group_id: str | None
    members: Sequence[int] | None
    metadata: CommMetadata


class _Describer:
    """Turns kernels with metadata, their own or that of the call around their launch, into collectives."""

    def __init__(self, known_groups: Mapping[str, str]) -> None:
        self._known_groups = known_groups
        self._descriptions: dict[tuple[int, int], _Description] = {}
        """By identity: equal metadata is usually the same object, which is faster to compare."""

    def __call__(self, row: CommRow, call: CommCall | None) -> RecordedCollective:
        theirs = call.metadata if call is not None else None
        key = id(row.metadata), id(theirs)
        found = self._descriptions.get(key)
        if found is None:
            found = self._descriptions[key] = self._describe(_merge_metadata(row.metadata, theirs))
        seq = row.seq if row.seq is not None or call is None else call.seq
        return RecordedCollective(
            source=row,
            group_id=found.group_id,
            group_size=found.metadata.group_size,
            seq=seq,
            op=found.op or canonical_op(row.name) or op_of_kernel(row.name),
            dtype=found.metadata.dtype,
            bytes_in=found.bytes_in,
            bytes_out=found.bytes_out,
            peer=found.peer,
            metadata=found.metadata.source or ("kernel" if row.metadata is not None else "record_param_comms"),
            group_name=found.metadata.group_name,
            group_description=found.metadata.group_description,
            group_members=found.members,
        )

    def _describe(self, found: CommMetadata) -> _Description:
        op = canonical_op(found.op or "")
        size = dtype_bytes(found.dtype or "")
        members = _members(found)
        name, group = found.group_name, None
        if name is not None:
            group = group_id(name, members) if members else self._known_groups.get(name)
        return _Description(
            op=op,
            bytes_in=_times(found.elements_in, size) if found.bytes_in is None else found.bytes_in,
            bytes_out=_times(found.elements_out, size) if found.bytes_out is None else found.bytes_out,
            peer={"send": found.target_rank, "recv": found.source_rank}.get(op or ""),
            group_id=group,
            members=members,
            metadata=found,
        )


def _merge_metadata(own: CommMetadata | None, theirs: CommMetadata | None) -> CommMetadata:
    """Return a kernel's metadata, with missing fields filled in from the call."""
    if own is None or theirs is None:
        return own or theirs or CommMetadata()
    missing = {f.name: getattr(theirs, f.name) for f in fields(CommMetadata) if getattr(own, f.name) is None}
    return replace(own, **missing)


def _members(found: CommMetadata) -> Sequence[int] | None:
    """Return the group's ranks as listed, or from start, stride and size for groups too large to be listed; None if
    no job has such ranks."""
    listed = parse_ranks(found.group_ranks or "")
    if listed:
        return listed if max(listed) < LARGEST_WORLD else None
    start, stride, size = found.group_start, found.group_stride, found.group_size
    if start is None or stride is None or size is None or start < 0 or stride < 1 or not 0 < size <= LARGEST_WORLD:
        return None
    found_ranks = range(start, start + stride * size, stride)
    return found_ranks if found_ranks[-1] < LARGEST_WORLD else None


def _gloo(row: CommRow) -> RecordedCollective:
    """Return a gloo event as a collective, with its operation and inputs.

    The group comes from a Flight Recorder dump, if at all.
    """
    collective = RecordedCollective(source=row, op=canonical_op(row.name), metadata="gloo")
    collective.dtype, collective.bytes_in = _inputs(row.shapes, row.dtypes)
    return collective


def _inputs(shapes: str, dtypes: str) -> tuple[str | None, int | None]:
    """Return element type and total size of the tensors among an op's inputs; None if that is not certain."""
    sizes, types = _SHAPE.findall(shapes), _TYPE.findall(dtypes)
    if len(types) != len(sizes):
        return None, None
    tensors = [(shape, dtype, size) for shape, dtype in zip(sizes, types, strict=True) if (size := dtype_bytes(dtype))]
    if not tensors:
        return None, None
    return tensors[0][1], sum(_elements(shape) * size for shape, _, size in tensors)


def _elements(shape: str) -> int:
    return min(math.prod(int(part) for part in shape.strip("[] ").split(",") if part.strip()), 1 << 50)


def _times(elements: int | None, size: int | None) -> int | None:
    return elements * size if size is not None and elements is not None and 0 <= elements < 1 << 55 else None


def _number(collectives: Sequence[RecordedCollective]) -> None:
    """Set the ordinal of each collective, and what its order is based on."""
    seen: Counter[Any] = Counter()
    for collective in collectives:
        key = collective.group_id if collective.group_id is not None else collective.source.lane
        collective.ordinal = seen[key]
        seen[key] += 1
        if collective.seq is not None and collective.group_id is not None:
            collective.order_source = "seq"
        else:
            collective.order_source = "group ordinal" if collective.group_id is not None else "lane ordinal"
