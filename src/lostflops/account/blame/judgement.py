"""Verdict on the ranks of a run: their profiles are read and compared, and slow ranks are named."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import numpy as np

from lostflops.account.align.mesh import Mesh
from lostflops.account.blame.comparison import Comparison, compare
from lostflops.account.blame.stragglers import LastArrivals, SlowRank, find
from lostflops.account.ledger.answers import ledgers, profiles_of
from lostflops.account.ledger.profile import StepProfile
from lostflops.account.ledger.scope import Scope
from lostflops.account.ledger.windows import WindowKind

if TYPE_CHECKING:
    from lostflops.account.blame.habits import Habit
    from lostflops.store.run import Run

MOST_RANKS: Final = 512
"""Up to this many ranks, all are compared; of more, those that waited least and a sample of their cohorts."""
_OTHERS: Final = 3
"""Number of ranks of the cohort that a named rank is compared with in detail."""

_DARK: Final = "select distinct rank from arrivals where event is null"
_LAST: Final = """
    select rank, count(*) filter (late_rank = rank), count(*), avg(1.0 / seen) from arrivals
    where not is_transfer and late_rank is not null and event is not null {steps} group by rank"""
_SLOWER: Final = """
    with lengths as (
        select name, sum(dur) filter (rank != {rank}) as weight,
               quantile_cont(dur, [0.1, 0.9]) filter (rank = {rank}) as ours,
               quantile_cont(dur, [0.1, 0.9]) filter (rank != {rank}) as theirs
        from events where kind = 'kernel' and dur > 0 and rank in ({rank}, {others}) {steps} group by name
    )
    select sum(weight * (least(ours[1] / theirs[1], ours[2] / theirs[2]) - 1)) / sum(weight) from lengths
    where ours is not null and theirs is not null"""
_WAITS: Final = "select rank, avg(wait) from arrivals where event is not null {steps} group by rank"


@dataclass(frozen=True, slots=True)
class Judgement:
    """Verdict on the ranks of a run."""

    profiles: tuple[StepProfile, ...]
    """Profiles of the ranks that were compared, which may be a part of the run."""
    comparison: Comparison
    """Comparison of the same ranks."""
    stragglers: tuple[SlowRank, ...]
    last: Mapping[int, LastArrivals]

    @property
    def late(self) -> tuple[SlowRank, ...]:
        """Return the ranks that are late, most waited for first; the other stragglers may be slow by chance."""
        return tuple(one for one in self.stragglers if one.confidence)


def judge(
    run: Run,
    asked: Scope,
    mesh: Mesh,
    progress: Callable[[int, int], None] | None = None,
    habits: Mapping[int, Habit] = MappingProxyType({}),
) -> Judgement:
    """Judge ranks by the window and by their `habits` in all timed steps (`pace.lateness.find_habits`)."""
    some = replace(asked, ranks=choose_ranks(run, asked, mesh))
    return judge_profiles(run, asked, mesh, tuple(profiles_of(run, some, progress)), habits)


def judge_profiles(
    run: Run,
    asked: Scope,
    mesh: Mesh,
    found: Sequence[StepProfile],
    habits: Mapping[int, Habit] = MappingProxyType({}),
) -> Judgement:
    """Judge ranks by profiles that are already there."""
    comparison, _ = compare_ranks(run, mesh, found)
    cohorts = _cohorts(mesh, found)
    last = {row[0]: LastArrivals(*row[1:]) for row in run.rows(_LAST.format(steps=within(asked)))}
    evidence = _Evidence(run, asked, cohorts)
    return Judgement(tuple(found), comparison, tuple(find(comparison, found, last, evidence, habits)), last)


def compare_ranks(run: Run, mesh: Mesh, found: Sequence[StepProfile]) -> tuple[Comparison, frozenset[int]]:
    """Compare ranks with those that do the same work; return also which ranks miss records of collectives."""
    dark = frozenset(rank for (rank,) in run.rows(_DARK))
    return compare(found, _cohorts(mesh, found), dark), dark


def _cohorts(mesh: Mesh, found: Sequence[StepProfile]) -> dict[int, list[int]]:
    cohorts = mesh.cohorts(sorted({one.rank for one in found}))
    return {rank: list(peers) for rank, peers in cohorts.items()}


def within(asked: Scope) -> str:
    """Return the condition for rows of `arrivals` or `events` in the window; all rows if no row has a step."""
    if asked.steps:
        return f"and step in ({', '.join(map(str, asked.steps))})"
    if asked.kind is WindowKind.TRACE:
        return ""
    return "and (step is not null or not exists (from arrivals where step is not null))"


def choose_ranks(run: Run, asked: Scope, mesh: Mesh, most: int = MOST_RANKS) -> tuple[int, ...]:
    """Return all ranks if there are at most `most`; else those that waited least and a sample of their cohorts."""
    if len(asked.ranks) <= most:
        return asked.ranks
    waits = dict(run.rows(_WAITS.format(steps=within(asked))))
    cohorts: dict[tuple[int, ...], list[int]] = {}
    seen: set[int] = set()
    for rank in asked.ranks:
        if rank not in seen:
            members = mesh.cohort(rank, asked.ranks)
            seen.update(members)
            cohorts[members] = sorted(members, key=lambda one: waits.get(one) or 0.0)
    room = max(most // max(len(cohorts), 1), 4)
    return tuple(sorted({rank for ordered in cohorts.values() for rank in _some(ordered, room)}))


def _some(ordered: Sequence[int], room: int) -> list[int]:
    """Return those that waited least, and others evenly."""
    first, rest = list(ordered[: room // 2]), ordered[room // 2 :]
    places = np.linspace(0, len(rest) - 1, min(room - room // 2, len(rest))).astype(int)
    return first + [rest[place] for place in np.unique(places).tolist()]


class _Evidence:
    def __init__(self, run: Run, asked: Scope, cohorts: Mapping[int, Sequence[int]]) -> None:
        self._run, self._asked, self._cohorts = run, asked, cohorts

    def _others(self, rank: int) -> list[int]:
        return [one for one in self._cohorts[rank] if one != rank][:_OTHERS]

    def more_flops(self, rank: int) -> float:
        others = self._others(rank)
        work = {
            ledger.rank: ledger.work.launched_flops
            for ledger in ledgers(self._run, replace(self._asked, ranks=(rank, *others)))
        }
        usual = float(np.median([work.get(one, 0) for one in others])) if others else 0.0
        return work.get(rank, 0) / usual - 1 if usual else 0.0

    def slower_kernels(self, rank: int) -> float:
        others = self._others(rank)
        if not others:
            return 0.0
        query = _SLOWER.format(rank=rank, others=", ".join(map(str, others)), steps=within(self._asked))
        return float(self._run.rows(query)[0][0] or 0.0)
