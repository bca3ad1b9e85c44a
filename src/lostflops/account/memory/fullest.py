"""The memory with the highest peak, on an accelerator if any recorded memory; it is found without reading all ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from lostflops.account.memory.read import memories

if TYPE_CHECKING:
    from lostflops.account.memory.blocks import RankMemory
    from lostflops.store.run import Run

_MOST_RANKS: Final = 8
"""Most ranks that are read whole. On an accelerator totals alone show the highest; on a CPU they only come near it."""


def fullest(run: Run, ranks: Sequence[int] = ()) -> RankMemory | None:
    """Return the memory with the highest peak of these ranks, or of all; None if none recorded memory."""
    rows = run.rows(
        "with held as (select rank, device_type, sum(bytes) as bytes from holdings where before group by all), "
        "high as (select rank, device_type, max(allocated) as bytes from memory where bytes <> 0 and time is not null "
        "and device_type is not null group by all) select rank, device_type = 0 as is_cpu, coalesce(high.bytes, 0) "
        "+ if(device_type = 0, coalesce(held.bytes, 0), 0) as bytes from high left join held using (rank, device_type) "
        "order by is_cpu, bytes desc, rank"
    )
    chosen = [(rank, is_cpu) for rank, is_cpu, _ in rows if not ranks or rank in ranks]
    likely = list(dict.fromkeys(rank for rank, is_cpu in chosen if is_cpu == chosen[0][1]))[:_MOST_RANKS]
    if not likely:
        return None
    return max(memories(run, likely), key=lambda one: (one.device != "cpu", one.peak_bytes), default=None)
