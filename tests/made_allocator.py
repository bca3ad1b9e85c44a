"""A small model of the CUDA caching allocator: best fit, splits, merges, rounding, cached segments, snapshots.

Sizes and rules are those of c10/cuda/CUDACachingAllocator.cpp: blocks are multiples of 512 bytes; up to 1 MB they come
from segments of 2 MB; from 1 MB to 10 MB from segments of 20 MB; larger ones from segments of their own, in multiples
of 2 MB. A rest is split off when it is 512 bytes (small) or more than 1 MB (large).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

MB = 1 << 20


def frame(name: str, file: str, line: int) -> dict[str, Any]:
    return {"name": name, "filename": file, "line": line}


@dataclass
class Block:
    address: int
    size: int
    requested: int = 0
    state: str = "inactive"
    frames: list[dict[str, Any]] = field(default_factory=list)


@dataclass
class Segment:
    address: int
    size: int
    stream: int
    kind: str
    blocks: list[Block]


class Allocator:
    """Time goes on by one microsecond an entry."""

    def __init__(self, device: int = 0, began_us: int = 1_700_000_000_000_000) -> None:
        self.device, self._now = device, began_us
        self._next = 0x7F00_0000_0000
        self.segments: list[Segment] = []
        self.entries: list[dict[str, Any]] = []
        self.largest_held = 0

    def _record(self, action: str, address: int, size: int, frames: list[dict[str, Any]]) -> None:
        self._now += 1
        place = "device_free" if action == "oom" else "addr"
        entry = {"action": action, place: address, "size": size, "stream": 0, "time_us": self._now, "frames": frames}
        self.entries.append(entry)

    def malloc(self, asked: int, *frames: dict[str, Any], stream: int = 0) -> int:
        size = max(512, -(-asked // 512) * 512)
        kind = "small" if size <= MB else "large"
        fits = [
            (block.size, block.address, segment, block)
            for segment in self.segments
            for block in segment.blocks
            if segment.kind == kind and segment.stream == stream and block.state == "inactive" and block.size >= size
        ]
        if fits:
            _, _, segment, block = min(fits, key=lambda fit: fit[:2])
        else:
            segment = self._new_segment(size, kind, stream, list(frames))
            block = segment.blocks[0]
        rest = block.size - size
        if rest >= 512 if kind == "small" else rest > MB:
            place = segment.blocks.index(block)
            segment.blocks.insert(place + 1, Block(block.address + size, rest))
            block.size = size
        block.requested, block.state, block.frames = asked, "active_allocated", list(frames)
        self._record("alloc", block.address, asked, block.frames)
        self.largest_held = max(self.largest_held, self.asked_for())
        return block.address

    def _new_segment(self, size: int, kind: str, stream: int, frames: list[dict[str, Any]]) -> Segment:
        whole = 2 * MB if kind == "small" else 20 * MB if size < 10 * MB else -(-size // (2 * MB)) * 2 * MB
        segment = Segment(self._next, whole, stream, kind, [Block(self._next, whole)])
        self._next += whole + 2 * MB
        self.segments.append(segment)
        self._record("segment_alloc", segment.address, whole, frames)
        return segment

    def free(self, address: int, *, is_used: bool = False) -> None:
        """Another stream still uses it where it `is_used`; `finish` ends that."""
        _, block = self._find(address)
        self._record("free_requested", address, block.requested, [])
        block.state = "active_pending_free"
        if not is_used:
            self.finish(address)

    def finish(self, address: int) -> None:
        segment, block = self._find(address)
        self._record("free_completed", address, block.requested, [])
        block.requested, block.state, block.frames = 0, "inactive", []
        merged: list[Block] = []
        for one in segment.blocks:
            if merged and merged[-1].state == one.state == "inactive":
                merged[-1].size += one.size
            else:
                merged.append(one)
        segment.blocks = merged

    def empty_cache(self) -> None:
        for segment in [one for one in self.segments if all(block.state == "inactive" for block in one.blocks)]:
            self._record("segment_free", segment.address, segment.size, [])
            self.segments.remove(segment)

    def fail(self, asked: int, left: int, *frames: dict[str, Any]) -> None:
        self._record("oom", left, asked, list(frames))

    def _find(self, address: int) -> tuple[Segment, Block]:
        return next((s, block) for s in self.segments for block in s.blocks if block.address == address)

    def asked_for(self) -> int:
        return sum(block.requested for segment in self.segments for block in segment.blocks)

    def reserved(self) -> int:
        return sum(segment.size for segment in self.segments)

    def snapshot(self, most_entries: int | None = None) -> dict[str, Any]:
        """As `torch.cuda.memory._snapshot` gives it, with the last entries of the history."""
        entries = self.entries if most_entries is None else self.entries[len(self.entries) - most_entries :]
        return {
            "segments": [self._segment(segment) for segment in self.segments],
            "device_traces": [[] for _ in range(self.device)] + [entries],
            "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": "", "expandable_segments": False},
            "external_annotations": [],
        }

    def _segment(self, segment: Segment) -> dict[str, Any]:
        live = [block for block in segment.blocks if block.state != "inactive"]
        return {
            "device": self.device,
            "address": segment.address,
            "total_size": segment.size,
            "allocated_size": sum(block.size for block in live if block.state == "active_allocated"),
            "active_size": sum(block.size for block in live),
            "requested_size": sum(block.requested for block in live),
            "stream": segment.stream,
            "segment_type": segment.kind,
            "segment_pool_id": (0, 0),
            "is_expandable": False,
            "frames": [],
            "blocks": [
                {
                    "address": block.address,
                    "size": block.size,
                    "requested_size": block.requested,
                    "state": block.state,
                    "frames": block.frames,
                }
                for block in segment.blocks
            ],
        }


class ExpandableAllocator(Allocator):
    """The same with `expandable_segments:True`: a stream and kind has one segment, which grows by pages."""

    def _new_segment(self, size: int, kind: str, stream: int, frames: list[dict[str, Any]]) -> Segment:
        page = 2 * MB if kind == "small" else 20 * MB
        segment = next((one for one in self.segments if (one.kind, one.stream) == (kind, stream)), None)
        if segment is None:
            segment = Segment(self._next, 0, stream, kind, [])
            self._next += 1 << 40
            self.segments.append(segment)
        end = segment.address + segment.size
        if not segment.blocks or segment.blocks[-1].state != "inactive":
            segment.blocks.append(Block(end, 0))
        last = segment.blocks[-1]
        grown = -(-(size - last.size) // page) * page
        last.size += grown
        segment.size += grown
        self._record("segment_map", end, grown, frames)
        segment.blocks.remove(last)
        segment.blocks.insert(0, last)
        return segment

    def malloc(self, asked: int, *frames: dict[str, Any], stream: int = 0) -> int:
        place = super().malloc(asked, *frames, stream=stream)
        for segment in self.segments:
            segment.blocks.sort(key=lambda block: block.address)
        return place

    def mapped_at_least(self) -> int:
        """Bytes left when all whole pages of 2 MB that are free are unmapped."""
        page = 2 * MB
        return self.reserved() - sum(
            max(0, (block.address + block.size) // page - -(-block.address // page)) * page
            for segment in self.segments
            for block in segment.blocks
            if block.state == "inactive"
        )
