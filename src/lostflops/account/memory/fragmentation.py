"""Reserved memory that is not in use, by blocks: holes that cannot be returned, and cache that can.

The allocator gets segments from the device and cuts them into blocks. A segment goes back only when all of it is free,
so one small block that lives on keeps a whole segment. 1 - allocated / reserved counts such holes and plain cache as
one; the blocks of a snapshot separate them. Events do not: `from_events` returns their sum alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from lostflops.account.memory.blocks import BEFORE, RankMemory

if TYPE_CHECKING:
    from lostflops.store.run import Run

_ROUNDING: Final = 512
_PAGE: Final = 2 << 20
"""Smallest page of an expandable segment: CUDA maps memory in multiples of 2 MB."""
_LARGE_PAGE: Final = 20 << 20
"""Bytes that PyTorch maps and unmaps at once for large blocks (kLargeBuffer in c10/cuda/CUDACachingAllocator.h)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryUse:
    """Bytes of a segment, a pool or a device by use; all but `largest_free` and `rounding` sum to `reserved`."""

    reserved: int
    allocated: int
    pending: int
    split: int
    """Free, in segments that also hold blocks in use: it cannot be returned."""
    slack: int
    """Free, in whole segments (or whole pages of expandable ones): the cache, which can be returned."""
    rounding: int | None
    """Part of what is allocated or pending; None if the snapshot does not record it."""
    largest_free: int

    def self_check(self) -> None:
        parts = self.allocated + self.pending + self.split + self.slack
        assert parts == self.reserved, f"blocks hold {parts} bytes of {self.reserved}"


