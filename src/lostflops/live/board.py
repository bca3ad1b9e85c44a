"""State of a running job: it takes frames of all ranks, and returns lines about its steps and notices.

A step is shown when every rank of the attempt has reported it or a later one, or when the first report has waited long
enough: then the line names the ranks that are missing, which are not waited for again until they report.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from lostflops.account.facts.changes import ChangeFinder, ComparedStep, JobChange
from lostflops.collect.capture import Frame
from lostflops.live.lateness import LiveLateness
from lostflops.live.notices import (
    Notice,
    all_ended,
    attempt_begins,
    less_is_recorded,
    ranks_are_back,
    ranks_are_silent,
    report_change,
    report_stall,
)
from lostflops.live.sessions import UNREADABLE, Attempt, LiveSession, LiveStep, join
from lostflops.live.tally import Totals

if TYPE_CHECKING:
    from lostflops.account.late.judge import Lateness

WAIT: Final = 10.0
"""Seconds that a step waits for ranks that have not reported it."""
_SETTLED: Final = 3.0
_SETTLED_FACTOR: Final = 2
"""A stalled job has enqueued all it will after both times since its last step: in seconds, and in usual steps."""
_STALL_FACTOR: Final = 5
"""A job is stalled if no step ended for the time of this many usual steps, and for longer than `WAIT`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepLine:
    """One step of all ranks."""

    attempt: int
    step: int
    time: int
    """Step time of the slowest rank, in ns."""
    median: int
    slowest: int
    """The rank whose step took longest."""
    data_share: float | None
    """Share of step time spent waiting for data; None unless every rank that reported the step recorded it."""
    samples: int | None
    """Sum over ranks; None unless every rank reported its part."""
    tokens: int | None
    """Sum over ranks; None unless every rank reported its part."""
    longest_wait: int | None
    """Time that the rank which waited longest for data waited, in ns; None if `data_share` is."""
    starved: tuple[int, int] | None
    """That rank, and how much longer it waited than any other, in ns; None with one rank, too."""
    peak_memory: int | None
    ranks: int
    missing: tuple[int, ...]
    latecomer: Lateness | None
    """The rank that is late, the latest of several."""
    marks: tuple[str, ...]

    def rate(self, count: int | None) -> float | None:
        """Return a count of the step per second; None if it is unknown."""
        return count * 1e9 / self.time if count is not None and self.time > 0 else None


