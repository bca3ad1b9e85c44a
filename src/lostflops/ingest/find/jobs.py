"""The job of each trace, by the beginning of its file: traces of several jobs are not one run.

Two traces are of different jobs if they state different world sizes, or if different processes were the same rank.
Files of one process that claim one rank are not several jobs but windows of that rank, which is decided elsewhere.
"""

from __future__ import annotations

import re
import shlex
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from os.path import commonpath
from pathlib import Path
from typing import Final

from lostflops.collect.capture import trace_of
from lostflops.core.errors import BrokenSource, SeveralJobs
from lostflops.core.limits import LARGEST_WORLD
from lostflops.core.units import pluralise
from lostflops.ingest.common import reduced_trace
from lostflops.ingest.common.byte_stream import ByteStream
from lostflops.ingest.find.trace_file import TraceFile
from lostflops.ingest.formats.kineto import reader as kineto

_HEAD: Final = 256 << 10
_MOST_FILES: Final = 4096
"""With more files than this, only ranks that are claimed twice are checked."""
_MOST_SHOWN: Final = 8
_WORLD: Final = re.compile(rb'"distributedInfo"\s*:\s*\{[^{}]*"world_size"\s*:\s*(\d{1,9})\b')
_EVENT: Final = re.compile(rb'\{[^{}]*"cat"\s*:\s*"(?:cpu_op|cuda_runtime|Operator|Runtime)"[^{}]*')
_PID: Final = re.compile(rb'"pid"\s*:\s*"?(\d{1,12})\b')
_TIME: Final = re.compile(rb'"ts"\s*:\s*"?(\d{1,18})')


@dataclass(frozen=True, slots=True)
class TraceHead:
    """Facts at the beginning of a file; None if it does not state them."""

    path: Path
    rank: int | None
    world_size: int | None
    process: int | None
    time: int
    """Time of its first event in us, to put runs of one folder in order."""


def refuse_several_jobs(found: Sequence[TraceFile], arguments: Sequence[str | Path]) -> None:
    """Raise `SeveralJobs` with the command for each job, if traces are from several jobs."""
    traces = [_trace(one) for one in _foreign(found)]
    if _are_one_job(traces):
        return
    jobs = sorted(_split_jobs(traces), key=lambda job: str(job[0].path))
    where = ", ".join(map(str, arguments))
    paths = {str(trace.path) for trace in traces}
    names = _run_names(jobs)
    shown = "\n".join(
        f"  {_command(job, paths, name)}    # {_about(job)}"
        for job, name in zip(jobs[:_MOST_SHOWN], names, strict=False)
    )
    more = f"\n  and {len(jobs) - _MOST_SHOWN:,} more" if len(jobs) > _MOST_SHOWN else ""
    raise SeveralJobs(f"{where} has traces of {len(jobs):,} jobs. Ingest each into its own run:\n{shown}{more}")


def _foreign(found: Sequence[TraceFile]) -> list[TraceFile]:
    """Return the profiler's own files: only their content shows which job they are from."""
    raw = [
        one
        for one in found
        if one.format == kineto.NAME
        and isinstance(one.path, Path)
        and trace_of(one.path.name) is None
        and not reduced_trace.is_reduced(one.path)
    ]
    if len(raw) <= _MOST_FILES:
        return raw
    claims = Counter(one.claim.rank for one in raw)
    return [one for one in raw if one.claim.rank is not None and claims[one.claim.rank] > 1]


def _trace(one: TraceFile) -> TraceHead:
    path = Path(str(one.path))
    head = b""
    with suppress(BrokenSource, OSError):  # reading the file will say what is wrong with it
        head = next(ByteStream(path, block=_HEAD).blocks(), b"")[:_HEAD]
    event = _EVENT.search(head)
    world, time = _WORLD.search(head), _TIME.search(head)
    process = _PID.search(event[0]) if event else None
    return TraceHead(
        path,
        one.claim.rank,
        int(world[1]) if world and int(world[1]) <= LARGEST_WORLD else None,  # its reader will refuse a larger one
        int(process[1]) if process else None,
        int(time[1]) if time else 0,
    )


