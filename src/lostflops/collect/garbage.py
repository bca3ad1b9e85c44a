"""Pauses of Python's garbage collector on the training thread; those on other threads delay it only by chance."""

from __future__ import annotations

import gc
import threading
import time
from typing import Any


class Garbage:
    """Pauses of the garbage collector on one thread; a collection costs two readings of the clock, all else nothing."""

    def __init__(self, thread: int | None) -> None:
        self._thread = thread
        self._began = -1
        self._spent = self._count = 0

    def watch(self) -> None:
        gc.callbacks.append(self.collects)

    def leave(self) -> None:
        if self.collects in gc.callbacks:
            gc.callbacks.remove(self.collects)

    def collects(self, phase: str, _: dict[str, Any]) -> None:
        """Note that a collection starts or stops; called by Python as one of `gc.callbacks`."""
        if threading.get_ident() != self._thread:
            return
        now = time.monotonic_ns()
        if phase == "start":
            self._began = now
        elif self._began >= 0:
            self._spent += now - self._began
            self._count += 1
            self._began = -1

    def take(self) -> tuple[int, int]:
        """Return time (in ns) and number of collections since the last call."""
        found = self._spent, self._count
        self._spent = self._count = 0
        return found