@dataclass(slots=True, kw_only=True)
class Board:
    wait: float = WAIT
    attempts: list[Attempt] = field(default_factory=list)
    totals: Totals = field(default_factory=Totals)
    homeless: int = 0
    """Records of sessions whose first record was not found."""
    unreadable: int = 0
    """Records that lack a field which their kind must have."""
    heard: float | None = None
    """When any record last arrived, by the watcher's clock in seconds."""
    newest: StepLine | None = None
    latest: dict[int, tuple[int, LiveStep]] = field(default_factory=dict)
    """The last step of each rank of the current attempt."""
    changes: list[JobChange] = field(default_factory=list)
    """Changes for the worse in the current attempt."""
    anomalies: Counter[str] = field(default_factory=Counter)
    """Changes and stalls of all attempts, by kind."""
    _finder: ChangeFinder = field(default_factory=ChangeFinder)
    _sessions: dict[str, LiveSession] = field(default_factory=dict)
    _new: list[LiveSession] = field(default_factory=list)
    _lateness: LiveLateness = field(default_factory=LiveLateness)
    _blamed: tuple[int, ...] | None = None
    """Ranks that were reported to block a stalled job; None while the job moves."""
    _levels: dict[int, int] = field(default_factory=dict)

    @property
    def current(self) -> Attempt | None:
        return self.attempts[-1] if self.attempts else None

    @property
    def lateness(self) -> LiveLateness:
        """Lateness of ranks in the current attempt."""
        return self._lateness

    @property
    def sessions(self) -> Iterable[LiveSession]:
        return self._sessions.values()

    @property
    def blocking_ranks(self) -> tuple[int, ...] | None:
        """Ranks that the others of a stalled job wait for, empty if unknown; None if the job is not stalled."""
        return None if self.is_ended else self._blamed

    @property
    def is_ended(self) -> bool:
        """Whether every process of the current attempt has reported its end."""
        return self.current is not None and self.current.is_ended

    def take(self, frames: Iterable[Frame], now: float) -> int:
        """Store the frames that arrived, and return their number."""
        count = 0
        for frame in frames:
            count += 1
            for record in frame.records:
                try:
                    self._file(frame.session, record, now)
                except UNREADABLE:
                    self.unreadable += 1
            if (session := self._sessions.get(frame.session)) is not None:
                session.heard, session.dropped = now, max(session.dropped, frame.dropped)
        if count:
            self.heard = now
        return count

    def _file(self, name: str, record: dict[str, Any], now: float) -> None:
        session = self._sessions.get(name)
        if session is not None:
            session.take(record, now)
        elif record.get("kind") == "session":
            self._sessions[name] = LiveSession.of(record)
            self._new.append(self._sessions[name])
        else:
            self.homeless += 1

    def settle(self, now: float) -> Iterator[StepLine | Notice]:
        """Yield the lines and notices that are ready now, in the order of the job."""
        known = len(self.attempts)
        join(self.attempts, self._new)
        self._new.clear()
        for attempt in self.attempts[max(known - 1, 0) :]:
            if attempt.number >= known:
                self._lateness, self._finder = LiveLateness(), ChangeFinder()
                self.changes.clear()
                self.latest.clear()
                self._levels.clear()
                self._blamed = None
                attempt.begun = now
            yield from self._settle_attempt(attempt, now)
        if self.current:
            yield from self._stall(self.current, now)

    def _settle_attempt(self, attempt: Attempt, now: float) -> Iterator[StepLine | Notice]:
        is_over = attempt is not self.attempts[-1] or attempt.is_ended
        if not attempt.is_announced and (is_over or attempt.is_whole or now - attempt.begun >= self.wait):
            attempt.is_announced = True
            yield attempt_begins(attempt)
        if levels := less_is_recorded(attempt, self._levels):
            yield levels
        self._collect(attempt, now)
        self._lateness.take(attempt)
        heard = attempt.silent & attempt.sessions.keys()
        if back := {rank for rank in heard if attempt.sessions[rank].last_step > attempt.shown}:
            attempt.silent -= back
            yield ranks_are_back(attempt, back)
        yield from self._lines(attempt, now, is_over)
        if attempt.is_ended and not attempt.is_end_told:
            attempt.is_end_told = True
            yield all_ended(attempt)

    def _collect(self, attempt: Attempt, now: float) -> None:
        """Move the steps that sessions reported to the attempt's pending steps."""
        for rank, session in attempt.sessions.items():
            for number, step in session.steps.items():
                attempt.progress = now
                self.latest[rank] = (number, step)
                if number > attempt.shown:
                    attempt.pending.setdefault(number, {})[rank] = step
                    attempt.first_heard.setdefault(number, now)
            session.steps.clear()

    def _lines(self, attempt: Attempt, now: float, is_over: bool) -> Iterator[StepLine | Notice]:
        for number in sorted(attempt.pending):
            late = [] if is_over else _list_awaited_ranks(attempt, number)
            if late and now - attempt.first_heard[number] < self.wait:
                return
            if late:
                attempt.silent.update(late)
                yield ranks_are_silent(attempt, late, now)
            del attempt.first_heard[number]
            attempt.shown = number
            steps = attempt.pending.pop(number)
            self._lateness.end_step(number, steps)
            self.newest = self._line(attempt, number, steps)
            self.totals.add(self.newest)
            yield self.newest
            if notice := self._compare(self.newest):
                yield notice

    def _compare(self, line: StepLine) -> Notice | None:
        """Return a notice if the step completes a change for the worse."""
        if line.missing or line.marks:
            return None
        late = line.latecomer
        change = self._finder.take(
            ComparedStep(
                step=line.step,
                time=line.time,
                data=line.longest_wait,
                starved=line.starved,
                memory=line.peak_memory,
                work=line.tokens or line.samples,
                late=(late.rank, round(late.ns)) if late else None,
            )
        )
        if change is None:
            return None
        self.changes.append(change)
        self.anomalies[change.kind] += 1
        return report_change(line.attempt, change)

    def _line(self, attempt: Attempt, number: int, steps: dict[int, LiveStep]) -> StepLine:
        times = {rank: step.time for rank, step in steps.items()}
        slowest = max(times, key=times.__getitem__)
        is_all = len(steps) == attempt.world_size
        judged = self._lateness.judge(self.totals.recent_median())
        late = judged.late if judged is not None else ()
        memory = [step.peak_memory for step in steps.values() if step.peak_memory is not None]
        return StepLine(
            attempt=attempt.number,
            step=number,
            time=times[slowest],
            median=int(median(times.values())),
            slowest=slowest,
            data_share=_data_share(list(steps.values())),
            samples=_sum([step.samples for step in steps.values()]) if is_all else None,
            tokens=_sum([step.tokens for step in steps.values()]) if is_all else None,
            longest_wait=_longest_wait(list(steps.values())),
            starved=_starved(steps),
            peak_memory=max(memory, default=None),
            ranks=len(steps),
            missing=() if is_all else tuple(rank for rank in range(attempt.world_size) if rank not in steps),
            latecomer=late[0] if late else None,
            marks=tuple(sorted({mark for step in steps.values() for mark in step.marks})),
        )

    def _stall(self, attempt: Attempt, now: float) -> Iterator[Notice]:
        """Yield a notice once until steps end again, and again when collectives show which rank blocks the job."""
        is_alive = any(not one.is_done and rank not in attempt.silent for rank, one in attempt.sessions.items())
        if attempt.progress is None or not is_alive:
            return
        quiet = now - attempt.progress
        usual = self.totals.recent_median() / 1e9
        if quiet <= max(self.wait, _STALL_FACTOR * usual):
            self._blamed = None
            return
        settled = attempt.progress + max(_SETTLED, _SETTLED_FACTOR * usual)
        notice = report_stall(attempt, quiet, self._lateness.heads if _are_read_since(attempt, settled) else {})
        if self._blamed is None:
            self.anomalies["stall"] += 1
        if self._blamed is None or (notice.ranks and not self._blamed):
            self._blamed = notice.ranks
            yield notice

    def find_unfinished_step(self) -> tuple[int, tuple[int, ...]] | None:
        """Return the first step that only some ranks have reported, and the ranks it waits for; None if all have."""
        if self.current is None or not self.current.pending:
            return None
        number = min(self.current.pending)
        return number, tuple(_list_awaited_ranks(self.current, number))


