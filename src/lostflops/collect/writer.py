"""Write records to disk: a bounded ring, one thread, frames with checksums. Training never waits for a file."""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any, Final

from lostflops.collect.capture import frame_bytes, rank_file

RING: Final = 10_000
PAUSE: Final = 0.5
"""Seconds between two chores, and between two frames if no step ends."""
STEP_PAUSE: Final = 0.05
"""Seconds between two frames: a process that is killed loses the step in flight, and those that ended since then."""
_FRAME: Final = 500
"""At most this many records are in a frame; between two frames other threads get their turn."""
_LAST_WAIT: Final = 3.0
"""Seconds that an exit waits for the disk."""


class _Signal:
    """A flag to wait for, which the wait takes down.

    An Event has a lock of its own: a handler of a signal that comes while its thread sets one would wait for ever.
    """

    def __init__(self) -> None:
        self._is_down = threading.Lock()
        self._is_down.acquire()

    def set(self) -> None:
        with suppress(RuntimeError):  # it is set already
            self._is_down.release()

    def wait(self, seconds: float) -> bool:
        return self._is_down.acquire(timeout=seconds)


class Writer:
    """A thread that writes records from any thread; `chores` are called between frames, on the writer's thread.

    The file is opened on that thread too: a disk that hangs blocks no other thread.
    """

    def __init__(self, folder: Path, rank: int, session: str, chores: Callable[[], None]) -> None:
        self._folder, self._rank, self._session, self._chores = folder, rank, session, chores
        self._file = -1
        self._ring: deque[dict[str, Any]] = deque()
        self._written = self._refused = self._lost = 0
        self._own = 0
        self.is_dead = False
        """There is no file to write to, and there will not be one."""
        self._wake, self._urgent = _Signal(), _Signal()
        self._closing = self._is_writing = self._is_hurried = False
        self._thread = threading.Thread(target=self._run, name="lostflops", daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def acknowledged_records(self) -> int:
        """Records that the operating system has: they survive the process."""
        return self._written

    @property
    def dropped(self) -> int:
        return self._refused + self._lost

    @property
    def own(self) -> int:
        """CPU time of the thread, in ns."""
        return self._own

    def put(self, record: dict[str, Any]) -> None:
        if len(self._ring) >= RING:
            self._refused += 1
            return
        self._ring.append(record)

    def put_step(self, record: dict[str, Any]) -> None:
        """Put a record that should be written soon."""
        self.put(record)
        self._wake.set()

    def close(self) -> None:
        """Write what is left, as long as the disk answers in time."""
        self._closing = True
        self.hurry()
        self._thread.join(_LAST_WAIT)

    def flush(self) -> None:
        """Wait until everything is written, as long as the disk answers in time: the process ends without a close."""
        self._end_wait()
        until = time.monotonic() + _LAST_WAIT
        while (self._ring or self._is_writing) and self._thread.is_alive() and time.monotonic() < until:
            time.sleep(0.001)

    def hurry(self) -> None:
        """Do chores and write, without waiting for the next pause."""
        self._is_hurried = True
        self._end_wait()

    def _end_wait(self) -> None:
        self._urgent.set()
        self._wake.set()

    def _run(self) -> None:
        try:
            self._file = _open(self._folder, self._rank)
            chores_due = 0.0
            while not self._closing:
                self._wait()
                self._write()
                if self._are_chores_due(chores_due):
                    self._chores()
                    chores_due = time.monotonic() + PAUSE
                    self._write()
                self._own = time.thread_time_ns()
            self._write()
            os.close(self._file)
        except Exception:  # noqa: BLE001 - a thread that dies of one would print it among the program's output
            self.is_dead = True

    def _wait(self) -> None:
        """Wait until there is something to write or to do."""
        if not self._urgent.wait(STEP_PAUSE):
            self._wake.wait(max(PAUSE - STEP_PAUSE, 0))

    def _are_chores_due(self, due: float) -> bool:
        is_due = self._is_hurried or time.monotonic() >= due
        self._is_hurried = False
        return is_due and not self._closing

    def _write(self) -> None:
        self._is_writing = True
        while self._ring:
            self._write_frame([self._ring.popleft() for _ in range(min(_FRAME, len(self._ring)))])
        self._is_writing = False

    def _write_frame(self, records: list[dict[str, Any]]) -> None:
        try:
            frame = frame_bytes(self._rank, self._session, self._written, self.dropped, records)
            if os.write(self._file, frame) == len(frame):
                self._written += len(records)
                return
        except (OSError, ValueError, TypeError, MemoryError, RecursionError):
            pass
        self._lost += len(records)


def _open(folder: Path, rank: int) -> int:
    """Open and lock the rank's file; a second process of the same rank gets a file of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    own = rank_file(folder, rank)
    for number in count(2):
        file = os.open(own, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        try:
            # A record lock, which forked workers do not inherit: it ends with this process.
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            os.close(file)
            own = rank_file(folder / f"beside-{number}", rank)
            own.parent.mkdir(exist_ok=True)
            continue
        except OSError:  # a file system without locks
            return file
        return file
    raise AssertionError
