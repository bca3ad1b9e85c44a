"""PyTorch profiler traces: Kineto's Chrome JSON, plain or gzipped, or reduced to rows by the job that wrote it."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from lostflops.collect.capture import UNFINISHED_STEP
from lostflops.core.errors import BrokenSource
from lostflops.ingest.common import reduced_trace
from lostflops.ingest.common.byte_stream import GZIP_MAGIC, ByteStream
from lostflops.ingest.common.rank_names import host_in_name, rank_in_name
from lostflops.ingest.common.reader import Clean, RankClaim, RankRows, ReadTask
from lostflops.ingest.common.refusals import refuse_large_job
from lostflops.ingest.common.vocabulary import Vocabulary
from lostflops.ingest.formats.kineto.inferred_steps import infer_steps
from lostflops.ingest.formats.kineto.json_array import JsonArray
from lostflops.ingest.formats.kineto.rows import KinetoRows
from lostflops.ingest.formats.kineto.schema import Event, decode_events
from lostflops.ingest.timeline.rank_part import RankPart
from lostflops.ingest.timeline.recording import Recording

if TYPE_CHECKING:
    from lostflops.ingest.formats.kineto.scanned_rows import ScannedRows

NAME: Final = "kineto"
IS_TIMELINE: Final = True
_ARRAY = "traceEvents"
_HEAD = 256 << 10
_MOST_OTHERS = 500_000
WORTH_LOADING = 64 << 20
"""Size of a trace, as text, from which compiled code saves more time than it takes to load."""
WORTH_COMPILING = 1 << 30
"""As `WORTH_LOADING`, where compiled code cannot be kept for the next process."""
_USUAL_EXPANSION = 12
"""How much larger a trace is than its gzip file."""
_INFO_WITH_RANK = re.compile(rb'"distributedInfo"\s*:\s*\{[^{}]*"rank"\s*:\s*(\d{1,9})\b')


def recognises(head: bytes, _path: Path) -> bool:
    """Return whether the first bytes (decompressed) of a file are those of a trace."""
    if reduced_trace.recognises(head):
        return True
    text = head.lstrip()
    if text[:1] == b"[":
        return b'"ph"' in head
    return text[:1] == b"{" and (b'"traceEvents"' in head or b'"deviceProperties"' in head)


def rank_claim(path: Path) -> RankClaim:
    """Return the rank recorded at the top of the trace, otherwise the rank in the file's name."""
    if reduced_trace.is_reduced(path):
        with suppress(BrokenSource):
            told = reduced_trace.told_by(path)
            return RankClaim(told.rank, told.rank_source)
    elif (recorded := _rank_in_trace(path)) is not None:
        return RankClaim(recorded, "recorded")
    named = rank_in_name(path.name)
    return RankClaim(named, "file name") if named is not None else RankClaim(None, "assigned")


def _rank_in_trace(path: Path) -> int | None:
    elements: JsonArray[Event, Event] = JsonArray(ByteStream(path, block=_HEAD).blocks(), _ARRAY, decode_events)
    with suppress(BrokenSource):  # reading the file will say what is wrong with it
        elements.read_header()
    recorded = _recorded_rank(elements.document)
    return recorded if recorded is not None else _rank_at_the_end(path)


def _rank_at_the_end(path: Path) -> int | None:
    """Return the rank in `distributedInfo` after the events, where some tools write it.

    In a gzip file that is found only by reading all of it.
    """
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _HEAD))
        found = _INFO_WITH_RANK.search(file.read())
    return int(found[1]) if found else None


def ingest(job: ReadTask) -> list[RankRows]:
    """Read a trace to its end, or as far as possible, and write its rank's part."""
    if reduced_trace.is_reduced(job.path):
        return reduced_trace.adopt(job, NAME)
    recording, digest = read_trace(job.path, job.vocabulary, job.on_read, job.spool_folder, job.clean)
    try:
        rank, rank_source = job.claim.rank, job.claim.source
        recorded = _recorded_rank(recording.document)
        if recorded is not None:
            rank, rank_source = recorded, "recorded"
        assert rank is not None
        if rank_source == "assigned":
            recording.losses["rank_assigned"] = 1
        info = _distributed_info(recording.document)
        world_size = _positive(info.get("world_size"))
        refuse_large_job(job.path, rank, world_size)
        part = RankPart(job.parts, rank)
        part.write(recording)
        device_index = _main_device(recording, part.device_rows_by_lane)
        told = RankRows(
            rank=rank,
            rank_source=rank_source,
            host=_text(recording.document.get("host_name")) or host_in_name(job.path.name),
            device=_device_name(recording.document, device_index),
            device_index=device_index,
            world_size=world_size,
            backend=_text(info.get("backend")),
            base_time=recording.base_time,
            digest=digest,
            rows=part.rows,
        )
        return [told]
    finally:
        recording.close()


