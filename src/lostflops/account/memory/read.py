"""The memory of each rank and device of a run: blocks with owners, which sum to the allocator's total."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields, replace
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np

from lostflops.account.ledger.record import Record, record_of, records
from lostflops.account.ledger.windows import WindowKind, window
from lostflops.account.memory.blocks import RankMemory
from lostflops.account.memory.buckets import NONE, buckets_of
from lostflops.account.memory.events import CPU, NOWHERE, Device, device_name, events_of
from lostflops.account.memory.holdings import RankHoldings, holdings_of, none_held
from lostflops.account.memory.labels import label_blocks
from lostflops.account.memory.lost_frees import with_likely_ends
from lostflops.account.memory.moments import moments_of
from lostflops.account.memory.owners import CODE, Owner
from lostflops.account.memory.sites import SiteSpans
from lostflops.account.memory.snapshot_memory import told_by_snapshot
from lostflops.account.memory.tally import Tally, tally
from lostflops.account.memory.unseen_frees import with_unseen_frees

if TYPE_CHECKING:
    from lostflops.store.run import Run

_ROWS_KEPT: Final = 200_000
"""If a run has at most this many rows of memory, that of a rank is kept while the run is open: about 50 MB in all."""


def memories(run: Run, ranks: Sequence[int] = ()) -> Iterator[RankMemory]:
    """Yield the memory of each rank and device that recorded any, in order; of all ranks unless some are named."""
    sizes: dict[int, int] = dict(run.rows("select rank, count(*) from memory group by rank order by rank"))
    chosen = [rank for rank in sizes if not ranks or rank in ranks]
    if sum(sizes.values()) > _ROWS_KEPT:
        yield from _read_memories(run, chosen)
        return
    for rank in chosen:
        yield from run.keep(("memory", rank), partial(_keep_memories, run, rank))


def _keep_memories(run: Run, rank: int) -> tuple[RankMemory, ...]:
    return tuple(map(_frozen, _read_memories(run, [rank])))


def _frozen(memory: RankMemory) -> RankMemory:
    """Make the arrays of a memory read-only: several callers share it."""
    for part in (memory, memory.blocks):
        for array in (getattr(part, one.name) for one in fields(part)):
            if isinstance(array, np.ndarray):
                array.flags.writeable = False
    return memory


def _read_memories(run: Run, chosen: Sequence[int]) -> Iterator[RankMemory]:
    timed = records(run, chosen)
    coming = next(timed, None)
    for rank in chosen:
        if coming is not None and coming.rank == rank:
            yield from _of_rank(run, coming)
            coming = next(timed, None)
        else:
            yield from _of_rank(run, record_of(run, rank))


def _of_rank(run: Run, record: Record) -> Iterator[RankMemory]:
    rank = record.rank
    found, lines = events_of(run, rank)
    held, spans, buckets = holdings_of(run, rank), SiteSpans(run, rank, lines), buckets_of(run, rank)
    place = np.array([spans.texts.index(line) for line in lines], np.int64)
    trains_on = _training_device(found, held)
    for device, events in found.items():
        own = held.get(device, none_held())
        in_buckets = buckets.without(own) if device == trains_on else NONE
        counted = tally(replace(events, line=place[events.line]), own, in_buckets, is_cpu=device[0] == CPU)
        made = with_unseen_frees(_memory(record, spans, device_name(device), counted, own))
        yield told_by_snapshot(run, made)


def _training_device(found: Iterable[Device], held: dict[Device, RankHoldings]) -> Device:
    """Return the device with most parameters, else the first that is not the CPU."""

    def parameters(device: Device) -> int:
        own = held.get(device, none_held())
        return int(own.bytes[own.owner == CODE[Owner.PARAMETERS]].sum())

    return max(found, key=lambda device: (parameters(device), device[0] != CPU), default=(CPU, NOWHERE))


def _memory(record: Record, spans: SiteSpans, device: str, counted: Tally, held: RankHoldings) -> RankMemory:
    moments = moments_of(record, spans, counted.events)
    if device == device_name((CPU, NOWHERE)):
        counted = with_likely_ends(counted, moments)
    events = counted.events
    # Memory is that of the last of several windows.
    stretches = window(record, WindowKind.TRACE).start
    opened = min(record.host_begins if stretches.size == 1 else int(stretches[-1]), int(events.time[0]))
    # What the profiler's end cuts off, such as the optimizer's step that it stops in, lasts until all is written.
    until = record.steps.stop if record.steps.stop.size else record.host.stop
    closed = max(int(until.max(initial=0)), int(events.time[-1]))
    blocks, texts = label_blocks(counted, held, moments, spans.texts, (opened, closed))
    return RankMemory(
        rank=record.rank,
        device=device,
        opened=opened,
        closed=closed,
        time=events.time,
        total=counted.total,
        base=counted.base,
        unknown=counted.unknown,
        reserved=events.reserved if (events.reserved > 0).all() else events.reserved[:0],
        blocks=blocks,
        texts=texts,
        notes=counted.notes,
        drift=counted.drift,
    )
