"""Plain data of a snapshot of PyTorch's caching allocator, as columns.

The fields are those of torch/csrc/cuda/Module.cpp and memory_snapshot.cpp, as `torch.cuda.memory._snapshot` documents
them; older snapshots keep a block's frames and size in its `history`. A snapshot does not state its rank, which comes
from the file's name.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

from lostflops.account.facts.source_code import CODES, PROGRAM, code_of
from lostflops.core.errors import BrokenSource
from lostflops.core.limits import MOST_BLOCKS
from lostflops.ingest.common.safe_pickle import Limits

LIMITS: Final = Limits(
    what="snapshot of the allocator",
    input_bytes=512 << 20,
    opcodes=200_000_000,
    container_bytes=3 << 30,
    walked_values=1_000_000_000,
    smaller="Record with fewer entries: torch.cuda.memory._record_memory_history(max_entries=100000).",
)
"""100,000 entries with 60 frames each are 40 MB and 10 million opcodes."""
MOST_TEXT: Final = 8 << 20
_DEEPEST: Final = 512
_PACKAGES: Final = re.compile(r"^.*/(?:site|dist)-packages/")
_ENGINE: Final = "autograd::Engine"
_STATES: Final = {
    "active_allocated": "allocated",
    "active_pending_free": "pending",
    "active_awaiting_free": "pending",
    "inactive": "free",
}
_BLOCK_COLUMNS: Final = (
    *("device_index", "segment", "segment_bytes", "expandable", "stream", "pool"),
    *("address", "bytes", "requested", "state", "line", "stack"),
)
_GENERATED: Final = ("torchinductor", "<eval_with_key>")
MALFORMED: Final = "snapshot_parts_malformed"
_DEVICES: Final = 1 << 15
"""Devices that a host can have: PyTorch numbers them with 8 or 16 bits."""
OPEN: Final = "snapshot_segments_open"
REASONS: Final = {
    MALFORMED: ("dropped", "segments, blocks or entries that lack fields which every version of PyTorch writes"),
    OPEN: ("note", "segments whose blocks do not add up to the totals of the segment"),
}


@dataclass(slots=True)
class StackTable:
    """Texts of frames, each made once: snapshots share frames."""

    room: int = MOST_TEXT
    """Characters of different stacks that may still be kept; lines are always kept."""
    dropped: int = 0
    _frames: dict[int, tuple[str, str, int]] = field(default_factory=dict)
    _texts: set[str] = field(default_factory=set)

    def line(self, frames: Any) -> str | None:
        """Return the innermost line of a stack: of the program, otherwise of a library, otherwise of PyTorch."""
        found, nearest = None, len(CODES)
        for frame in frames[:_DEEPEST] if type(frames) is list else ():
            told = self._frame(frame)
            if told is not None and told[2] < nearest:
                found, nearest = told[1], told[2]
                if not nearest:
                    break
        return found

    def text(self, frames: Any) -> str | None:
        """Return the stack from the outermost frame.

        If it has Python frames, the only C++ frames in it are those of autograd's engine, which show the phase.
        """
        told = self._read_frames(frames)
        python = [one for one in told if one[2] < len(CODES) or _ENGINE in one[0]]
        text = ";".join(text for text, _, _ in reversed(python or told))
        if text not in self._texts:
            if len(text) > self.room:
                self.dropped += 1
                return None
            self.room -= len(text)
            self._texts.add(text)
        return text or None

    def _read_frames(self, frames: Any) -> list[tuple[str, str, int]]:
        if type(frames) is not list:
            return []
        return [one for frame in frames[:_DEEPEST] if (one := self._frame(frame)) is not None]

    def _frame(self, frame: Any) -> tuple[str, str, int] | None:
        """Return text, place, and how far the frame's code is from the program's."""
        found = self._frames.get(id(frame))
        if found is None:
            if type(frame) is not dict:
                return None
            name, file, line = frame.get("name"), frame.get("filename"), frame.get("line")
            if not isinstance(name, str) or not isinstance(file, str) or type(line) is not int:
                return None
            place = f"{_PACKAGES.sub('', file)}:{line}".replace(";", ",")
            text = f"{name.replace(' ', '_').replace(';', ',')} {place}"
            found = self._frames[id(frame)] = (text, place, _distance(f"{name} {file}:{line}", file))
        return found


def _distance(text: str, file: str) -> int:
    if any(mark in file for mark in _GENERATED) or not (file.endswith(".py") or file.startswith("<")):
        return len(CODES)
    code = code_of(text)
    return 0 if code == PROGRAM else 2 if code == "torch" else 1


def segments_of(document: Any, name: str) -> list[Any]:
    """Return the segments of a whole snapshot, or of the list that `torch.cuda.memory_snapshot()` returns."""
    segments = document.get("segments") if type(document) is dict else document
    if type(segments) is not list:
        raise BrokenSource(
            f"{name}: not an allocator snapshot, because it has no `segments`. "
            "Give the file that torch.cuda.memory._dump_snapshot() wrote."
        )
    return segments


def read_blocks(segments: list[Any], stacks: StackTable, name: str) -> tuple[dict[str, list[Any]], Counter[str]]:
    """Return the columns of `allocator_blocks`, and counts of what was wrong with parts."""
    columns: dict[str, list[Any]] = {column: [] for column in _BLOCK_COLUMNS}
    wrong: Counter[str] = Counter()
    for segment in segments:
        if type(segment) is not dict or type(segment.get("blocks")) is not list:
            wrong[MALFORMED] += 1
            continue
        head = _segment(segment)
        if head is None:
            wrong[MALFORMED] += 1
            continue
        sums: Counter[str] = Counter()
        address = head[1]
        for block in segment["blocks"]:
            row = _block(block, address, stacks)
            if row is None:
                wrong[MALFORMED] += 1
                continue
            for column, value in zip(_BLOCK_COLUMNS, (*head, *row), strict=True):
                columns[column].append(value)
            sums[row[3]] += row[1]
            address = row[0] + row[1]
        if len(columns["bytes"]) > MOST_BLOCKS:
            raise BrokenSource(f"{name}: more than {MOST_BLOCKS:,} blocks; no real allocator has that many.")
        wrong[OPEN] += not _adds_up(segment, sums)
    return columns, wrong


def _segment(segment: dict[str, Any]) -> tuple[Any, ...] | None:
    device, stream = whole(segment.get("device", 0)), whole(segment.get("stream", 0))
    address, size, kind = whole(segment.get("address")), whole(segment.get("total_size")), segment.get("segment_type")
    if address is None or size is None or size < 0 or kind not in ("small", "large"):
        return None
    if device is None or not 0 <= device < _DEVICES:
        return None
    private = segment.get("segment_pool_id")
    if isinstance(private, (tuple, list)) and len(private) == 2 and any(private):
        kind = f"{kind} ({private[0]}, {private[1]})"
    return device, address, size, segment.get("is_expandable") is True, stream, kind


def _block(block: Any, address: int, stacks: StackTable) -> tuple[Any, ...] | None:
    if type(block) is not dict:
        return None
    size, state = whole(block.get("size")), block.get("state")
    if size is None or size < 0 or not isinstance(state, str) or state not in _STATES:
        return None
    requested, frames = whole(block.get("requested_size")), block.get("frames")
    history = block.get("history")
    if type(history) is list and history and type(history[0]) is dict:
        frames = history[0].get("frames") if frames is None else frames
        requested = whole(history[0].get("real_size")) if requested is None else requested
    at = whole(block.get("address", address))
    if at is None:
        return None
    held = _STATES[state]
    return at, size, None if held == "free" else requested, held, stacks.line(frames), stacks.text(frames)


def _adds_up(segment: dict[str, Any], sums: Counter[str]) -> bool:
    allocated, active = segment.get("allocated_size"), segment.get("active_size")
    return (
        sum(sums.values()) == segment["total_size"]
        and allocated in (None, sums["allocated"])
        and active in (None, sums["allocated"] + sums["pending"])
    )


def whole(value: Any) -> int | None:
    return value if type(value) is int and -(1 << 63) < value < 1 << 63 else None
