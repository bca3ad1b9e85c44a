"""Which ranks of a run are late, what makes them late, and who waits for them?

Steps that the collector timed decide, if there are at least as many as profiled ones: a few profiled steps on a shared
machine can make any rank look slow, and show only on which line of the ledger a late rank loses its time. Three things
are known better by the profiled steps: a rank that does more work need not come last to its collectives; a rank that
is starved of data every few steps is hardly ever last, so its waits in the timed steps nearest to the window count; and
a rank that is late only because another held it up has no extra time of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

import numpy as np

from lostflops.account.align.mesh import Mesh
from lostflops.account.late.arrivals import within
from lostflops.account.late.charges import charges
from lostflops.account.late.comparison import OWN_LINES, Comparison, compare
from lostflops.account.late.judge import Lateness, LateVerdict, judge
from lostflops.account.late.timed import NOT_TIMED, TimedLateness, judge_timed_steps
from lostflops.account.ledger.answers import ledgers, profiles_of
from lostflops.account.ledger.lines import COMM_LINES, LINES
from lostflops.account.ledger.profile import StepProfile
from lostflops.account.ledger.scope import Scope

if TYPE_CHECKING:
    from lostflops.store.run import Run

MOST_RANKS: Final = 512
"""Up to this many ranks, all are compared; of more, those that waited least and a sample of their cohorts."""
_OTHERS: Final = 3
"""Number of ranks of the cohort that a named rank is compared with in detail."""
_TALKING: Final = [LINES.index(line) for line in COMM_LINES]
_HALF: Final = 0.5
_SOME: Final = 0.25
_WAITED_FOR: Final = 0.01
"""Share of its own wall time that others must have waited for it."""
_FEWEST_WHOLE: Final = 2
"""Fewest steps that must be left if the last step of a device is left out: fewer show nothing."""
_OWN: Final = 0.25
"""Part of its lateness that a rank must lose itself, if another late rank does: else it was held up."""

CAUSES: Final = {
    "idle.data": "late_data",
    "idle.alloc": "allocation",
    "idle.host": "host_stall",
    "idle.python": "host_stall",
    "idle.sync": "host_stall",
    "idle.compile": "host_stall",
    "idle.dependency": "device_queue",
    "copy": "copies",
}
"""Cause by line of a late rank; `compute` is `more_work` or `slow_kernels`."""

_DARK: Final = "select distinct rank from arrivals where event is null"
_ON_DEVICE: Final = "select count(*) from steps where device_start >= 0"
_LAST: Final = """
    select rank, count(*) filter (late_rank = rank), count(*) from arrivals
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


class LastArrivals(NamedTuple):
    """How often a rank was the last to arrive at its collectives."""

    times: int
    of: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowRank:
    """A rank that is late, or that may be."""

    late: Lateness
    """How late it is and how sure that is, by the steps that decide: every screen shows these figures."""
    is_timed: bool = False
    """Whether timed steps decided; if not, profiled ones did."""
    charged: int
    """Time that other ranks waited for it in the profiled steps, in ns."""
    line: str
    cause: str
    line_excess: int
    """Extra time on its line in all profiled steps, in ns."""
    excess: int
    """Own time above that of its peers, in ns per profiled step."""
    profiled: int
    """Number of profiled steps."""
    last: LastArrivals
    in_steps: bool = True
    """Whether the window has steps; if not, all that was recorded counts as one."""
    waits_for_data: float = 0.0
    """How much longer than its peers it waits for data in the timed steps next to the newest window, as a part of the
    step; 0 if that may be chance."""

    @property
    def rank(self) -> int:
        return self.late.rank

    @property
    def kind(self) -> str:
        return "persistent" if self.late.late_steps >= _HALF * self.late.steps else "transient"

    @property
    def is_late(self) -> bool:
        """Whether it is late for certain; if not, it is suspected."""
        return self.late.is_late


@dataclass(frozen=True, slots=True)
class Judgement:
    """LateVerdict on the ranks of a run."""

    profiles: tuple[StepProfile, ...]
    """Profiles of the ranks that were compared, which may be a part of the run."""
    comparison: Comparison
    """Comparison of the same ranks."""
    stragglers: tuple[SlowRank, ...]
    """Ranks that are late, then those that are suspected, the one with the longest waits first."""
    last: Mapping[int, LastArrivals]
    verdict: LateVerdict
    """What the steps that decide say about every rank."""

    @property
    def late(self) -> tuple[SlowRank, ...]:
        return tuple(one for one in self.stragglers if one.is_late)


