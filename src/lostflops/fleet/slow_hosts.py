"""Hosts that are slow in job after job.

A host's extra time in a run is the sum of what the host always adds, what it adds in this job (its role there: the
first host may do more), what it adds in this run, and the error of measurement. How much of each is usual is estimated
from all hosts and runs, by quantiles, because few hosts are bad. All four may have heavy tails, so one wild run or job
does not make a host slow. Most hosts differ a little (`usual_spread`); a few are slow or fast beyond that. Each host
has a probability that it belongs to the slow ones, by at least `least`. The likeliest are named, as long as on average
at most `false_share` of them are healthy (the false discovery rate, over fleets that are like this model) and each is
slow with a probability of at least 90%. In a small fleet without any slow host, a healthy one was still named in 3 of
75 fleets (`benchmarks/fleet_scores.py`): few jobs do not show a host apart from its role.

A host may also have become slow, or have been repaired: its best stretch of runs is tried beside its whole record. It
has to convince more, by the number of stretches that could have been chosen.

What cancels: code that is slow, and a network that all hosts of a run share, because hosts are compared within a run.
What cannot be separated: a host that was only seen in one job from its role in that job; such a host is only named if
it is far slower than roles make hosts elsewhere. A host that was seen in one run only is never named.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from lostflops.fleet.host_effects import FleetEffects, Posterior, compute_exact_odds, fit_effects, judge_hosts
from lostflops.fleet.host_evidence import (
    HostEvidence,
    HostNoise,
    JobMeans,
    add_roles,
    average_jobs,
    contrast_jobs,
    measure_job_noise,
    measure_run_noise,
    weigh_evidence,
)
from lostflops.fleet.host_stretches import HostStretches, find_stretches
from lostflops.fleet.host_times import HostTimes, prepare_host_times
from lostflops.fleet.robust import Floats, Ints, compute_group_medians

FALSE_SHARE: Final = 0.01
LEAST: Final = 0.015
_LEAST_RUNS: Final = 2
_LEAST_PROBABILITY: Final = 0.9
_LEAST_DOUBT: Final = 1e-9
"""No data make it certain whether a host is slow."""
_ROUNDS: Final = 4
_SMALL: Final = 0.01
_SUSPECT: Final = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class HostVerdict:
    """What all runs together show of a host."""

    host: str
    jobs: int
    runs: int
    """Runs with a comparison."""
    slower: float
    """How much more time it needs than the median host: 0.1 is 10%. While it was slow, if it is likely slow."""
    low: float
    high: float
    """Range of `slower`."""
    probability: float
    """That it is slow by more than hosts usually differ."""
    is_slow: bool
    """Whether it is named, at the stated rate of false alarms."""
    first_seen: int
    """Unix time of its first run, in ns."""
    since: int | None
    """Start of the first run in which it was slow; None if it is not slow."""
    until: int | None
    """Start of the last run in which it was slow, if it was not slow in later ones; None if it still is."""
    rank_hours: float
    """Rank-hours of all ranks of the runs in which it was slow: all of them wait for it. 0 if it is not slow."""
    lost_rank_hours: float
    """The part of them that such runs last longer because of it, if compute decides the pace."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowHosts:
    """All hosts of a fleet, most likely slow first."""

    hosts: tuple[HostVerdict, ...]
    usual_spread: float
    """Standard deviation of the effects of healthy hosts."""
    job_spread: float
    """How much a host differs from job to job."""
    run_spread: float
    """How much it differs from run to run of a job, measurement errors aside."""
    false_share: float
    least: float
    expected_false: float
    """How many of the named hosts are expected to be healthy."""

    @property
    def slow(self) -> tuple[HostVerdict, ...]:
        """Return the hosts that are named."""
        return tuple(host for host in self.hosts if host.is_slow)


@dataclass(frozen=True, slots=True)
class _HostJudgement:
    """All hosts by their whole record, and by their most suspicious stretch of runs."""

    noise: HostNoise
    effects: FleetEffects
    runs: Ints
    jobs: Ints
    whole: Posterior
    stretches: HostStretches
    part: Posterior
    probability: Floats
    is_part: npt.NDArray[np.bool_]
    """Whether the stretch explains the runs better than the whole record."""

    @property
    def effect(self) -> Floats:
        return np.where(self.is_part, self.part.effect, self.whole.effect)


def find_slow_hosts(times: HostTimes, *, false_share: float = FALSE_SHARE, least: float = LEAST) -> SlowHosts:
    """Find hosts that are slow in job after job; at most `false_share` of those named are healthy."""
    coded = prepare_host_times(times)
    judged = _judge_all(coded, least)
    seen = np.flatnonzero(judged.runs)
    bounds = np.append(np.searchsorted(coded.host, seen), len(coded.host))
    named = _choose_hosts(judged, false_share)
    verdicts = [
        _report_host(coded, judged, int(host), slice(int(bounds[number]), int(bounds[number + 1])), bool(named[host]))
        for number, host in enumerate(seen)
    ]
    verdicts.sort(key=lambda host: (-host.probability, -host.low, host.host))
    return SlowHosts(
        hosts=tuple(verdicts),
        usual_spread=judged.effects.spread,
        job_spread=judged.noise.jobs.spread,
        run_spread=judged.noise.runs.spread,
        false_share=false_share,
        least=least,
        expected_false=sum(1 - host.probability for host in verdicts if host.is_slow),
    )


