"""Stops a command that, with its workers, uses more memory than its limit, before the machine is in trouble."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from lostflops.core.resources import private_memory
from lostflops.store.memory_limit import limit_memory, not_enough_memory
from lostflops.store.spread.worker_process import list_worker_ids

_EVERY_S: Final = 0.02
"""Memory is read this often. Linux hands out about 2 GB/s, so the limit is exceeded by 40 MB."""
_PATIENCE_S: Final = 3.0
"""A command that was interrupted has this time to clean up."""
_MOST_OVER: Final = 1.1
"""A command that goes on to use this many times its limit is ended at once."""


@contextmanager
def watch_memory() -> Iterator[None]:
    """Raise NotEnoughMemory if the block, with its workers, uses more memory than the limit."""
    watch = _Watch(limit_memory())
    try:
        yield
    except KeyboardInterrupt:
        if watch.is_exceeded:
            raise not_enough_memory() from None
        raise
    except MemoryError:
        raise not_enough_memory() from None
    finally:
        watch.stop()


class _Watch:
    def __init__(self, limit: int) -> None:
        self.is_exceeded = False
        self._limit = limit
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, name="lostflops-memory", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._over.wait(_EVERY_S):
            if _used_memory() > self._limit:
                self.is_exceeded = True
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)  # as Ctrl-C, also if it waits
                self._end_by_force()
                return

    def _end_by_force(self) -> None:
        """End the process if it does not end by itself: what it has committed stays, and workers end with it."""
        for _ in range(int(_PATIENCE_S / _EVERY_S)):
            if self._over.wait(_EVERY_S):
                return
            if _used_memory() > _MOST_OVER * self._limit:
                break
        error = not_enough_memory()
        print(f"lostflops: {error}", file=sys.stderr, flush=True)
        os._exit(error.exit_code)


def _used_memory() -> int:
    return private_memory() + sum(map(private_memory, list_worker_ids()))
