"""Memory at points that the program names with `lostflops.mark`, read from counters that torch and the kernel keep.

Nothing waits for the device, and a device that the program has not used yet is not initialised.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from itertools import count
from pathlib import Path
from typing import Any, Final

import torch

MOST: Final = 2_000
"""Marks of one process that are recorded."""
MOST_OF_NAME: Final = 200
"""Marks of one name that are recorded, so that a mark in a loop leaves room for the others."""
_LONGEST_NAME: Final = 100
_STATM: Final = Path("/proc/self/statm")
_LOST: Final = "marks_dropped"
_REASON: Final = f"a process records at most {MOST:,} marks, and {MOST_OF_NAME} of one name"
_KINDS: Final = ("cuda", "xpu")
"""Devices whose allocator counts. To ask which device there is would already start a driver, which forbids forks."""
_STATISTICS: Final = {
    "allocated": "allocated_bytes.all.current",
    "reserved": "reserved_bytes.all.current",
    "peak": "allocated_bytes.all.peak",
}
_NO_DEVICE: Final[dict[str, Any]] = dict.fromkeys(("device", *_STATISTICS))


class Marks:
    """The marks of a process. They are held until the process trains, because only then its rank is known."""

    def __init__(self) -> None:
        self._numbers = count()
        self._seen: Counter[str] = Counter()
        self._held: list[dict[str, Any]] = []
        self._recorded = self._lost = self._reported = 0

    def add(self, recorder: Any, name: object) -> None:
        """Record the memory at this moment under a name; may be called on any thread."""
        title = str(name)[:_LONGEST_NAME]
        if self._recorded >= MOST or self._seen[title] >= MOST_OF_NAME:
            self._lost += 1
            if self._lost - self._reported > self._reported:  # the number of notes grows with the logarithm
                self.report_lost(recorder)
            return
        self._recorded += 1
        self._seen[title] += 1
        step = recorder.clock.step
        record = {
            "kind": "mark",
            "number": next(self._numbers),
            "name": title,
            "occurrence": self._seen[title] - 1,
            "time": recorder.wall(time.monotonic_ns()),
            "step": step.number if step.start >= 0 else None,
            **_read_device(),
            "resident": _read_resident(),
        }
        if recorder.writer is None:
            self._held.append(record)
        else:
            recorder.put(record)

    def release(self, recorder: Any) -> None:
        """Put the marks from before the training, now that they can be written."""
        for record in self._held:
            recorder.put(record)
        self._held = []
        if self._lost:
            self._reported = 0
            self.report_lost(recorder)

    def report_lost(self, recorder: Any) -> None:
        """Note marks that were lost since the last note."""
        if self._lost > self._reported:
            recorder.note(_LOST, _REASON, self._lost - self._reported)
            self._reported = self._lost


def _read_device() -> dict[str, Any]:
    """Return the counters of the current device's allocator; None if the program uses no device."""
    for kind in _KINDS:
        module = getattr(torch, kind, None)
        if module is not None and module.is_initialized():
            index = module.current_device()
            found = module.memory_stats(index)
            return {"device": f"{kind}:{index}", **{name: found.get(key) for name, key in _STATISTICS.items()}}
    return _NO_DEVICE


def _read_resident() -> int | None:
    """Return the resident memory of this process; None if the kernel does not report it."""
    try:
        return int(_STATM.read_bytes().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None
