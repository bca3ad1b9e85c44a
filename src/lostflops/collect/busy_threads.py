"""Python threads of the program other than the training thread: their CPU time, and where they spend it.

They are read on the collector's own thread, twice a second. A thread that runs Python holds the interpreter lock (GIL),
and the training thread waits for it between any two ops.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from types import FrameType
from typing import Any, Final

from lostflops.collect.sampler import label

_OWN: Final = "lostflops"
_BUSY: Final = 0.05
"""A thread is busy if it uses at least this share of the time: its place is read, and it is reported."""
_MOST_THREADS: Final = 20
_MOST_ENDED: Final = 10
"""If more threads than this are known, those that have ended are forgotten."""
_MOST_PLACES: Final = 50
"""Different places that are counted per thread, at most."""
_TOLD_PLACES: Final = 3
_TOLD_THREADS: Final = 5
_LONGEST_NAME: Final = 60
_FIRST_RECORD: Final = 4_000_000_000
"""Time of the first record, in ns of training; each later record comes at twice the time, so that there are few."""


class _Busy:
    def __init__(self, name: str, cpu: int) -> None:
        self.name, self.first, self.last = name, cpu, cpu
        self.places: Counter[str] = Counter()


class BusyThreads:
    """CPU time and places of all Python threads but ours and the training thread, whose identity is `trained`."""

    def __init__(self, trained: int | None, put: Callable[[dict[str, Any]], None]) -> None:
        self._trained, self._put = trained, put
        self._threads: dict[tuple[int, int], _Busy] = {}
        """Keyed by native id and identity, because each of them alone may be reused by another thread."""
        self._began = self._looked = time.monotonic_ns()
        self._next = _FIRST_RECORD

    def look(self) -> None:
        now = time.monotonic_ns()
        between, self._looked = now - self._looked, now
        alive = threading.enumerate()
        self._forget_ended(alive)
        busy = [thread for thread in alive if self._is_busy(thread, between)]
        if busy:
            frames = sys._current_frames()  # noqa: SLF001 - the documented way
            for thread in busy:
                frame = frames.get(thread.ident or 0)
                known = self._threads[thread.native_id or 0, thread.ident or 0]
                if frame is not None and len(known.places) < _MOST_PLACES:
                    known.places[label(_find_caller(frame))] += 1
            del frames
        if now - self._began >= self._next:
            self._next *= 2
            self.tell()

    def tell(self) -> None:
        """Put a record of the busiest threads so far; a later record replaces it."""
        whole = max(self._looked - self._began, 1)
        order = sorted(self._threads.values(), key=lambda one: one.first - one.last)
        told = [
            {"name": one.name, "cpu": one.last - one.first, "places": one.places.most_common(_TOLD_PLACES)}
            for one in order[:_TOLD_THREADS]
            if one.last - one.first >= _BUSY * whole
        ]
        if told:
            self._put({"kind": "job", "key": "threads", "value": {"time": whole, "threads": told}})

    def _forget_ended(self, alive: list[threading.Thread]) -> None:
        """Make room for new threads: forget threads that ended, the least busy ones first."""
        known = {(thread.native_id or 0, thread.ident or 0) for thread in alive}
        ended = sorted(self._threads.keys() - known, key=lambda key: self._threads[key].last - self._threads[key].first)
        for key in ended[: max(len(self._threads) - _MOST_ENDED, 0)]:
            del self._threads[key]

    def _is_busy(self, thread: threading.Thread, between: int) -> bool:
        """Update the CPU time of a thread and return whether it was busy since the last look."""
        number = thread.native_id
        if number is None or thread.ident == self._trained or thread.name.startswith(_OWN):
            return False
        cpu = _cpu_time(number)
        key = number, thread.ident or 0
        if cpu is None or (key not in self._threads and len(self._threads) >= _MOST_THREADS):
            return False
        known = self._threads.setdefault(key, _Busy(thread.name[:_LONGEST_NAME], cpu))
        used, known.last = cpu - known.last, cpu
        return used >= _BUSY * between


def _find_caller(frame: FrameType) -> FrameType:
    """Return the frame that called a wait of the `threading` module: that is where the program is."""
    while frame.f_code.co_filename == threading.__file__ and frame.f_back is not None:
        frame = frame.f_back
    return frame


def _cpu_time(thread: int) -> int | None:
    """Return the CPU time of a thread of this process in ns; None if it cannot be read.

    Linux derives the number of a thread's clock from its id. `time.pthread_getcpuclockid` would crash if the thread has
    just ended.
    """
    try:
        return time.clock_gettime_ns((~thread << 3) | 6) if sys.platform == "linux" else None
    except OSError:
        return None
