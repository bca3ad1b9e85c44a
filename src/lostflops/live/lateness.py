"""Which rank enqueues last? Collectives of ranks on one host are compared, because one clock stamps them.

The lateness of a rank is the time from the first enqueue of a collective by a rank of its host to its own. It shows a
late host thread; what an accelerator does afterwards is not visible. Clocks of several hosts are not compared.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, deque
from dataclasses import dataclass, field
from statistics import median
from typing import Final

from lostflops.live.sessions import Attempt, LiveSession

WINDOW: Final = 20
"""Number of last steps from which a late rank is found."""
_MOST_OPEN: Final = 4000
_SMALLEST_SHARE: Final = 0.5
_FAIR_FACTOR: Final = 1.5
"""A rank is late if it is last in `_SMALLEST_SHARE` of its collectives and `_FAIR_FACTOR` times as often as by
chance."""
_FEWEST_STEPS: Final = 8
"""In fewer steps a rank may be last that often without being slow: collectives of one step are late together."""
_SMALLEST_LATENESS: Final = 0.01
"""Lateness below this share of a usual step delays no other rank."""


@dataclass(frozen=True, slots=True)
class Latecomer:
    """The rank that is last most often among those of its host."""

    rank: int
    lateness: int
    """Median over the collectives in which it was last, in ns; over a whole job, the mean over all its collectives."""
    last: int
    collectives: int

    @property
    def share(self) -> float:
        return self.last / self.collectives


@dataclass(slots=True, kw_only=True)
class _Tally:
    """Counts and lateness in some collectives, by rank."""

    shown: int = 0
    """Number of steps that were shown until then."""
    steps: int = 0
    """Number of steps that the collectives belong to."""
    met: Counter[int] = field(default_factory=Counter)
    last: Counter[int] = field(default_factory=Counter)
    chance: Counter[int] = field(default_factory=Counter)
    """How often a rank would be last if all ranks were alike, in thousandths."""
    behind: Counter[int] = field(default_factory=Counter)
    """Sum of a rank's lateness over all collectives, in ns."""
    lateness: dict[int, list[int]] = field(default_factory=dict)
    """A rank's lateness in each collective in which it was last, in ns."""

    def judge(self, met: dict[int, int]) -> None:
        first = min(met.values())
        last = max(met, key=met.__getitem__)
        self.last[last] += 1
        self.lateness.setdefault(last, []).append(met[last] - first)
        chance = 1000 // len(met)
        for rank, created in met.items():
            self.met[rank] += 1
            self.chance[rank] += chance
            self.behind[rank] += created - first

    def add(self, other: _Tally, sign: int) -> None:
        self.steps += sign * other.steps
        for name in ("met", "last", "chance", "behind"):
            mine, theirs = getattr(self, name), getattr(other, name)
            for rank, value in theirs.items():
                mine[rank] += sign * value


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
    whole: _Tally = field(default_factory=_Tally)
    """Counts over all steps so far; its `lateness` stays empty."""
    _meetings: dict[tuple[str, int], _LiveMeetings] = field(default_factory=dict)
    """Keyed by host and identity of the group's value in `heads`."""
    _met: list[tuple[int, dict[int, int]]] = field(default_factory=list)
    """Collectives that all ranks of a host have enqueued, by time of the last rank; those of shown steps are gone."""
    _steps: deque[_Tally] = field(default_factory=deque)
    _shown: int = 0
    _told: int = 0
    """Number of steps that were shown when collectives last arrived."""
    _window: _Tally = field(default_factory=_Tally)
    """The sum of `_steps`."""

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

    def end_step(self, stop: int) -> None:
        """Note that a step ended at `stop`, in ns: new collectives until then count with it.

        Collectors read their ring now and then, so most steps have no collectives, and some have those of many steps.
        What is older than the window is dropped when something newer arrives.
        """
        self._shown += 1
        count = bisect_right(self._met, stop, key=lambda pair: pair[0])
        if not count:
            return
        tally = _Tally(shown=self._shown, steps=self._shown - self._told)
        self._told = self._shown
        for _, met in self._met[:count]:
            tally.judge(met)
        del self._met[:count]
        self._steps.append(tally)
        self._window.add(tally, 1)
        self.whole.add(tally, 1)
        while self._steps[0].shown <= self._shown - WINDOW:
            self._window.add(self._steps.popleft(), -1)

    def latecomer(self, usual: float) -> Latecomer | None:
        """Return the rank that is late in the last steps; None if no rank is, or nothing could be compared.

        `usual` is the time of a step, in ns.
        """
        rank = _most_often_last(self._window)
        if rank is None:
            return None
        values = [value for tally in self._steps for value in tally.lateness.get(rank, ())]
        lateness = int(median(values))
        if lateness < _SMALLEST_LATENESS * usual:
            return None
        return Latecomer(rank, lateness, len(values), self._window.met[rank])

    def mean_lateness(self) -> dict[int, int]:
        """Return the mean lateness by rank over the last steps, in ns."""
        return {rank: self._window.behind[rank] // met for rank, met in self._window.met.items() if met}


def _most_often_last(tally: _Tally) -> int | None:
    found = [rank for rank, last in tally.last.items() if last > 0]
    if not found or tally.steps < _FEWEST_STEPS:
        return None
    rank = max(found, key=lambda rank: (tally.last[rank] / tally.met[rank], -rank))
    is_often = tally.last[rank] >= _SMALLEST_SHARE * tally.met[rank]
    return rank if is_often and 1000 * tally.last[rank] >= _FAIR_FACTOR * tally.chance[rank] else None


def overall(tally: _Tally) -> Latecomer | None:
    """Return the rank that is late over all steps, with its mean lateness over all collectives; None if no rank is."""
    rank = _most_often_last(tally)
    if rank is None:
        return None
    return Latecomer(rank, tally.behind[rank] // tally.met[rank], tally.last[rank], tally.met[rank])
