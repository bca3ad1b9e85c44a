"""State of a fleet's page: threads that ask the fleet, and their answers until a run is added."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Final

import duckdb

from lostflops.account.derive.derive import with_accounts
from lostflops.core.results import Result
from lostflops.fleet.answer import answer_fleet
from lostflops.fleet.choose import FleetScope, Judgements
from lostflops.fleet.place import Fleet, open_fleet, read_version
from lostflops.fleet.summarise import summary_of
from lostflops.show.serve.limits import ServeLimits
from lostflops.show.serve.opened_runs import OpenedRuns
from lostflops.show.serve.work import STOPPED, Stopped, Workers

if TYPE_CHECKING:
    from lostflops.fleet.summary import RunSummary
    from lostflops.store.places import Place
    from lostflops.store.run import Run

FleetView = Callable[[Fleet, Judgements], Result]
SECONDS: Final = 120.0
_LOOK_SECONDS: Final = 2.0
"""How long a fleet counts as unchanged without another look."""
_END_SECONDS: Final = 0.5
_MOST_KEPT: Final = 64
"""Answers that are kept; each is some 100 kB."""


class StoppableFleet(Fleet):
    """A fleet whose questions fail once it is stopped."""

    def __init__(self, fleet: Fleet, judged: Judgements) -> None:
        super().__init__(fleet.place, lambda _connection, _columns: None)
        self.notes = fleet.notes
        self.judged = judged
        self.stopped = False
        self._fleet = fleet
        self._connection: duckdb.DuckDBPyConnection | None = None

    @contextmanager
    def table(self, columns: Iterable[str] = ()) -> Iterator[duckdb.DuckDBPyConnection]:
        """Give a connection that ends with the question."""
        self._check()
        with self._fleet.table(columns) as connection:
            self._connection = connection
            try:
                self._check()
                yield connection
            finally:
                self._connection = None

    def stop(self) -> None:
        """Interrupt the query that runs now; later ones are refused."""
        self.stopped = True
        connection = self._connection
        if connection is not None:
            with suppress(duckdb.ConnectionException):  # it may have been closed meanwhile
                connection.interrupt()

    def close(self) -> None:
        """Release nothing: connections end with each question."""

    def _check(self) -> None:
        if self.stopped:
            raise Stopped(STOPPED)


class FleetPage:
    """A fleet that is served."""

    def __init__(self, place: str | Place, folders: Sequence[Path] = (), limits: ServeLimits | None = None) -> None:
        """Open a fleet; its runs may be opened in `folders`, and in the place itself."""
        self.place = place
        self.runs = OpenedRuns((Path(str(place)), *folders), limits)
        self._workers = Workers(2)
        self._fleet = open_fleet(place, _summarise)
        self._judged = Judgements()
        self._version = read_version(place)
        self._looked = time.monotonic()
        self._kept: dict[Hashable, asyncio.Task[Result]] = {}
        self._first = StoppableFleet(self._fleet, self._judged)
        self._judging = threading.Thread(target=self._judge, daemon=True)
        self._judging.start()

    def _judge(self) -> None:
        """Judge jobs and hosts before somebody asks: in a large fleet this takes most of the first answer."""
        with suppress(Exception):  # the first who asks sees what is wrong
            answer_fleet(self._first, FleetScope(), judged=self._judged)

    @property
    def identity(self) -> str:
        """Return a text that changes when a run is added; known since the last answer."""
        return sha256(self._version.encode()).hexdigest()[:16]

    async def answer(self, key: Hashable, view: FleetView) -> Result:
        """Return an answer that is computed once for all who ask; it goes on if one of them leaves."""
        await self._renew()
        task = self._kept.get(key)
        if task is None:
            while len(self._kept) >= _MOST_KEPT:
                del self._kept[next(iter(self._kept))]
            task = self._kept[key] = asyncio.create_task(self._ask(view))
            task.add_done_callback(lambda done: self._forget(key, done))
        return await asyncio.shield(task)

    async def look_up(self, question: Callable[[Fleet], str | None]) -> str | None:
        """Return the answer to a small question, which is not kept."""
        await self._renew()
        work = StoppableFleet(self._fleet, self._judged)
        return await self._workers.answer(work, question, SECONDS)

    async def _ask(self, view: FleetView) -> Result:
        work = StoppableFleet(self._fleet, self._judged)
        return await self._workers.answer(work, lambda fleet: view(fleet, fleet.judged), SECONDS)

    async def _renew(self) -> None:
        """Forget answers if the fleet has changed; look at most every few seconds."""
        if time.monotonic() - self._looked < _LOOK_SECONDS:
            return
        self._looked = time.monotonic()
        version = await asyncio.to_thread(read_version, self.place)
        if version != self._version:
            fleet = await asyncio.to_thread(open_fleet, self.place, _summarise)
            self._fleet, self._judged, self._version = fleet, Judgements(), version
            self._kept.clear()

    def _forget(self, key: Hashable, task: asyncio.Task[Result]) -> None:
        """Forget an answer that failed, so that it may be tried again."""
        if (task.cancelled() or task.exception()) and self._kept.get(key) is task:
            del self._kept[key]

    def close(self) -> bool:
        """Stop all work; return whether it ended."""
        self._first.stop()
        self._judging.join(_END_SECONDS)
        return self._workers.close() & self.runs.close() & (not self._judging.is_alive())


def _summarise(run: Run) -> RunSummary:
    accounted = with_accounts(run, None)
    try:
        return summary_of(accounted)
    finally:
        if accounted is not run:
            accounted.close()
