"""A worker process, as the process that started it sees it.

Orders and answers have pipes of their own, which only the worker inherits: whatever a library or a `sitecustomize`
prints there goes to standard error, and is not taken for an answer.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from lostflops.core import errors
from lostflops.core.resources import count_memory_kills, private_memory
from lostflops.store.spread.deaths import describe_death

_EXIT_WAIT_S: Final = 5.0
"""A worker that closed its pipe has ended by then; if not, it is killed."""
_WORKER: Final = """import sys
sys.path.insert(0, sys.argv[1])
from lostflops.store.spread.worker import main
main(int(sys.argv[2]), int(sys.argv[3]))"""

_running: Final[set[int]] = set()


def list_worker_ids() -> tuple[int, ...]:
    """Return the process ids of all workers that this process has started and not yet ended."""
    return tuple(_running)


class WorkerProcess:
    """A worker process, with its private pipes."""

    def __init__(self) -> None:
        """Start a worker that imports the same Lostflops as this process, wherever that was found."""
        where = str(Path(errors.__file__).parents[2])
        orders, answers = os.pipe(), os.pipe()
        self.orders, self.answers = os.fdopen(orders[1], "wb"), os.fdopen(answers[0], "rb")
        self._kills = count_memory_kills()
        self._peak = 0
        # Not from the folder that somebody works in, whose modules may be called as others are.
        command = [sys.executable, "-P", "-c", _WORKER, where, str(orders[0]), str(answers[1])]
        try:
            # A group of its own: Ctrl-C is for the parent, which then ends its workers.
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=2, pass_fds=(orders[0], answers[1]), process_group=0
            )
            _running.add(self._process.pid)
        except BaseException:
            self.close()
            raise
        finally:
            os.close(orders[0])
            os.close(answers[1])

    def is_running(self) -> bool:
        return self._process.poll() is None

    def memory(self) -> int:
        """Return the bytes of memory that the process uses now; 0 if the system does not say."""
        return private_memory(self._process.pid)

    def end(self) -> None:
        self.kill()
        self.wait()
        self.close()

    def kill(self) -> None:
        self._process.kill()

    def wait(self) -> None:
        self._process.wait()
        _running.discard(self._process.pid)

    def describe_end(self) -> str:
        """Return how the worker ended, after it closed its pipe or sent something unreadable."""
        until = time.monotonic() + _EXIT_WAIT_S
        while self._process.returncode is None and time.monotonic() < until:
            self._reap()
            time.sleep(0.01)
        code = self._process.poll()
        if code is None:
            return "it stopped answering"
        return describe_death(code, self._peak, self._kills, count_memory_kills())

    def _reap(self) -> None:
        """Collect the exit status as `subprocess` would, and with it the largest memory of the process."""
        try:
            pid, status, usage = os.wait4(self._process.pid, os.WNOHANG)
        except ChildProcessError:  # another thread has collected it
            self._process.poll()
            return
        if pid:
            self._process.returncode = os.waitstatus_to_exitcode(status)
            self._peak = usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)

    def close(self) -> None:
        for pipe in (self.orders, self.answers):
            with suppress(BrokenPipeError):  # what a dead worker did not take is not missed
                pipe.close()
