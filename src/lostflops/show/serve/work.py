"""Threads that answer questions about a run, each with its own connection. Their work can be stopped.

A running query is interrupted, and later ones are refused. Python code between two queries runs to its end: its thread
is busy until then, and its answer is dropped.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, Full, Queue
from typing import Any, Final, Protocol, Self, TypeVar
from weakref import ref

import duckdb

from lostflops.core.errors import LostflopsError
from lostflops.store.manifest import Manifest
from lostflops.store.run import Run

T = TypeVar("T")
STOPPED: Final = "stopped before there was an answer"


class Stopped(LostflopsError):
    """The work was stopped before it had an answer."""


class Stoppable(Protocol):
    """Work that another thread can stop."""

    stopped: bool

    def stop(self) -> None: ...

    def close(self) -> None:
        """Release what the work has used; called when it has ended."""


S = TypeVar("S", bound=Stoppable)


class StoppableRun(Run):
    """A run whose queries fail once it is stopped."""

    stopped = False

    def __init__(self, path: Path, manifest: Manifest, connection: duckdb.DuckDBPyConnection) -> None:
        super().__init__(path, manifest, connection)
        self._parts: list[ref[StoppableRun]] = []

    def of_steps(self, steps: Sequence[int], *, is_copied: bool = True) -> Self:
        """Return a run of these steps, which stops with this one."""
        self._check()
        made = super().of_steps(steps, is_copied=is_copied)
        self.stop_too(made)
        return made

    def stop_too(self, other: StoppableRun) -> StoppableRun:
        """Return the other run, which stops with this one from now on."""
        self._parts.append(ref(other))
        other.stopped = self.stopped  # it may have been told to end meanwhile
        return other

    def sql(self, query: str) -> duckdb.DuckDBPyRelation:
        self._check()
        found = super().sql(query)
        self._check()  # an interrupt does not end planning, and is forgotten when the query begins
        return found

    def _ask(self, query: str, lists: Mapping[str, Sequence[int]] | None = None) -> duckdb.DuckDBPyConnection:
        self._check()
        asked = super()._ask(query, lists)
        self._check()
        return asked

    def table(self, name: str) -> duckdb.DuckDBPyRelation:
        self._check()
        return super().table(name)

    def stop(self) -> None:
        self.stopped = True
        with suppress(duckdb.ConnectionException):  # it may have been closed meanwhile
            self.interrupt()
        for part in tuple(self._parts):
            if (one := part()) is not None:
                one.stop()

    def _check(self) -> None:
        if self.stopped:
            raise Stopped(STOPPED)


@dataclass(slots=True, eq=False)
class _Job:
    function: Callable[[Any], Any]
    work: Stoppable
    begun: Future[None] = field(default_factory=Future)
    done: Future[Any] = field(default_factory=Future)


class Workers:
    """A few threads with a short queue."""

    def __init__(self, threads: int, waiting: int = 32) -> None:
        self._jobs: Queue[_Job | None] = Queue(waiting)
        self._stops: dict[int, Callable[[], None]] = {}
        self._threads = [threading.Thread(target=self._work, daemon=True) for _ in range(threads)]
        for thread in self._threads:
            thread.start()

    async def answer(self, work: S, function: Callable[[S], T], seconds: float) -> T:
        """Call a function with the work in a thread; raise `Stopped` if it takes longer, waits longer for a thread, or
        if too many jobs are waiting. Cancelling the caller stops the work too."""
        job = _Job(function, work)
        try:
            self._jobs.put_nowait(job)
        except Full:
            raise Stopped("too many requests at once; try again") from None
        try:
            await _wait(job.begun, seconds, f"other requests took the last {seconds:g} s; try again")
            return await _wait(job.done, seconds, f"stopped after {seconds:g} s without an answer")
        finally:
            if not job.done.done() or job.done.cancelled():
                work.stop()
                self._leave_queue(job)

    def _leave_queue(self, job: _Job) -> None:
        """Make room for others; nothing happens if a thread has taken the job."""
        with self._jobs.mutex, suppress(ValueError):
            self._jobs.queue.remove(job)
            job.work.close()

    def close(self, seconds: float = 0.5) -> bool:
        """Stop all work; return whether it ended within this time."""
        with suppress(Empty):
            while job := self._jobs.get_nowait():
                job.work.stop()
        for stop in list(self._stops.values()):
            stop()
        for _ in self._threads:
            with suppress(Full):
                self._jobs.put_nowait(None)
        for thread in self._threads:
            thread.join(seconds / len(self._threads))
        return not any(thread.is_alive() for thread in self._threads)

    def _work(self) -> None:
        while job := self._jobs.get():
            if job.work.stopped:
                job.work.close()
                continue
            _set(job.begun)
            self._stops[id(job)] = job.work.stop
            try:
                value = job.function(job.work)
            except BaseException as error:  # noqa: BLE001 - it is the asker's
                _set(job.done, error=error)
            else:
                _set(job.done, value=value)
            finally:
                del self._stops[id(job)]
                job.work.close()


async def _wait(future: Future[T], seconds: float, why_not: str) -> T:
    try:
        return await asyncio.wait_for(asyncio.wrap_future(future), seconds)
    except TimeoutError:
        raise Stopped(why_not) from None


def _set(done: Future[Any], value: Any = None, error: BaseException | None = None) -> None:
    """Set the result or the error, unless the future was cancelled."""
    if not done.set_running_or_notify_cancel():
        return
    if error is None:
        done.set_result(value)
    else:
        done.set_exception(error)