def _list_awaited_ranks(attempt: Attempt, step: int) -> list[int]:
    """Return the ranks that may still report the step: a rank that reported a later step, ended, records
    nothing or is silent will not.
    """
    awaited = []
    for rank in range(attempt.world_size):
        session = attempt.sessions.get(rank)
        is_done = session is not None and (session.last_step >= step or session.is_done)
        if not is_done and rank not in attempt.silent:
            awaited.append(rank)
    return awaited


def _are_read_since(attempt: Attempt, settled: float) -> bool:
    """Return whether every ring was read after the job had come to rest, so that positions of ranks can be compared.

    In a job that moves, rings that were read at different moments always differ.
    """
    return attempt.is_whole and all(session.ring_heard >= settled for session in attempt.sessions.values())


def _data_share(steps: list[LiveStep]) -> float | None:
    waited = _sum([step.data for step in steps])
    return None if waited is None else waited / (sum(step.time for step in steps) or 1)


def _longest_wait(steps: list[LiveStep]) -> int | None:
    waits = [step.data for step in steps if step.data is not None]
    return max(waits) if len(waits) == len(steps) else None


def _starved(steps: dict[int, LiveStep]) -> tuple[int, int] | None:
    waits = sorted((step.data, rank) for rank, step in steps.items() if step.data is not None)
    if len(waits) < len(steps) or len(waits) < 2:
        return None
    longest, rank = waits[-1]
    return rank, longest - waits[-2][0]


def _sum(values: list[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if values and len(known) == len(values) else None
