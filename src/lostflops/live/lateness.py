"""When ranks enqueue their collectives while a job runs. Feeds the judge of late ranks.

The lateness of a rank in a step is the longest time from the first enqueue of a collective by a rank of its host to its
own: one clock stamps both. It shows a late host thread; what an accelerator does afterwards is not visible. Clocks of
several hosts are not compared.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from lostflops.live.sessions import Attempt, LiveSession, LiveStep

if TYPE_CHECKING:
    from lostflops.account.late.judge import LateVerdict

WINDOW: Final = 20
"""Number of last steps whose mean is exported."""
MOST_STEPS: Final = 512
"""Number of last steps that are judged."""
_FEWEST: Final = 8
"""Fewest steps that are judged, as of a recorded job."""
_NEWS: Final = 16
"""Ranks are judged again when a part of the steps like this one is new."""
_MOST_OPEN: Final = 4000
_LEFT_OUT: Final = ("compiled", "profiled")


@dataclass(slots=True)
class _LiveMeetings:
    """Collectives of one group on one host that some of its ranks there have not enqueued yet."""

    needed: int = 0
    open: dict[int, dict[int, int]] = field(default_factory=dict)
    """When each rank enqueued a collective, by number of the collective."""

    def forget(self) -> None:
        """Forget the oldest if there are too many: some rank does not enqueue them any more."""
        while len(self.open) > _MOST_OPEN:
            del self.open[next(iter(self.open))]


@dataclass(slots=True, kw_only=True)
class LiveLateness:
    """Lateness in one attempt, whose collectives are matched as they are reported."""

    heads: dict[tuple[str, tuple[int, ...]], dict[int, tuple[int, str]]] = field(default_factory=dict)
    """Number and name of the last collective that each rank enqueued, by group."""
    _meetings: dict[tuple[str, int], _LiveMeetings] = field(default_factory=dict)
    """Keyed by host and identity of the group's value in `heads`."""
    _met: list[tuple[int, dict[int, int]]] = field(default_factory=list)
    """Collectives that all ranks of a host have enqueued, by time of the last rank; those of shown steps are gone."""
    _began: dict[int, list[tuple[int, int, int]]] = field(default_factory=dict)
    """Start, stop and number of the last normal steps of each rank."""
    _late: dict[int, dict[int, int]] = field(default_factory=dict)
    """Lateness by step and rank, in ns."""
    _peers: dict[int, tuple[str, int]] = field(default_factory=dict)
    """Host and pipeline stage of each rank: ranks with the same ones are compared."""
    _first: int | None = None
    """The first step of the attempt, which is never normal."""
    _has_forward: bool = False
    """Whether a forward pass was timed: steps before the first one are not normal."""
    _judged: int = 0
    """Number of steps that were known when ranks were last judged."""
    _known: int = 0
    _verdict: LateVerdict | None = None

    def take(self, attempt: Attempt) -> None:
        """Take the collectives that the attempt's sessions enqueued since the last look, and remove them there."""
        meetings: dict[tuple[str, int], _LiveMeetings] = {}
        for session in attempt.sessions.values():
            if session.enqueues:
                self._take_session(session, attempt, meetings)
                session.enqueues.clear()
        self._met.sort(key=lambda pair: pair[0])

    def _take_session(
        self, session: LiveSession, attempt: Attempt, meetings: dict[tuple[str, int], _LiveMeetings]
    ) -> None:
        groups: dict[str, tuple[_LiveMeetings, dict[int, tuple[int, str]]]] = {}
        rank = session.rank
        self._peers[rank] = session.host, session.stage
        for group, seq, op, created in session.enqueues:
            if group not in groups:
                groups[group] = self._group(session, group, attempt, meetings)
            here, heads = groups[group]
            heads[rank] = (seq, op)
            if here.needed < 2:
                continue
            met = here.open.setdefault(seq, {})
            met[rank] = created
            if len(met) == here.needed:
                self._met.append((max(met.values()), here.open.pop(seq)))

    def _group(
        self, session: LiveSession, group: str, attempt: Attempt, meetings: dict[tuple[str, int], _LiveMeetings]
    ) -> tuple[_LiveMeetings, dict[int, tuple[int, str]]]:
        """Return the meetings of a group on the session's host, and the heads of the group.

        Members are compared once per look, not once per rank: there are as many members as ranks.
        """
        members = session.groups.get(group, ())
        heads = self.heads.setdefault((group, members), {})
        key = (session.host, id(heads))
        if key not in meetings:
            here = meetings[key] = self._meetings.setdefault(key, _LiveMeetings())
            here.needed = len(attempt.on_host(session.host).intersection(members))
            here.forget()
        return meetings[key], heads

    def end_step(self, number: int, steps: Mapping[int, LiveStep]) -> None:
        """Note that all ranks reported a step; collectives until its end are counted with the step of each rank."""
        self._first = number if self._first is None else self._first
        if not self._has_forward and all(step.has_forward for step in steps.values()):
            self._has_forward = True
            self._began.clear()
            self._late.clear()
        if number > self._first and not any(mark in step.marks for step in steps.values() for mark in _LEFT_OUT):
            for rank, step in steps.items():
                began = self._began.setdefault(rank, [])
                began.append((step.stop - step.time, step.stop, number))
                del began[:-MOST_STEPS]
        stop = max(step.stop for step in steps.values())
        count = bisect_right(self._met, stop, key=lambda pair: pair[0])
        for _, met in self._met[:count]:
            first = min(met.values())
            for rank, created in met.items():
                self._count(rank, created, created - first)
        del self._met[:count]
        while len(self._late) > MOST_STEPS:
            del self._late[next(iter(self._late))]

    def _count(self, rank: int, created: int, late: int) -> None:
        began = self._began.get(rank, [])
        at = bisect_right(began, created, key=lambda step: step[0]) - 1
        if at >= 0 and created < began[at][1]:
            number = began[at][2]
            self._known += number not in self._late
            ranks = self._late.setdefault(number, {})
            ranks[rank] = max(ranks.get(rank, 0), late)

    def judge(self, usual: float, *, again: bool = False) -> LateVerdict | None:
        """Return the verdict on the last steps; None if too few show two ranks of a host. `usual` is the time of a step
        in ns. It is as old as some steps, unless it has to be found `again`."""
        if len(self._late) < _FEWEST or usual <= 0:
            return None
        if again or self._verdict is None or (self._known - self._judged) * _NEWS >= len(self._late):
            self._verdict, self._judged = self._judge(usual), self._known
        return self._verdict

    def _judge(self, usual: float) -> LateVerdict:
        import numpy as np  # noqa: PLC0415 - `watch` starts without it

        from lostflops.account.late.judge import judge  # noqa: PLC0415

        ranks, steps = sorted(self._peers), sorted(self._late)
        times = np.array([[self._late[step].get(rank, np.nan) for step in steps] for rank in ranks], np.float64)
        places = sorted(set(self._peers.values()))
        return judge(times, ranks, steps, usual, [places.index(self._peers[rank]) for rank in ranks])

    def mean_lateness(self) -> dict[int, int]:
        """Return the mean lateness by rank over the last steps, in ns."""
        newest = [self._late[step] for step in sorted(self._late)[-WINDOW:]]
        values = {rank: [late[rank] for late in newest if rank in late] for rank in self._peers}
        return {rank: sum(known) // len(known) for rank, known in values.items() if known}
