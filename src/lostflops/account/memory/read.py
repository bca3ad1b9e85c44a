"""The memory of each rank and device of a run: blocks with owners, which sum to the allocator's total."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

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


def memories(run: Run, ranks: Sequence[int] = ()) -> Iterator[RankMemory]:
    """Yield the memory of each rank and device that recorded any, in order; of all ranks unless some are named."""
    recorded = [rank for (rank,) in run.rows("select distinct rank from memory order by rank")]
    chosen = [rank for rank in recorded if not ranks or rank in ranks]
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