@dataclass(frozen=True, slots=True, kw_only=True)
class MemorySegment:
    address: int
    pool: str
    stream: int | None
    expandable: bool
    bytes: int
    """Size as the segment itself says; blocks hold `use.reserved`."""
    use: MemoryUse
    live: int
    """Number of blocks in use."""
    needed: int
    """Bytes that were asked for, rounded as little as the allocator can."""
    line: str | None
    """Source line of the largest block in use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fragmentation:
    """Fragmentation of one device of a rank, at the snapshot."""

    rank: int
    device: str
    use: MemoryUse
    pools: tuple[tuple[str, int | None, MemoryUse], ...]
    """Use by name and stream, most holes first."""
    segments: tuple[MemorySegment, ...]
    """Segments with holes, the largest holes first."""
    private_slack: int
    """Part of the slack in private pools: it stays until their owner (a CUDA graph) is gone."""
    expandable_at_most: int
    """Most bytes that `expandable_segments:True` would give back, beyond the slack."""
    outside: int
    """Bytes of segments that no block of the snapshot covers; negative if blocks overlap."""

    def self_check(self) -> None:
        self.use.self_check()
        for _, _, use in self.pools:
            use.self_check()
        assert sum(use.split for _, _, use in self.pools) == self.use.split


def fragmentations(run: Run, ranks: Sequence[int] = ()) -> Iterator[Fragmentation]:
    """Yield the fragmentation of each rank and device with a snapshot, in order; of all ranks unless some are named."""
    found = run.rows("select distinct rank, device_index from allocator_blocks order by all")
    for rank, device in found:
        if not ranks or rank in ranks:
            yield _of(run, rank, device)


def _of(run: Run, rank: int, device: int) -> Fragmentation:
    segments = _segments(run, rank, device)
    pools: defaultdict[tuple[str, int | None], list[MemorySegment]] = defaultdict(list)
    for segment in segments:
        pools[segment.pool, segment.stream].append(segment)
    uses = [(*key, _sum(own)) for key, own in pools.items()]
    return Fragmentation(
        rank=rank,
        device=f"cuda:{device}",
        use=_sum(segments),
        pools=tuple(sorted(uses, key=lambda one: (-one[2].split, -one[2].reserved, one[0]))),
        segments=tuple(
            sorted((one for one in segments if one.use.split), key=lambda one: (-one.use.split, one.address))
        ),
        private_slack=sum(one.use.slack for one in segments if "(" in one.pool),
        expandable_at_most=sum(_given_back(own) for own in pools.values()),
        outside=sum(one.bytes - one.use.reserved for one in segments),
    )


def _sum(segments: Sequence[MemorySegment]) -> MemoryUse:
    uses = [segment.use for segment in segments]
    rounding = [use.rounding for use in uses if use.rounding is not None]
    return MemoryUse(
        reserved=sum(use.reserved for use in uses),
        allocated=sum(use.allocated for use in uses),
        pending=sum(use.pending for use in uses),
        split=sum(use.split for use in uses),
        slack=sum(use.slack for use in uses),
        rounding=sum(rounding) if len(rounding) == len(uses) else None,
        largest_free=max((use.largest_free for use in uses), default=0),
    )


def _segments(run: Run, rank: int, device: int) -> list[MemorySegment]:
    """Read the segments; free whole pages of expandable segments can be returned, so they are slack."""
    page = f"if(pool like 'small%', {_PAGE}, {_LARGE_PAGE})"
    needed = f"(greatest(coalesce(requested, bytes), 1) + {_ROUNDING - 1}) // {_ROUNDING} * {_ROUNDING}"
    rows = run.rows(
        f"""with placed as (
            select *, state = 'free' as is_free, address - segment as first, {page} as page, {needed} as needed
            from allocator_blocks where rank = {int(rank)} and device_index = {int(device)}
        ), paged as (
            select *, if(expandable and is_free,
                greatest(0, (first + bytes) // page * page - (first + page - 1) // page * page), 0) as pages
            from placed
        )
        select segment, pool, stream, expandable, any_value(segment_bytes),
            sum(bytes)::BIGINT,
            coalesce(sum(bytes) filter (state = 'allocated'), 0)::BIGINT,
            coalesce(sum(bytes) filter (state = 'pending'), 0)::BIGINT,
            coalesce(sum(bytes) filter (is_free), 0)::BIGINT,
            sum(pages)::BIGINT,
            if(count(*) filter (not is_free and requested is null) = 0,
                coalesce(sum(bytes - requested) filter (not is_free), 0), null)::BIGINT,
            coalesce(max(bytes) filter (is_free), 0),
            count(*) filter (not is_free),
            coalesce(sum(needed) filter (not is_free), 0)::BIGINT,
            arg_max(line, bytes) filter (not is_free)
        from paged group by segment, pool, stream, expandable order by segment"""
    )
    return [_segment(*row) for row in rows]


def _segment(address: int, pool: str, stream: int | None, expandable: bool, *row: Any) -> MemorySegment:
    size, reserved, allocated, pending, free, pages, rounding, largest, live, needed, line = row
    slack = pages if live else free
    use = MemoryUse(
        reserved=reserved,
        allocated=allocated,
        pending=pending,
        split=free - slack,
        slack=slack,
        rounding=rounding,
        largest_free=largest,
    )
    return MemorySegment(
        address=address,
        pool=pool,
        stream=stream,
        expandable=expandable,
        bytes=size,
        use=use,
        live=live,
        needed=needed,
        line=line,
    )


def _given_back(pool: Sequence[MemorySegment]) -> int:
    """Return the most bytes that expandable segments would give back.

    Blocks of one pool and stream would be in one segment. At best they have no holes, and are rounded to 512 bytes each
    and to a page at the end; what their segments hold beyond that is the most that can be saved.
    """
    kept = [segment for segment in pool if segment.live and not segment.expandable]
    needed = sum(segment.needed for segment in kept)
    return max(0, sum(segment.use.reserved for segment in kept) - -(-needed // _PAGE) * _PAGE)


def from_events(memory: RankMemory) -> int | None:
    """Return the bytes that are reserved and not allocated at the peak: holes and cache, which events do not separate.

    None if the allocator's reserve is not recorded.
    """
    if memory.peak == BEFORE or not memory.reserved.size:
        return None
    return int(memory.reserved[memory.peak]) - memory.peak_bytes
