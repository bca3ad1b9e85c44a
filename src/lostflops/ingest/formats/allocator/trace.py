"""An allocator's history as allocations and frees, with the allocator's totals after each.

A snapshot shows what is there at its end, and the history what changed before: totals are counted backwards from the
end. Entries state requested sizes, so totals here are of requested bytes, of blocks that are in use or waiting for
another stream; the bytes that rounding adds are known for the blocks of the snapshot alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from lostflops.core.units import format_bytes
from lostflops.ingest.common.columns import NULL
from lostflops.ingest.formats.allocator.dump import StackTable, whole

Numbers = npt.NDArray[np.int64]
_HELD: Final = {"alloc": 1, "free_completed": -1}
_LATEST: Final = 1 << 52
_RESERVED: Final = {"segment_alloc": 1, "segment_map": 1, "segment_free": -1, "segment_unmap": -1}


class LiveBlocks(NamedTuple):
    """Blocks that a device holds at the snapshot."""

    address: Numbers
    requested: Numbers
    """-1 if a version of PyTorch does not record it."""
    reserved: int


def live_blocks(blocks: dict[str, list[Any]], device: int) -> LiveBlocks:
    own = [i for i, index in enumerate(blocks["device_index"]) if index == device]
    live = [i for i in own if blocks["state"][i] != "free"]
    asked = [-1 if blocks["requested"][i] is None else blocks["requested"][i] for i in live]
    segments = {blocks["segment"][i]: blocks["segment_bytes"][i] for i in own}
    address = np.array([blocks["address"][i] for i in live], np.int64)
    return LiveBlocks(address, np.array(asked, np.int64), sum(segments.values()))


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """Rows of `memory` of one device."""

    time: Numbers
    address: Numbers
    bytes: Numbers
    allocated: Numbers
    """Null if the history does not lead to the snapshot."""
    reserved: Numbers
    """Null if the history does not lead to the snapshot."""
    line: list[str | None]
    out_of_memory: tuple[str, ...]
    malformed: int
    without_time: int
    contradictions: int


def read_history(entries: list[Any], live: LiveBlocks, stacks: StackTable) -> History:
    rows: list[tuple[int, int, int, int]] = []
    lines: list[str | None] = []
    failures: list[str] = []
    malformed = without_time = 0
    for entry in entries:
        action = entry.get("action") if type(entry) is dict else None
        if not isinstance(action, str):
            malformed += 1
        elif action == "oom":
            failures.append(_failure(entry, stacks))
        elif action in _HELD or action in _RESERVED:
            size, place, when = whole(entry.get("size")), whole(entry.get("addr")), whole(entry.get("time_us"))
            if size is None or place is None or size < 0 or abs(when or 0) > _LATEST:
                malformed += 1
                continue
            without_time += when is None
            lines.append(stacks.line(entry.get("frames")) if action == "alloc" else None)
            rows.append(((when or 0) * 1000, place, _HELD.get(action, 0) * size, _RESERVED.get(action, 0) * size))
    time, address, held, grown = np.array(rows, np.int64).reshape(-1, 4).T
    own = np.flatnonzero(held)
    contradictions = _contradictions(address[own], held[own], live)
    allocated = reserved = np.full(time.size, NULL, np.int64)
    if not contradictions and (live.requested >= 0).all():
        allocated = live.requested.sum() - _later(held)
        reserved = live.reserved - _later(grown)
    if without_time:
        own = own[:0]
    return History(
        time=time[own],
        address=address[own],
        bytes=held[own],
        allocated=allocated[own],
        reserved=reserved[own],
        line=[lines[row] for row in own.tolist()],
        out_of_memory=tuple(failures),
        malformed=malformed,
        without_time=without_time,
        contradictions=contradictions,
    )


def _later(changes: Numbers) -> Numbers:
    """Return by how much the total still changes after each entry."""
    after: Numbers = changes.sum() - changes.cumsum()
    return after


def _contradictions(address: Numbers, held: Numbers, live: LiveBlocks) -> int:
    """Count addresses with a last entry that differs from the snapshot: something happened that was not recorded."""
    places, last = np.unique(address[::-1], return_index=True)
    final = held[::-1][last]
    order = np.argsort(live.address)
    known, asked = live.address[order], live.requested[order]
    at = np.minimum(np.searchsorted(known, places), max(known.size - 1, 0))
    there = known[at] == places if known.size else np.zeros(places.size, np.bool_)
    same = there & ((asked[at] == final) | (asked[at] < 0)) if known.size else there
    return int(np.where(final > 0, ~same, there & (final < 0)).sum())


def _failure(entry: dict[str, Any], stacks: StackTable) -> str:
    size, free, line = whole(entry.get("size")), whole(entry.get("device_free")), stacks.line(entry.get("frames"))
    asked = "an unknown size" if size is None else format_bytes(size)
    left = "" if free is None else f" with {format_bytes(free)} free on the device"
    return f"asked for {asked}{left}" + (f", at {line}" if line else "")
