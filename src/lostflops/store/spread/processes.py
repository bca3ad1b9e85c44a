"""Work in several processes of this machine, or in this one if there is one item or one worker."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, Final, Generic

import msgspec

from lostflops.core.errors import BrokenSource, SourceError
from lostflops.store.spread.names import WORKERS
from lostflops.store.spread.work import OnRead, R, T, Work, WorkAnswer, encode_order, result_of
from lostflops.store.spread.worker_process import WorkerProcess

MOST_DEATHS: Final = 3
"""An item over which this many workers died is taken for the cause."""


class Processes:
    """The engine of one machine."""

    def __init__(self, workers: int) -> None:
        self._workers = workers

    def map(self, work: Work[T, R], items: Sequence[T], on_read: OnRead, on_done: Callable[[T], None]) -> list[R]:
        workers = min(self._workers, len(items))
        if workers <= 1:
            return [_here(work, item, on_read, on_done) for item in items]
        with _Workers(work, items, workers, on_read, on_done) as team:
            return team.results()


def _here(work: Work[T, R], item: T, on_read: OnRead, on_done: Callable[[T], None]) -> R:
    try:
        found = work.do(item, on_read)
    except OSError as error:
        raise SourceError(str(error)) from None
    on_done(item)
    return found


class _Died(Exception):
    """The worker died while it processed an item; the message is how."""


class _Workers(Generic[T, R]):
    def __init__(
        self, work: Work[T, R], items: Sequence[T], workers: int, on_read: OnRead, on_done: Callable[[T], None]
    ) -> None:
        self._work = work
        self._results: list[Any] = [None] * len(items)
        self._waiting = deque(enumerate(items))
        self._on_read, self._on_done = on_read, on_done
        self._finished: SimpleQueue[BaseException | None] = SimpleQueue()
        self._lock, self._is_over = threading.Lock(), False
        self._processes = [WorkerProcess() for _ in range(workers)]
        self._threads = [threading.Thread(target=self._attend, args=(at,), daemon=True) for at in range(workers)]

    def __enter__(self) -> _Workers[T, R]:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._is_over = True
            for process in self._processes:
                process.kill()
                process.wait()
        for thread in self._threads:
            thread.join()
        for process in self._processes:
            process.close()

    def results(self) -> list[R]:
        for _ in self._threads:
            error = self._finished.get()
            if error is not None:
                raise error
        return self._results

    def _attend(self, at: int) -> None:
        """Feed one worker until there is nothing left to do."""
        try:
            while self._waiting:
                try:
                    number, item = self._waiting.popleft()
                except IndexError:
                    break
                self._results[number] = self._do(at, item)
                self._on_done(item)
        except BaseException as error:  # noqa: BLE001 - also of the caller's progress: it is raised where it belongs
            self._finished.put(error)
        else:
            self._finished.put(None)

    def _do(self, at: int, item: T) -> R:
        deaths: dict[str, None] = {}
        for _ in range(MOST_DEATHS):
            try:
                return self._hand_over(self._processes[at], item)
            except _Died as death:
                deaths[str(death)] = None
                self._replace(at)
        error = BrokenSource(
            f"{MOST_DEATHS} workers died while reading {self._work.about(item)} ({'; '.join(deaths)})."
            f" Try --workers 1, or {WORKERS}=1."
        )
        if self._work.refuse is None:
            raise error
        return self._work.refuse(item, error)

    def _replace(self, at: int) -> None:
        with self._lock:
            if self._is_over:
                raise _Died("ended by its parent")
            self._processes[at].end()
            self._processes[at] = WorkerProcess()

    def _hand_over(self, process: WorkerProcess, item: T) -> R:
        read = 0
        with suppress(BrokenPipeError):
            process.orders.write(encode_order(self._work, item) + b"\n")
            process.orders.flush()
        for line in process.answers:
            try:
                answer = msgspec.json.decode(line, type=WorkAnswer)
            except msgspec.DecodeError:
                break
            if not answer.read:
                return result_of(self._work, answer)
            read += answer.read
            self._on_read(answer.read)
        self._on_read(-read)  # it will be read again
        raise _Died(process.describe_end())
