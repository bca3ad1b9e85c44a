"""Fragmentation in answers: blocks of a result, and words."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from lostflops.account.memory.blocks import RankMemory
from lostflops.account.memory.fragmentation import Fragmentation, MemoryUse, fragmentations, from_events
from lostflops.account.memory.snapshot_lines import NO_LINE, LineHolding, line_holdings
from lostflops.core.results import Block, Field, Figure, Pair, Section, Table, Unit
from lostflops.core.units import format_bytes

if TYPE_CHECKING:
    from lostflops.store.run import Run

HOW_TO_SNAPSHOT: Final = (
    "torch.cuda.memory._record_memory_history(max_entries=100000) before the steps, "
    "torch.cuda.memory._dump_snapshot(f'rank{rank}.pickle') after them, then lostflops ingest rank*.pickle -o RUN"
)
MOST_SHOWN: Final = 8
_MUCH: Final = 0.1
"""Share of what is reserved that may be free at the peak without a note."""
_BYTES: Final[Unit] = "bytes"
_USE: Final = (
    Field("reserved", _BYTES),
    Field("allocated", _BYTES),
    Field("pending", _BYTES, shown=False),
    Field("split", _BYTES, "holes"),
    Field("slack", _BYTES, "cache"),
    Field("rounding", _BYTES, shown=False),
    Field("largest_free", _BYTES, shown=False),
)


def _row(use: MemoryUse) -> tuple[int | None, ...]:
    return use.reserved, use.allocated, use.pending, use.split, use.slack, use.rounding, use.largest_free


@dataclass(frozen=True, slots=True)
class FragmentationAnswer:
    """Answer about the fragmentation of one device."""

    blocks: tuple[Block, ...] = ()
    """Blocks of a result; empty if fragmentation is unknown."""
    more: tuple[Block | Figure, ...] = (Figure("fragmentation", None),)
    """Blocks and figures that only programs read."""
    notes: tuple[str, ...] = ()
    """Gaps in what is known."""


def answer(run: Run, rank: int, device: str, memory: RankMemory | None = None) -> FragmentationAnswer:
    """Answer for one device such as `cuda:0`, from its snapshot, or from its events as `memory`.

    A snapshot shows figures with the pools, what keeps holes, and lines that hold what is allocated. Events only show
    what is reserved and not allocated.
    """
    for found in fragmentations(run, [rank]):
        if found.device == device:
            lines = line_holdings(run, rank, device)
            keepers = (_keepers(found),) if found.segments else ()
            return FragmentationAnswer(
                (_figures(found), *keepers, _lines(lines)), (_segments(found),), tuple(_notes(found))
            )
    free = (from_events(memory) or 0) if memory is not None else 0
    is_much = memory is not None and free > _MUCH * (memory.peak_bytes + free)
    return FragmentationAnswer(notes=(_events_alone(free),) if is_much else ())


def of_fullest(run: Run, ranks: Sequence[int]) -> FragmentationAnswer:
    """Answer for the rank and device that reserved most, if there is a snapshot of any."""
    found = max(fragmentations(run, ranks), key=lambda one: one.use.reserved, default=None)
    return answer(run, found.rank, found.device) if found is not None else FragmentationAnswer()


def _figures(found: Fragmentation) -> Section:
    use = found.use
    items = (
        Pair("source", "snapshot", shown=False),
        Pair("rank", found.rank),
        Pair("device", found.device),
        Pair("reserved_bytes", use.reserved, _BYTES, "reserved"),
        Pair("allocated_bytes", use.allocated, _BYTES, "allocated"),
        Pair("pending_bytes", use.pending, _BYTES, "freed, another stream may use it", shown=bool(use.pending)),
        Pair("split_bytes", use.split, _BYTES, "holes: free, held by blocks in use"),
        Pair("split_share", use.split / use.reserved if use.reserved else 0.0, "share", "holes, of reserved"),
        Pair("slack_bytes", use.slack, _BYTES, "cache: free, returnable"),
        Pair("rounding_bytes", use.rounding, _BYTES, "allocated only by rounding up", shown=use.rounding is not None),
        Pair("largest_free_bytes", use.largest_free, _BYTES, "largest free block"),
        Pair("expandable_at_most_bytes", found.expandable_at_most, _BYTES, "expandable_segments saves at most"),
    )
    rows = tuple((pool, stream, *_row(use)) for pool, stream, use in found.pools)
    table = Table("pools", "By pool and stream", (Field("pool"), Field("stream"), *_USE), rows, most_shown=MOST_SHOWN)
    return Section("fragmentation", f"Fragmentation of {found.device} at the snapshot", items, table)


def _keepers(found: Fragmentation) -> Table:
    """Return holes by the line of the largest block that keeps their segment."""
    kept: defaultdict[str, list[MemoryUse]] = defaultdict(list)
    for segment in found.segments:
        kept[segment.line or NO_LINE].append(segment.use)
    rows = [
        (line, sum(use.split for use in uses), len(uses), sum(use.allocated + use.pending for use in uses))
        for line, uses in kept.items()
    ]
    rows.sort(key=lambda row: (-row[1], row[0]))
    fields = (
        Field("line", label="largest block in use from"),
        Field("split", _BYTES, "holes"),
        Field("segments", "count"),
        Field("live", _BYTES, "in use there"),
    )
    return Table("keepers", "Holes, by the block that keeps the segment", fields, tuple(rows), most_shown=MOST_SHOWN)


def _segments(found: Fragmentation) -> Table:
    fields = (
        *(Field("segment"), Field("pool"), Field("stream"), Field("expandable")),
        *_USE,
        *(Field("live", "count"), Field("line")),
    )
    rows = tuple(
        (f"{one.address:#x}", one.pool, one.stream, one.expandable, *_row(one.use), one.live, one.line)
        for one in found.segments
    )
    return Table("segments", "Segments with holes, the largest holes first", fields, rows)


def _lines(lines: Sequence[LineHolding]) -> Table:
    total = sum(one.bytes for one in lines) or 1
    fields = (
        *(Field("line"), Field("phase", label="allocated in"), Field("bytes", _BYTES), Field("share", "share")),
        *(Field("requested", _BYTES, shown=False), Field("count", "count", "blocks")),
    )
    rows = tuple((one.line, one.phase, one.bytes, one.bytes / total, one.requested, one.count) for one in lines)
    return Table("source_lines", "Allocated at the snapshot, by source line", fields, rows, most_shown=MOST_SHOWN)


def _events_alone(free: int) -> str:
    return (
        f"Events do not show fragmentation: the {format_bytes(free)} that were reserved but not allocated may be holes "
        f"between blocks or whole free segments. A snapshot shows which: {HOW_TO_SNAPSHOT}."
    )


def _notes(found: Fragmentation) -> Iterator[str]:
    if found.outside:
        yield (
            f"{found.device}: the blocks of the snapshot sum to {format_bytes(abs(found.outside))} "
            f"{'less' if found.outside > 0 else 'more'} than their segments; figures are from the blocks."
        )
    if found.private_slack:
        yield (
            f"{found.device}: {format_bytes(found.private_slack)} of the returnable cache belong to private pools, "
            "such as those of CUDA graphs, and are returned only when these are deleted."
        )
    if found.use.rounding is None:
        yield f"{found.device}: the snapshot's version does not record requested sizes, so rounding is unknown."
