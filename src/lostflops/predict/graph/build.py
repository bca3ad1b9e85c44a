"""A run as a graph of tasks: one part for each rank, joined where ranks meet."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from lostflops.account.ledger.record import records
from lostflops.account.ledger.windows import WindowKind, window
from lostflops.core.errors import UsageError
from lostflops.predict.graph.device.part import device_part
from lostflops.predict.graph.holes import without_holes
from lostflops.predict.graph.host_meetings import host_meetings
from lostflops.predict.graph.join import join
from lostflops.predict.graph.links import assign_links
from lostflops.predict.graph.lost_calls import find_lost_calls
from lostflops.predict.graph.ops.op_part import op_part
from lostflops.predict.graph.tasks import TaskGraph
from lostflops.predict.graph.threads.part import thread_part

if TYPE_CHECKING:
    from lostflops.account.ledger.by_rank import Progress
    from lostflops.account.ledger.record import Record
    from lostflops.predict.graph.lost_calls import LostCalls
    from lostflops.predict.graph.parts import GraphPart
    from lostflops.store.run import Run


def build(run: Run, progress: Progress | None = None) -> TaskGraph:
    """Return the graph of all ranks that recorded whole steps; raise `UsageError` if no rank did."""
    parts = list(_parts(run, progress))
    if not parts:
        raise UsageError("no rank recorded a whole step: call profiler.step() in the loop, or use lostflops run")
    return without_holes(host_meetings(run, assign_links(join(run, parts))))


def _parts(run: Run, progress: Progress | None) -> Iterator[GraphPart]:
    chosen = [rank for (rank,) in run.rows("select distinct rank from steps order by rank")]
    names: dict[int, dict[int, str]] = {}
    for rank, lane, name in run.rows("select rank, lane, coalesce(name, 'stream ' || stream, '') from lanes"):
        names.setdefault(rank, {})[lane] = name
    lost = find_lost_calls(run)
    for done, record in enumerate(records(run, chosen)):
        if progress is not None:
            progress(done, len(chosen))
        yield _part(run, record, names.get(record.rank, {}), lost.get(record.rank))


def _part(run: Run, record: Record, names: Mapping[int, str], lost: LostCalls | None) -> GraphPart:
    """Build the part of one rank from what it recorded: threads only, a device with its host, or device ops without
    launches."""
    edges = window(record, WindowKind.STEPS)
    if not record.on_device:
        return thread_part(run, record, edges)
    if not record.host.start.size:
        return op_part(run, record, edges)
    return device_part(record, edges, names, lost)
