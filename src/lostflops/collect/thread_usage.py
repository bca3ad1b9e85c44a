"""CPU time, run-queue wait, system time and page faults of the training thread, from step to step.

Two system calls a step: the kernel counts all of it anyway. A figure that it does not provide is None, never 0.
"""

from __future__ import annotations

import os
import resource
import threading
from contextlib import suppress
from typing import Final

FIELDS: Final = ("cpu", "queued", "system", "faults", "preempted")
"""Columns of table `timings`."""


class ThreadUsage:
    """What the training thread uses; to be made and read on that thread."""

    def __init__(self) -> None:
        self._file = _open(threading.get_native_id())
        self._last = self._read()

    def take(self) -> dict[str, int | None]:
        """Return what the thread used since the last call, by column; times in ns."""
        now, last = self._read(), self._last
        self._last = now
        return {
            name: None if new is None or old is None else max(new - old, 0)
            for name, new, old in zip(FIELDS, now, last, strict=True)
        }

    def close(self) -> None:
        file, self._file = self._file, -1
        if file >= 0:
            with suppress(OSError):
                os.close(file)

    def _read(self) -> tuple[int | None, ...]:
        cpu, queued = self._read_scheduler_times()
        if not hasattr(resource, "RUSAGE_THREAD"):
            return cpu, queued, None, None, None
        used = resource.getrusage(resource.RUSAGE_THREAD)
        return cpu, queued, round(used.ru_stime * 1e9), used.ru_minflt, used.ru_nivcsw

    def _read_scheduler_times(self) -> tuple[int | None, int | None]:
        """Return the time on a core and the time runnable without one."""
        if self._file < 0:
            return None, None
        try:
            cpu, queued, _ = os.pread(self._file, 100, 0).split()
            return int(cpu), int(queued)
        except (OSError, ValueError):
            self._file = -1  # the program closed it, and the number may be its own file by now
            return None, None


def _open(thread: int) -> int:
    """Return a descriptor of the thread's scheduler statistics; -1 if the kernel keeps none."""
    try:
        return os.open(f"/proc/self/task/{thread}/schedstat", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return -1
