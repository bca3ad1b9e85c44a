"""A run as a Perfetto trace: all ranks on one clock, waits as separate slices, overlaps unchanged.

Packets are written as rows are read: memory grows with the largest rank, whose ledger is computed as a whole, and not
with the run.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO, Final, cast

from isal import igzip

from lostflops.account.align.lane_events import extent
from lostflops.account.align.one_clock import OneClock
from lostflops.account.ledger.by_rank import Progress
from lostflops.core.errors import UsageError
from lostflops.show.export.lanes import draw
from lostflops.show.export.packets import Packets
from lostflops.show.export.rank_tracks import draw_collectives, draw_ledgers, draw_memory, draw_steps
from lostflops.show.export.scene import Scene, shift_of

if TYPE_CHECKING:
    from lostflops.store.run import Run

EVENTS_AT_ONCE: Final = 1_000_000
"""A query reads at most about this many events, sorted by lane and time; small ranks are read together, because each
query takes a while to begin."""


@dataclass(frozen=True, slots=True)
class WrittenTrace:
    ranks: int
    slices: int
    tracks: int
    points: int


def write_perfetto(
    run: Run,
    stream: BinaryIO,
    *,
    ranks: Sequence[int] = (),
    steps: Sequence[int] = (),
    progress: Progress | None = None,
) -> WrittenTrace:
    """Write a trace of all ranks and everything recorded, unless ranks or steps are named."""
    chosen = _select_ranks(run, ranks, steps)
    span = extent(run, OneClock.of(run))
    if span is None:
        raise UsageError("nothing to export: no rank recorded any events")
    packets = Packets(stream, span.start + shift_of(span))
    scene = Scene(run, packets, span, chosen, sorted(set(steps)))
    with _no_search_for_cycles():
        _draw_all(scene, progress)
    return WrittenTrace(len(chosen), packets.slices, packets.tracks, packets.points)


def _draw_all(scene: Scene, progress: Progress | None) -> None:
    scene.processes()
    draw_steps(scene)
    draw_ledgers(scene)
    draw_collectives(scene)
    draw_memory(scene)
    done = 0
    for batch in _batches(scene.run, scene.ranks):
        if progress is not None:
            progress(done, len(scene.ranks))
        draw(scene, batch)
        done += len(batch)


@contextmanager
def _no_search_for_cycles() -> Iterator[None]:
    """Turn the garbage collector off: millions of rows are created and dropped, none of them part of a cycle, and the
    search for cycles takes a fifth of the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def compress_stream(stream: BinaryIO) -> AbstractContextManager[BinaryIO]:
    """Return a stream that compresses what is written with gzip, which Perfetto reads as well."""
    packed = igzip.IGzipFile(fileobj=stream, mode="wb", compresslevel=2)  # type: ignore[no-untyped-call]
    return cast("AbstractContextManager[BinaryIO]", packed)


def _select_ranks(run: Run, ranks: Sequence[int], steps: Sequence[int]) -> list[int]:
    if unknown := sorted(set(ranks) - set(run.ranks)):
        raise UsageError(f"the run has no rank {unknown[0]}")
    chosen = sorted(set(ranks) or run.ranks)
    if steps:
        within = f"rank in ({', '.join(map(str, chosen))})"
        known = {step for (step,) in run.rows(f"select distinct step from steps where {within}")}
        if missing := sorted(set(steps) - known):
            raise UsageError(f"step {missing[0]} was not recorded")
    return chosen


def _batches(run: Run, ranks: Sequence[int]) -> Iterator[list[int]]:
    sizes = dict(run.rows("select rank, coalesce(events, 0) from ranks"))
    batch: list[int] = []
    for rank in ranks:
        if batch and sum(sizes[one] for one in batch) + sizes[rank] > EVENTS_AT_ONCE:
            yield batch
            batch = []
        batch.append(rank)
    if batch:
        yield batch