class RankEvidence(Protocol):
    """Facts that are looked up only for the ranks that are named."""

    def more_flops(self, rank: int) -> float:
        """Return the share by which the rank did more FLOPs than others of its cohort; 0 if unknown."""

    def slower_kernels(self, rank: int) -> float:
        """Return the share by which kernels of the same name take longer on it, short and long ones alike."""


def judge_ranks(
    run: Run,
    asked: Scope,
    mesh: Mesh,
    progress: Callable[[int, int], None] | None = None,
    *,
    profiles: Sequence[StepProfile] | None = None,
) -> Judgement:
    """Judge the ranks of a run by all timed steps and by the window; `profiles` are read if they are not given."""
    if profiles is None:
        some = replace(asked, ranks=choose_ranks(run, asked, mesh))
        profiles = tuple(profiles_of(run, some, progress))
    comparison, _ = compare_ranks(run, mesh, profiles)
    last = {row[0]: LastArrivals(*row[1:]) for row in run.rows(_LAST.format(steps=within(asked)))}
    timed = judge_timed_steps(run, mesh)
    evidence = _Evidence(run, asked, cohorts_of(mesh, [one.rank for one in profiles]))
    found, verdict = find(comparison, profiles, last, evidence, NOT_TIMED if timed.accelerated else timed)
    return Judgement(tuple(profiles), comparison, tuple(found), last, verdict)


def find(
    comparison: Comparison,
    profiles: Sequence[StepProfile],
    last: Mapping[int, LastArrivals],
    evidence: RankEvidence,
    timed: TimedLateness = NOT_TIMED,
) -> tuple[list[SlowRank], LateVerdict]:
    """Return the ranks that are late or suspected, and the verdict of the steps that decide.

    If timed steps only suspect a rank, the profiled ones must too: else they show neither why nor what to change.
    """
    if not comparison.ranks.size:
        return [], timed.verdict
    window = judge_window(comparison)
    steps = int(comparison.counts.max(initial=0)) if in_steps(comparison) else 0
    is_timed = timed.steps >= steps and not _is_too_coarse(timed.verdict, window)
    verdict = timed.verdict if is_timed else window
    figures = {one.rank: one for one in (*verdict.suspected, *verdict.late)}
    if is_timed:
        seen = {one.rank for one in (*window.suspected, *window.late)}
        figures = {rank: one for rank, one in figures.items() if one.is_late or rank in seen}
        figures |= {one.rank: one for one in window.late if _shows_more(comparison, one, timed, evidence)}
    figures = {rank: one for rank, one in figures.items() if rank in comparison.ranks}
    named = [rank for rank in sorted(figures) if _works_with_others(profiles, rank)]
    named = [rank for rank in named if not _is_held_up(comparison, rank, [figures[one] for one in named])]
    due, told = charges(profiles, comparison, named), any(one.waited for one in profiles)
    kept = [
        rank
        for rank in named
        if is_timed or not told or due[(at := comparison.place(rank))] >= _WAITED_FOR * comparison.wall[at] * steps
    ]
    # A rank that is not kept passes on what it inherited.
    due = charges(profiles, comparison, kept)
    found = [
        _slow_rank(comparison, figures[rank], due, last, evidence, timed if is_timed else NOT_TIMED) for rank in kept
    ]
    return sorted(found, key=lambda one: (not one.is_late, -one.charged, -one.late.ns)), verdict


def _is_too_coarse(timed: LateVerdict, window: LateVerdict) -> bool:
    """Return whether no number of timed steps shows what the profiled ones do: clocks of several hosts are not exact,
    and a step is profiled on one clock."""
    if timed.power is None:
        return True
    return window.power is not None and timed.power.floor > window.power.smallest


def judge_window(comparison: Comparison) -> LateVerdict:
    """Judge ranks by their own time in the profiled steps."""
    usual = float(np.median(comparison.wall)) if comparison.wall.size else 0.0
    ranks, steps, cohort = (one.tolist() for one in (comparison.ranks, comparison.steps, comparison.cohort))
    whole = len(steps) - int(_ends_early(comparison))
    return judge(comparison.by_step[:, :whole], ranks, steps[:whole], usual, cohort)


