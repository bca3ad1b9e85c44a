"""Carries out ingest tasks on several worker processes, or here when there is one task or one worker."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue

import msgspec

from lostflops import errors
from lostflops.errors import BrokenSource, SourceError
from lostflops.ingest.tasks import Outcome, Task, carry_out
from lostflops.ingest.worker import Message
from lostflops.store.parquet import ParquetWriter

OnRead = Callable[[int], None]
"""Told how many bytes were read."""
OnDone = Callable[[int], None]
"""Told how many files are done."""


def carry_out_all(tasks: Sequence[Task], workers: int, on_read: OnRead, on_done: OnDone) -> list[Outcome]:
    """Outcomes in the order of the tasks; the first error stops all workers and is raised."""
    workers = min(workers, len(tasks))
    if workers <= 1:
        return _here(tasks, on_read, on_done)
    with _Workers(tasks, workers, on_read, on_done) as pool:
        return pool.results()


def _here(tasks: Sequence[Task], on_read: OnRead, on_done: OnDone) -> list[Outcome]:
    writer = ParquetWriter()
    outcomes = []
    try:
        for task in tasks:
            try:
                outcomes.append(carry_out(task, writer, on_read))
            except OSError as error:
                raise SourceError(str(error)) from None
            on_done(len(task.files))
    finally:
        writer.close()
    return outcomes


class _Workers:
    def __init__(self, tasks: Sequence[Task], workers: int, on_read: OnRead, on_done: OnDone) -> None:
        self._outcomes: list[Outcome | None] = [None] * len(tasks)
        self._waiting = deque(enumerate(tasks))
        self._on_read, self._on_done = on_read, on_done
        self._finished: SimpleQueue[BaseException | None] = SimpleQueue()
        self._processes = [_start() for _ in range(workers)]
        self._threads = [
            threading.Thread(target=self._attend, args=(process,), daemon=True) for process in self._processes
        ]

    def __enter__(self) -> _Workers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.kill()
            process.wait()
        for thread in self._threads:
            thread.join()
        for process in self._processes:
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    with suppress(BrokenPipeError):  # what a dead worker did not take is not missed
                        pipe.close()

    def results(self) -> list[Outcome]:
        for _ in self._threads:
            error = self._finished.get()
            if error is not None:
                raise error
        return [outcome for outcome in self._outcomes if outcome is not None]

    def _attend(self, process: subprocess.Popen[bytes]) -> None:
        """Feed one worker until there is nothing left to do."""
        try:
            while self._waiting:
                try:
                    number, task = self._waiting.popleft()
                except IndexError:
                    break
                self._outcomes[number] = self._hand_over(process, task)
                self._on_done(len(task.files))
        except BaseException as error:  # noqa: BLE001 - also of the caller's progress: it is raised where it belongs
            self._finished.put(error)
        else:
            self._finished.put(None)

    def _hand_over(self, process: subprocess.Popen[bytes], task: Task) -> Outcome:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(msgspec.json.encode(task) + b"\n")
            process.stdin.flush()
            for line in process.stdout:
                message = msgspec.json.decode(line, type=Message)
                if message.read:
                    self._on_read(message.read)
                if message.error is not None:
                    raise getattr(errors, message.error_type)(message.error)
                if message.outcome is not None:
                    return message.outcome
        except (BrokenPipeError, msgspec.DecodeError):
            pass
        raise BrokenSource(
            f"the worker that read {task.files[0].path} died (out of memory, or killed). Try --workers 1."
        )


_WORKER = "import sys; sys.path.insert(0, sys.argv[1]); from lostflops.ingest.worker import main; main()"


def _start() -> subprocess.Popen[bytes]:
    """A worker that imports the same Lostflops as this process, wherever that was found."""
    where = str(Path(errors.__file__).parents[1])
    command = [sys.executable, "-c", _WORKER, where]
    # A group of its own: Ctrl-C is for the parent, which then ends its workers.
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, process_group=0)
