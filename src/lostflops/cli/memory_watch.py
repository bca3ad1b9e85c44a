"""Stops a command that, with its workers, uses more memory than its limit, before the machine is in trouble."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, NoReturn

from lostflops.core.errors import NotEnoughMemory
from lostflops.core.resources import private_memory
from lostflops.store.memory_limit import limit_memory, not_enough_memory
from lostflops.store.spread.worker_process import list_worker_ids

_EVERY_S: Final = 0.02
"""Near its limit memory is read this often, unless one call of a library keeps Python's lock for longer."""
_MOST_S: Final = 0.25
_FASTEST: Final = 8e9
"""Bytes per second that a command may come to use at most: Linux hands out about 2 GB/s to a core."""
_PATIENCE_S: Final = 3.0
"""A command that was interrupted has this time to clean up."""
_MOST_OVER: Final = 1.1
"""A command that goes on to use this many times its limit is ended at once."""


def end_command(error: NotEnoughMemory) -> NoReturn:
    print(f"lostflops: {error}", file=sys.stderr, flush=True)
    os._exit(error.exit_code)


@contextmanager
def watch_memory(end_by_force: Callable[[NotEnoughMemory], NoReturn] = end_command) -> Iterator[None]:
    """Raise NotEnoughMemory if the block, with its workers, uses more memory than the limit.

    If the block does not end soon, `end_by_force` ends the process, on another thread.
    """
    watch = _Watch(limit_memory(), end_by_force)
    try:
        yield
    except BaseException as error:
        if watch.stop() or isinstance(error, MemoryError):
            raise not_enough_memory() from None
        raise
    if watch.stop():  # and the block took the interrupt for that of a user
        raise not_enough_memory()


class _Watch:
    def __init__(self, limit: int, end_by_force: Callable[[NotEnoughMemory], NoReturn]) -> None:
        self._limit, self._end_by_force = limit, end_by_force
        self._is_exceeded = False
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, name="lostflops-memory", daemon=True)
        self._thread.start()

    def stop(self) -> bool:
        """End the watch; return whether the limit was exceeded."""
        while True:
            try:
                self._over.set()
                self._thread.join()
                return self._is_exceeded
            except KeyboardInterrupt:
                if not self._is_exceeded:
                    raise

    def _look(self) -> None:
        pause = _EVERY_S
        while not self._over.wait(pause):
            left = self._limit - _used_memory()
            pause = min(max(left / _FASTEST, _EVERY_S), _MOST_S)
            if left < 0:
                self._is_exceeded = True
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)  # as Ctrl-C, also if it waits
                self._wait_for_end()
                return

    def _wait_for_end(self) -> None:
        """End the process if it does not end by itself: what it has committed stays, and workers end with it."""
        for _ in range(int(_PATIENCE_S / _EVERY_S)):
            if self._over.wait(_EVERY_S):
                return
            if _used_memory() > _MOST_OVER * self._limit:
                break
        self._end_by_force(not_enough_memory())


def _used_memory() -> int:
    return private_memory() + sum(map(private_memory, list_worker_ids()))