def _judge_all(times: HostTimes, least: float) -> _HostJudgement:
    """Judge all hosts; again if half of the hosts of a run are slow, because its median host is no measure then."""
    judged, middle = _judge(times, least), np.zeros(len(times.host))
    for _ in range(_ROUNDS):
        before, middle = middle, _find_slow_middles(times, judged)
        if np.max(np.abs(middle - before), initial=0) < _SMALL:
            break
        judged = _judge(times.add(middle), least)
    return judged


def _judge(times: HostTimes, least: float) -> _HostJudgement:
    """Compute the probability that each host is slow: in its whole record, or in a stretch of it."""
    count = len(times.names)
    run_noise = measure_run_noise(times)
    jobs = average_jobs(times, run_noise)
    noise = HostNoise(measure_job_noise(jobs), run_noise)
    jobs = add_roles(jobs, noise)
    evidence = weigh_evidence(jobs, noise, count)
    effects = fit_effects(evidence, least)
    whole = _judge_jobs(jobs, evidence, noise, effects)
    stretches = find_stretches(times, noise)
    is_inside = stretches.contain_rows(times)
    inside, outside = (average_jobs(times.select(rows), run_noise) for rows in (is_inside, ~is_inside))
    part_jobs = contrast_jobs(add_roles(inside, noise), outside)
    part = _judge_jobs(part_jobs, weigh_evidence(part_jobs, noise, count), noise, effects)
    choices = np.maximum(evidence.runs * (evidence.runs + 1) / 2, 1)
    odds_of_part = part.odds / choices
    slow = effects.slow * (whole.odds + odds_of_part) / 2
    usual = 1 - effects.slow - effects.fast + effects.fast * whole.fast_odds
    is_part = (odds_of_part > whole.odds) | (stretches.advantage > np.log(choices))
    probability = np.clip(slow / (slow + usual), _LEAST_DOUBT, 1 - _LEAST_DOUBT)
    is_part &= (stretches.first >= 0) & (probability >= 1 / 2)
    return _HostJudgement(noise, effects, evidence.runs, evidence.jobs, whole, stretches, part, probability, is_part)


def _judge_jobs(jobs: JobMeans, evidence: HostEvidence, noise: HostNoise, effects: FleetEffects) -> Posterior:
    """Judge hosts by their jobs: first all by their means, then those that may be slow exactly."""
    posterior = judge_hosts(evidence, effects)
    suspects = np.flatnonzero(posterior.odds * effects.slow > _SUSPECT)
    return compute_exact_odds(posterior, jobs, noise, effects, suspects)


def _find_slow_middles(times: HostTimes, judged: _HostJudgement) -> Floats:
    """Compute, for each row, how slow the median host of its run is: more than 0 only if half of its hosts are slow."""
    is_in = judged.stretches.contain_rows(times) | ~judged.is_part[times.host]
    is_slow = (judged.probability > 0.5)[times.host] & is_in
    effect = np.where(is_slow, judged.effect[times.host], 0)
    if not is_slow.any():
        return effect
    return compute_group_medians(effect, times.run, int(times.run.max()) + 1)[times.run]


def _choose_hosts(judged: _HostJudgement, false_share: float) -> npt.NDArray[np.bool_]:
    """Name the likeliest hosts, as many as keep the expected share of healthy ones among them below the limit."""
    likely = np.flatnonzero((judged.probability >= _LEAST_PROBABILITY) & (judged.runs >= _LEAST_RUNS))
    likely = likely[np.argsort(-judged.probability[likely], kind="stable")]
    share = np.cumsum(1 - judged.probability[likely]) / np.arange(1, len(likely) + 1)
    named = np.zeros(len(judged.probability), bool)
    named[likely[share <= false_share]] = True
    return named


def _report_host(times: HostTimes, judged: _HostJudgement, host: int, rows: slice, is_slow: bool) -> HostVerdict:
    """Report one host, whose rows these are."""
    is_part = bool(judged.is_part[host])
    posterior = judged.part if is_part else judged.whole
    probability = float(judged.probability[host])
    first, last = rows.start, rows.stop - 1
    if is_part:
        first, last = int(judged.stretches.first[host]), int(judged.stretches.last[host])
    effect = float(posterior.effect[host])
    hours = float(times.rank_hours[first : last + 1].sum()) if is_slow else 0.0
    return HostVerdict(
        host=times.names[host],
        jobs=int(judged.jobs[host]),
        runs=int(judged.runs[host]),
        slower=effect,
        low=float(posterior.low[host]),
        high=float(posterior.high[host]),
        probability=probability,
        is_slow=is_slow,
        first_seen=int(times.start[rows.start]),
        since=int(times.start[first]) if is_slow else None,
        until=int(times.start[last]) if is_slow and last < rows.stop - 1 else None,
        rank_hours=hours,
        lost_rank_hours=hours * max(0.0, 1 - 1 / (1 + effect)),
    )