def _ends_early(comparison: Comparison) -> bool:
    """Return whether the last step is too short to show what the rank with the most extra time waits for.

    The last step of a device ends with its last event, and waits for data of the next step come after it.
    """
    place = int(comparison.excess.argmax())
    *before, last = comparison.by_step[place].tolist()
    if not comparison.on_device or len(before) < _FEWEST_WHOLE:
        return False
    is_idle = OWN_LINES[int(comparison.lines[place].argmax())].startswith("idle.")
    return is_idle and bool(last < _HALF * np.nan_to_num(before).mean())


def _shows_more(comparison: Comparison, one: Lateness, timed: TimedLateness, evidence: RankEvidence) -> bool:
    """Return whether a rank is late in the window for a reason that the timed steps do not show in its arrivals."""
    place = comparison.place(one.rank)
    cause = _cause(comparison, place, evidence)
    return cause == "more_work" or (cause == "late_data" and one.rank in timed.waits)


def _is_held_up(comparison: Comparison, rank: int, late: Sequence[Lateness]) -> bool:
    """Return whether the rank is late without extra time of its own, while another late rank has it."""
    shares = comparison.excess / np.maximum(comparison.wall, 1)
    alone = {one.rank for one in late if shares[comparison.place(one.rank)] >= max(_OWN * one.share, 0.0)}
    return bool(alone) and rank not in alone


def _works_with_others(profiles: Sequence[StepProfile], rank: int) -> bool:
    """Return whether the rank communicates: ranks that do not cannot keep others waiting."""
    talking = {one.rank for one in profiles if one.lines[:, _TALKING].any()}
    return rank in talking and len(talking) > 1


def _slow_rank(  # noqa: PLR0917 - each is looked up once for all ranks
    comparison: Comparison,
    late: Lateness,
    due: np.ndarray[tuple[int], np.dtype[np.float64]],
    last: Mapping[int, LastArrivals],
    evidence: RankEvidence,
    timed: TimedLateness,
) -> SlowRank:
    place = comparison.place(late.rank)
    by_line = comparison.lines[place]
    steps = int(comparison.counts[place])
    cause = _cause(comparison, place, evidence)
    return SlowRank(
        late=late,
        is_timed=timed.verdict.of(late.rank) is late,
        charged=round(float(due[place])),
        line=OWN_LINES[int(by_line.argmax())],
        cause=cause,
        line_excess=round(float(by_line.max()) * steps),
        excess=round(float(comparison.excess[place])),
        profiled=steps,
        last=last.get(late.rank, LastArrivals(0, 0)),
        in_steps=in_steps(comparison),
        waits_for_data=timed.waits.get(late.rank, 0.0),
    )


def in_steps(comparison: Comparison) -> bool:
    return bool((comparison.steps >= 0).any())


def _cause(comparison: Comparison, place: int, evidence: RankEvidence) -> str:
    line = OWN_LINES[int(comparison.lines[place].argmax())]
    return CAUSES.get(line) or _computing(comparison, place, evidence)


def _computing(comparison: Comparison, place: int, evidence: RankEvidence) -> str:
    """Return `more_work` or `slow_kernels`.

    More kernels, or more FLOPs in as many, are more work; the same work that takes longer is slow kernels. If neither
    is clear, as with kernels of one name and all lengths, it is more work if there are more kernels and they are not
    slower.
    """
    rank = int(comparison.ranks[place])
    longer = comparison.lines[place, OWN_LINES.index("compute")]
    needed = longer / max(comparison.computed[place] - longer, 1.0)
    more = max(comparison.pieces[place], evidence.more_flops(rank))
    if more > _HALF * needed:
        return "more_work"
    return "more_work" if more > _SOME * needed > evidence.slower_kernels(rank) else "slow_kernels"


def compare_ranks(run: Run, mesh: Mesh, found: Sequence[StepProfile]) -> tuple[Comparison, frozenset[int]]:
    """Compare ranks with those that do the same work; return also which ranks miss records of collectives."""
    dark = frozenset(rank for (rank,) in run.rows(_DARK))
    on_device = run.rows(_ON_DEVICE)[0][0] > 0
    return compare(found, cohorts_of(mesh, [one.rank for one in found]), dark, on_device=on_device), dark


def cohorts_of(mesh: Mesh, ranks: Sequence[int]) -> dict[int, list[int]]:
    return {rank: list(peers) for rank, peers in mesh.cohorts(sorted(set(ranks))).items()}


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
