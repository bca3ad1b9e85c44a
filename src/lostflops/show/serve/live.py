"""State of a live page: the run, the threads and processes that query it, and their answers so far."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final, cast

from lostflops.core.errors import UsageError
from lostflops.core.pictures import Events
from lostflops.core.results import Page, Result
from lostflops.show.export.perfetto import write_perfetto
from lostflops.show.pages.comparison import comparison_page
from lostflops.show.serve.held_events import HeldEvents
from lostflops.show.serve.limits import ServeLimits
from lostflops.show.serve.question_processes import QuestionProcesses
from lostflops.show.serve.served_run import OpenedRun
from lostflops.show.serve.sql_question import WORK as SQL_WORK
from lostflops.show.serve.sql_question import SqlQuestion
from lostflops.show.serve.whatif_question import WORK as WHATIF_WORK
from lostflops.show.serve.whatif_question import WhatIfQuestion
from lostflops.show.serve.work import Workers
from lostflops.store.run import Run

SLOW_SECONDS: Final = 900.0
"""A question about a large run is answered once, and may take this long."""
QUICK_SECONDS: Final = 120.0
Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class EventWindow:
    """A part of the timeline, in ns from its beginning."""

    start: int
    stop: int
    most: int
    """Number of events that there is room for."""


class LivePage:
    def __init__(self, path: Path, other: Path | None = None, limits: ServeLimits | None = None) -> None:
        """Open a run, and the `other` run that it is compared with."""
        self._run = OpenedRun(path)
        self._other = None if other is None else OpenedRun(other)
        self._paths = path, other
        self._slow, self._quick = Workers(2), Workers(3)
        self._limits = limits or ServeLimits()
        # Not the same processes: a query that is killed would take the replay with it, which takes seconds to build.
        self._sql = QuestionProcesses(SQL_WORK, self._limits.sql_processes, self._limits.sql_seconds)
        self._whatif = QuestionProcesses(WHATIF_WORK, 1, self._limits.whatif_seconds)
        self._kept: dict[str, asyncio.Task[bytes]] = {}
        self._kept_of = self._identities
        self.progress: dict[str, tuple[int, int]] = {}
        """Number of ranks that each unfinished answer has read, and of all that it reads."""
        self._held, self._held_of = HeldEvents(), self._run.identity

    @property
    def title(self) -> str:
        names = [one.path.resolve().name for one in (self._run, self._other) if one is not None]
        return " and ".join(names)

    @property
    def has_other(self) -> bool:
        """Return whether there is a second run to compare with."""
        return self._other is not None

    @property
    def identity(self) -> str:
        """A text that changes when a run is written again."""
        self._run.refresh()
        if self._other is not None:
            self._other.refresh()
        return self._identities

    @property
    def _identities(self) -> str:
        return self._run.identity + (self._other.identity if self._other is not None else "")

    async def keep_answer(self, name: str, function: Callable[[Run, Progress], bytes]) -> bytes:
        """Return an answer that is computed once for all who ask; it goes on if one of them leaves."""

        def note(done: int, total: int) -> None:
            self.progress[name] = done, total

        def start() -> Coroutine[Any, Any, bytes]:
            return self._slow.answer(self._run.beside(), lambda run: function(run, note), SLOW_SECONDS)

        return await self._keep(name, start)

    async def keep_comparison(self, name: str, pack: Callable[[Page], bytes]) -> bytes:
        """Return the comparison with the other run, computed once for all who ask; both runs stop together."""
        path, other = self._paths
        opened = self._other
        if opened is None or other is None:
            raise UsageError("there is no second run: start lostflops serve with two runs")

        def start() -> Coroutine[Any, Any, bytes]:
            first, second = self._run.beside(), opened.beside()
            first.stop_too(second)

            def compare(_run: Run) -> bytes:
                runs = {path: first, other: second}
                with second:
                    return pack(
                        comparison_page(
                            [path], [other], anyway=True, open_run=lambda one: first.stop_too(runs[one].beside())
                        )
                    )

            return self._slow.answer(first, compare, SLOW_SECONDS)

        return await self._keep(name, start)

    async def _keep(self, name: str, start: Callable[[], Coroutine[Any, Any, bytes]]) -> bytes:
        """Return the kept answer of this name, else the one that `start` begins to compute."""
        if self._kept_of != self.identity:
            self._kept.clear()
            self._kept_of = self._identities
        task = self._kept.get(name)
        if task is None:
            task = self._kept[name] = asyncio.create_task(start())
            task.add_done_callback(lambda done: self._forget(name, done))
        return await asyncio.shield(task)

    def _forget(self, name: str, task: asyncio.Task[bytes]) -> None:
        """Forget an answer that failed, so that it may be tried again, and how far it came."""
        self.progress.pop(name, None)
        if (task.cancelled() or task.exception()) and self._kept.get(name) is task:
            del self._kept[name]

    async def events(self, ranks: Sequence[int], asked: EventWindow, packed: Callable[[Events], bytes]) -> bytes:
        run = self._run.beside()
        if self._held_of != self._run.identity:
            self._held, self._held_of = HeldEvents(), self._run.identity
        held = self._held
        return await self._quick.answer(
            run, lambda own: packed(held.within(own, ranks, asked.start, asked.stop, asked.most)), QUICK_SECONDS
        )

    async def selection(self, selected: Callable[[Run], Result], packed: Callable[[Result], bytes]) -> bytes:
        """Return the totals of a part of the timeline."""
        return await self._quick.answer(
            self._run.beside(),
            lambda run: packed(selected(run)),
            QUICK_SECONDS,
        )

    async def sql(self, query: str) -> bytes:
        run, most = str(self._run.path), self._limits.sql_bytes
        return await self._sql.answer(SqlQuestion(run=run, most_bytes=most, query=query))

    async def try_changes(self, changes: Sequence[tuple[str, str]]) -> bytes:
        run, most = str(self._run.path), self._limits.whatif_bytes
        return await self._whatif.answer(WhatIfQuestion(run=run, most_bytes=most, changes=tuple(changes)))

    async def write_trace(self, file: Path) -> None:
        """Write the whole run as a Perfetto trace."""

        def write(run: Run) -> None:
            with gzip.open(file, "wb", compresslevel=1) as stream:
                write_perfetto(run, cast("BinaryIO", stream))

        await self._slow.answer(self._run.beside(), write, SLOW_SECONDS)

    def close(self) -> bool:
        """Stop all work; return whether it ended."""
        return self._slow.close() & self._quick.close() & self._sql.close() & self._whatif.close()