def read_trace(
    path: Path,
    vocabulary: Vocabulary,
    on_read: Callable[[int], None] | None = None,
    spool_folder: str | None = None,
    clean: Clean | None = None,
) -> tuple[Recording, str]:
    """Return the content of the trace, and the digest of the whole file; `clean` changes its bytes first."""
    stream = ByteStream(path, on_read)
    recording = Recording(vocabulary=vocabulary, spool_folder=spool_folder)
    rows = KinetoRows(recording)
    scanned = _scanned_rows(rows, path)
    blocks = clean(stream.blocks()) if clean else stream.blocks()
    elements = JsonArray(blocks, _ARRAY, decode_events, scanned.scan if scanned else None)
    try:
        for events in elements:
            if isinstance(events, list):
                rows.add(events)
            elif scanned is not None:
                scanned.add(events)
            if _is_no_trace(recording):
                elements.stop("almost no entry is an event")
    except BrokenSource as error:
        recording.close()
        raise BrokenSource(f"{path}: {stream.problem or error}") from None
    rows.finish()
    recording.document = elements.document
    _drop_unfinished_step(recording)
    infer_steps(recording)
    recording.losses.update(elements.losses)
    if elements.example:
        what = "unreadable_events" if "unreadable_events" in elements.losses else "truncated"
        recording.examples[what] = elements.example
    if stream.problem is not None:
        recording.losses["truncated"] = 1
        recording.examples["truncated"] = stream.problem
    stream.drain()
    base = elements.document.get("baseTimeNanoseconds", 0)
    recording.base_time = base if type(base) is int and 0 <= base < 1 << 61 else 0
    return recording, stream.digest


def _drop_unfinished_step(recording: Recording) -> None:
    """Drop the step in which the program ended: it is not whole."""
    unfinished = recording.document.get(UNFINISHED_STEP)
    whole = [span for span in recording.steps if span.step != unfinished]
    if len(whole) < len(recording.steps):
        recording.losses["unfinished_steps"] = len(recording.steps) - len(whole)
        recording.steps = whole


def _scanned_rows(rows: KinetoRows, path: Path) -> ScannedRows | None:
    """Return what scans a trace by compiled code; None if that is not installed, or would take longer to load."""
    size = 0
    with suppress(OSError), path.open("rb") as file:  # reading the file will say what is wrong with it
        size = path.stat().st_size * (_USUAL_EXPANSION if file.read(2) == GZIP_MAGIC else 1)
    if (size < WORTH_LOADING and "numba" not in sys.modules) or find_spec("numba") is None:
        return None
    from lostflops.ingest.formats.kineto.raw_memory import IS_COMPILED, IS_KEPT  # noqa: PLC0415  it loads numba

    if not IS_COMPILED or (size < WORTH_COMPILING and not IS_KEPT):
        return None
    from lostflops.ingest.formats.kineto.scanned_rows import ScannedRows  # noqa: PLC0415

    return ScannedRows(rows)


def _is_no_trace(recording: Recording) -> bool:
    losses = recording.losses
    others = losses["unknown_phases"] + losses["events_without_time"]
    return others > _MOST_OTHERS and others > 10 * (recording.host.rows + recording.device.rows)


def _distributed_info(document: dict[str, Any]) -> dict[str, Any]:
    info = document.get("distributedInfo")
    return info if isinstance(info, dict) else {}


def _recorded_rank(document: dict[str, Any]) -> int | None:
    rank = _distributed_info(document).get("rank")
    return rank if type(rank) is int and rank >= 0 else None


def _main_device(recording: Recording, rows_by_lane: Counter[int]) -> int | None:
    """Return the device that did most of the work; a trace names all devices of its host."""
    rows: Counter[int] = Counter()
    for lane, count in rows_by_lane.items():
        device = recording.lanes[lane].device
        if device is not None:
            rows[device] += count
    return rows.most_common(1)[0][0] if rows else None


def _device_name(document: dict[str, Any], index: int | None) -> str | None:
    """Return the name of the device that kernels ran on.

    On ROCm, kernels number a host's CPUs before its devices, and `deviceProperties` only the devices that the process
    may use. A number that is not listed has the name that all listed devices share.
    """
    listed = document.get("deviceProperties")
    devices = [device for device in listed if isinstance(device, dict)] if isinstance(listed, list) else []
    if index is None:
        return None
    same = [device for device in devices if device.get("id") == index]
    names = {_text(device.get("name")) for device in same or devices}
    return names.pop() if len(names) == 1 else None


def _positive(value: object) -> int | None:
    return value if type(value) is int and value > 0 else None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and re.search(r"\w", value) and value != "undefined" else None
