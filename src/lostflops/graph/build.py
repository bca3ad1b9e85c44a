"""A run as a graph of tasks: one part for each rank, joined where ranks meet."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from lostflops.errors import UsageError
from lostflops.graph.device.part import device_part
from lostflops.graph.holes import without_holes
from lostflops.graph.host_meetings import host_meetings
from lostflops.graph.join import join
from lostflops.graph.links import linked
from lostflops.graph.ops.op_part import op_part
from lostflops.graph.tasks import TaskGraph
from lostflops.graph.threads.part import thread_part
from lostflops.ledger.record import records
from lostflops.ledger.windows import WindowKind, window

if TYPE_CHECKING:
    from lostflops.graph.parts import Part
    from lostflops.ledger.by_rank import Progress
    from lostflops.ledger.record import Record
    from lostflops.store.run import Run


def build(run: Run, progress: Progress | None = None) -> TaskGraph:
    """All ranks that recorded whole steps; raises `UsageError` where there is none."""
    parts = list(_parts(run, progress))
    if not parts:
        raise UsageError("no rank recorded a whole step: call profiler.step() in the loop, or use lostflops run")
    return without_holes(host_meetings(run, linked(join(run, parts))))


def _parts(run: Run, progress: Progress | None) -> Iterator[Part]:
    chosen = [rank for (rank,) in run.sql("select distinct rank from steps order by rank").fetchall()]
    names: dict[int, dict[int, str]] = {}
    for rank, lane, name in run.sql("select rank, lane, coalesce(name, 'stream ' || stream, '') from lanes").fetchall():
        names.setdefault(rank, {})[lane] = name
    for done, record in enumerate(records(run, chosen)):
        if progress is not None:
            progress(done, len(chosen))
        yield _part(run, record, names.get(record.rank, {}))


def _part(run: Run, record: Record, names: Mapping[int, str]) -> Part:
    """By what the rank recorded: threads alone, a device with its host, or a device's ops without any launch."""
    edges = window(record, WindowKind.STEPS)
    if not record.on_device:
        return thread_part(run, record, edges)
    if not record.host.start.size:
        return op_part(run, record, edges)
    return device_part(record, edges, names)
