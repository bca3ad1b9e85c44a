"""Memory of each rank in a selection, of the device that it computes on: its accelerator, or the CPU if it has none.

The total is the allocator's, as of the counter on a timeline. If it is not recorded, as on a CPU, it is the sum that
`lostflops memory` shows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from lostflops.account.derive.selected_events import RankEdges, ask_rows, limit_ranks, list_edges
from lostflops.account.memory.devices import computing_devices
from lostflops.account.memory.events import CPU, DEVICE, Device, device_name
from lostflops.account.memory.read import memories

if TYPE_CHECKING:
    from lostflops.store.run import Run

MOST_SUMMED: Final = 16
"""Totals that are not recorded are summed for at most this many ranks at once: a rank takes about 0.1 s."""
# Events at the same time keep the order of the rows. Before its first event, a device has what that event found.
_MEMORY: Final = """
    with events as (
        select rank, {device}, time, bytes, allocated, time::hugeint * 4294967296 + row_number() over () as place
        from memory where {chosen} and bytes <> 0 and time is not null and device_type is not null
    ), cut as (
        select *, time < first as is_before, time >= first and time < last as is_inside
        from events join {edges} using (rank)
    ), sums as (
        select rank, kind, index, count(*) = count(allocated) as is_known,
               arg_min(allocated - bytes, place) as base,
               coalesce(arg_max(allocated, place) filter (where is_before), base) as held,
               greatest(held, max(allocated) filter (where is_inside)) as peak,
               coalesce(arg_max(allocated, place) filter (where is_inside), held) as kept,
               coalesce(sum(bytes) filter (where is_inside and bytes > 0), 0)::bigint as gained,
               coalesce(sum(-bytes) filter (where is_inside and bytes < 0), 0)::bigint as freed,
               count(*) filter (where is_inside and bytes > 0) as allocations
        from cut group by all
    )
    select rank, kind, index, is_known and kind <> {cpu}, coalesce(held, 0), coalesce(peak, 0), coalesce(kept, 0),
           gained, freed, allocations from sums"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectedMemory:
    """Memory of a rank inside a selection, in bytes."""

    rank: int
    device: str
    """Such as `cpu` or `cuda:0`."""
    at_start: int | None
    """Total allocated when the selection starts; None if it is not recorded and was not summed, as for the others."""
    peak: int | None
    """Highest total inside, which may be that of the start."""
    at_end: int | None
    """Total allocated when the selection ends."""
    allocated: int
    """Bytes that were allocated inside."""
    freed: int
    """Bytes that were freed inside, as recorded; a total also counts frees that were not."""
    allocations: int
    """Number of allocations inside."""


def select_memory(run: Run, edges: RankEdges) -> tuple[SelectedMemory, ...]:
    """Return the memory of ranks that recorded any, the highest peak first."""
    devices = computing_devices(run, tuple(edges)) if edges else {}
    if not devices:
        return ()
    found = _read_totals(run, {rank: edges[rank] for rank in devices}, devices)
    unknown = [own.rank for own in found if own.peak is None]
    if 0 < len(unknown) <= MOST_SUMMED:
        summed = {own.rank: own for own in _sum_totals(run, edges, [own for own in found if own.rank in unknown])}
        found = [summed.get(own.rank, own) for own in found]
    return tuple(sorted(found, key=lambda own: (own.peak is None, -(own.peak or 0), own.rank)))


def _read_totals(run: Run, edges: RankEdges, devices: Mapping[int, Device]) -> list[SelectedMemory]:
    query = _MEMORY.format(device=DEVICE, chosen=limit_ranks(edges), edges=list_edges(edges), cpu=CPU)
    return [
        SelectedMemory(
            rank=rank,
            device=device_name((kind, index)),
            at_start=held if is_known else None,
            peak=peak if is_known else None,
            at_end=kept if is_known else None,
            allocated=allocated,
            freed=freed,
            allocations=allocations,
        )
        for rank, kind, index, is_known, held, peak, kept, allocated, freed, allocations in ask_rows(run, query)
        if devices[rank] == (kind, index)
    ]


def _sum_totals(run: Run, edges: RankEdges, unknown: Sequence[SelectedMemory]) -> Iterator[SelectedMemory]:
    """Yield the same with totals of all blocks that are known."""
    wanted = {(own.rank, own.device): own for own in unknown}
    for memory in memories(run, [own.rank for own in unknown]):
        if (memory.rank, memory.device) in wanted:
            totals = np.append(memory.base, memory.total)
            first, last = np.searchsorted(memory.time, edges[memory.rank]).tolist()
            yield replace(
                wanted[memory.rank, memory.device],
                at_start=int(totals[first]),
                peak=int(totals[first : last + 1].max()),
                at_end=int(totals[last]),
            )