def _are_one_job(traces: Sequence[TraceHead]) -> bool:
    if len({trace.world_size for trace in traces} - {None}) > 1:
        return False
    processes: dict[int, set[int]] = defaultdict(set)
    for trace in traces:
        if trace.rank is not None and trace.process is not None:
            processes[trace.rank].add(trace.process)
    return all(len(own) == 1 for own in processes.values())


def _split_jobs(traces: Sequence[TraceHead]) -> list[list[TraceHead]]:
    """Return the traces of each job: by folder or by name, whichever gives fewer, else by time."""
    if _are_one_job(traces):
        return [list(traces)]
    root = Path(commonpath([trace.path.parent for trace in traces]))
    by_folder = _group_traces(traces, lambda trace: trace.path.relative_to(root).parts[:-1][:1])
    by_name = _group_traces(traces, lambda trace: re.sub(r"\d+", "#", str(trace.path.relative_to(root))))
    ways = [[job for part in parts for job in _split_jobs(part)] for parts in (by_folder, by_name) if len(parts) > 1]
    return min(ways, key=len) if ways else _by_time(traces)


def _group_traces(traces: Sequence[TraceHead], key: Callable[[TraceHead], object]) -> list[list[TraceHead]]:
    parts: dict[object, list[TraceHead]] = defaultdict(list)
    for trace in traces:
        parts[key(trace)].append(trace)
    return list(parts.values())


def _by_time(traces: Sequence[TraceHead]) -> list[list[TraceHead]]:
    """Return jobs that ran one after another: a trace that cannot be from the last job begins the next."""
    jobs: list[list[TraceHead]] = [[]]
    for trace in sorted(traces, key=lambda trace: trace.time):
        if not _are_one_job([*jobs[-1], trace]):
            jobs.append([])
        jobs[-1].append(trace)
    return jobs


def _command(job: Sequence[TraceHead], paths: set[str], name: str) -> str:
    words = " ".join(map(shlex.quote, _choose_arguments(job, paths)))
    return f"lostflops ingest {words} -o {shlex.quote(name)}"


def _choose_arguments(job: Sequence[TraceHead], paths: set[str]) -> list[str]:
    """Return the folder or the pattern that matches exactly these files, otherwise the files."""
    own = {str(trace.path) for trace in job}
    folder = commonpath([trace.path.parent for trace in job])
    if {path for path in paths if Path(path).is_relative_to(folder)} == own:
        return [folder]
    first = sorted(own)
    start, end = _shared_start(first), _shared_start([path[::-1] for path in first])[::-1]
    pattern = f"{start}*{end}"
    is_plain = not set("[]?*") & set(start + end) and len({trace.path.parent for trace in job}) == 1
    if len(own) > 1 and is_plain and {path for path in paths if fnmatchcase(path, pattern)} == own:
        return [pattern]
    return first


def _shared_start(texts: Sequence[str]) -> str:
    """Return the longest text that all texts start with.

    >>> _shared_start(["a/rank0.json", "a/rank1.json"])
    'a/rank'
    """
    low, high = min(texts), max(texts)
    return low[: next((at for at, letter in enumerate(low) if high[at : at + 1] != letter), len(low))]


def _run_names(jobs: Sequence[Sequence[TraceHead]]) -> list[str]:
    """Return a unique name for each run: that of the folder, or of the only file."""
    names: list[str] = []
    for job in jobs:
        folder = Path(commonpath([trace.path.parent for trace in job]))
        plain = job[0].path.name.split(".json")[0] if len(job) == 1 else folder.name
        name = f"run-{re.sub(r'[^A-Za-z0-9_.-]+', '-', plain)[:60]}"
        names.append(name if name not in names else f"{name}-{len(names) + 1}")
    return names


def _about(job: Sequence[TraceHead]) -> str:
    ranks = len({trace.rank for trace in job if trace.rank is not None}) or len(job)
    world = next((trace.world_size for trace in job if trace.world_size), None)
    return f"{ranks} of {pluralise(world, 'rank')}" if world else pluralise(ranks, "rank")
