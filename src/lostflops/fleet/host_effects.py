"""Which hosts are slow: a fleet of mostly usual hosts, with a few slow and a few fast ones.

The effect of a usual host has a normal distribution, whose centre and width are fitted; the effect of a slow one is at
least `least`, and every factor beyond is as likely as the next. A fast one is its mirror image. Integrals over effects
are sums over a grid.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from lostflops.fleet.host_evidence import HostEvidence, HostNoise, JobMeans
from lostflops.fleet.robust import Floats, Ints

_CORE: Final = 0.002
_EFFECTS: Final = _CORE * np.sinh(np.linspace(np.arcsinh(-0.95 / _CORE), np.arcsinh(4 / _CORE), 900))
_WIDTHS: Final = np.gradient(_EFFECTS)
_LEAST_SPREAD: Final = 5e-4
_ROUNDS: Final = 40
_CLOSE: Final = 0.003
_PRIOR_HOSTS: Final = 20.0
_PRIOR_SLOW: Final = 0.2
"""One host in 100 is slow, as far as the fleet does not show otherwise; this counts as much as 20 hosts."""
_FITTED: Final = 1000
_AT_ONCE: Final = 2000
_MOST_JOBS: Final = 30
_TINY: Final = 1e-300


@dataclass(frozen=True, slots=True)
class FleetEffects:
    """The distribution of hosts' effects."""

    centre: float
    spread: float
    """Standard deviation of usual hosts."""
    slow: float
    """Share of slow hosts."""
    fast: float
    least: float


@dataclass(frozen=True, slots=True)
class Posterior:
    """What is known of each host, given its runs and the fleet."""

    odds: Floats
    """How much likelier its runs are on a slow host than on a usual one."""
    fast_odds: Floats
    effect: Floats
    """Median, given that the host is slow in these runs as far as `odds` show."""
    low: Floats
    high: Floats


def fit_effects(evidence: HostEvidence, least: float) -> FleetEffects:
    """Fit the distribution of effects by expectation and maximisation, with a weak prior on the share of slow hosts."""
    rows = np.flatnonzero(np.isfinite(evidence.mean))
    rows = rows[:: max(1, -(-len(rows) // _FITTED))]
    if not rows.size:
        return FleetEffects(0, _LEAST_SPREAD, _PRIOR_SLOW / _PRIOR_HOSTS, _PRIOR_SLOW / _PRIOR_HOSTS, least)
    likelihood = _compute_likelihood(evidence, rows)
    middle = float(np.median(evidence.mean[rows]))
    spread = 1.48 * float(np.median(np.abs(evidence.mean[rows] - middle)))
    effects = FleetEffects(min(middle, least / 2), max(spread, _LEAST_SPREAD), 0.01, 0.01, least)
    for _ in range(_ROUNDS):
        before, effects = effects, _improve(effects, likelihood)
        if abs(effects.spread - before.spread) < _CLOSE * before.spread and abs(effects.slow - before.slow) < _CLOSE**2:
            break
    return effects


def judge_hosts(evidence: HostEvidence, effects: FleetEffects) -> Posterior:
    """Compute what is known of each host; a host without runs has odds of 0, and NaN for the rest."""
    columns = np.full((5, len(evidence.mean)), np.nan)
    columns[:2] = 0
    filled = np.flatnonzero(np.isfinite(evidence.mean))
    usual, slow, fast = _compute_priors(effects)
    mixed = (1 - effects.slow - effects.fast) * usual + effects.slow * slow + effects.fast * fast
    for start in range(0, len(filled), _AT_ONCE):
        rows = filled[start : start + _AT_ONCE]
        likelihood = _compute_likelihood(evidence, rows)
        as_usual = likelihood @ usual + _TINY
        columns[0, rows], columns[1, rows] = (likelihood @ slow) / as_usual, (likelihood @ fast) / as_usual
        columns[2:, rows] = _find_quantiles(likelihood * mixed, (0.5, 0.05, 0.95))
    return Posterior(*columns)


def compute_exact_odds(
    posterior: Posterior, jobs: JobMeans, noise: HostNoise, effects: FleetEffects, hosts: Ints
) -> Posterior:
    """Compute the odds of these hosts job by job if they have few: a mean hides that jobs contradict each other."""
    odds, fast_odds = posterior.odds.copy(), posterior.fast_odds.copy()
    usual, slow, fast = _compute_priors(effects)
    freedom = noise.jobs.freedom
    for host in hosts.tolist():
        rows = slice(*np.searchsorted(jobs.host, [host, host + 1]))
        if not 0 < rows.stop - rows.start <= _MOST_JOBS:
            continue
        variance = (jobs.variance + jobs.role)[rows, None]
        distance = (jobs.mean[rows, None] - _EFFECTS) ** 2 / variance
        logs = -(freedom + 1) / 2 * np.log1p(distance / freedom).sum(0)
        likelihood = np.exp(logs - logs.max())
        as_usual = likelihood @ usual + _TINY
        odds[host], fast_odds[host] = likelihood @ slow / as_usual, likelihood @ fast / as_usual
    return replace(posterior, odds=odds, fast_odds=fast_odds)


def _improve(effects: FleetEffects, likelihood: Floats) -> FleetEffects:
    """Give each host its most likely kinds, then each kind its hosts."""
    usual, slow, fast = _compute_priors(effects)
    parts = np.stack([likelihood @ usual, likelihood @ slow, likelihood @ fast])
    parts *= np.array([[1 - effects.slow - effects.fast], [effects.slow], [effects.fast]])
    kinds = parts / (parts.sum(0) + _TINY)
    share = kinds[0] / (likelihood @ usual + _TINY)
    weight = share @ (likelihood * usual)
    total = max(float(weight.sum()), 1e-9)
    centre = float(weight @ _EFFECTS) / total
    spread = float(np.sqrt(max(weight @ (_EFFECTS - centre) ** 2 / total, _LEAST_SPREAD**2)))
    shares = (kinds[1:].sum(1) + _PRIOR_SLOW) / (len(likelihood) + _PRIOR_HOSTS)
    return FleetEffects(min(centre, effects.least), spread, float(shares[0]), float(shares[1]), effects.least)


def _compute_priors(effects: FleetEffects) -> tuple[Floats, Floats, Floats]:
    """Compute the probability of each effect of the grid, for usual, slow and fast hosts."""
    deviates = ((_EFFECTS - effects.centre) / effects.spread) ** 2 / 2
    usual = np.exp(deviates.min() - deviates) * _WIDTHS  # the smallest is 0: between two points of a coarse grid too
    size = np.abs(np.log1p(_EFFECTS))
    beyond = np.where(size >= np.log1p(effects.least), _WIDTHS / np.maximum(size, 1e-9) / (1 + _EFFECTS), 0)
    slow, fast = np.where(_EFFECTS > 0, beyond, 0), np.where(_EFFECTS < 0, beyond, 0)
    return usual / usual.sum(), slow / slow.sum(), fast / fast.sum()


def _compute_likelihood(evidence: HostEvidence, rows: Ints) -> Floats:
    """Compute how likely the runs of each host are for each effect, up to a factor for the host."""
    mean = np.clip(evidence.mean[rows, None], _EFFECTS[0], _EFFECTS[-1])
    steps = np.interp(mean, _EFFECTS, _WIDTHS)
    error = np.maximum(evidence.error[rows, None], 0.7 * steps)  # narrower ones would fall between points of the grid
    freedom = evidence.freedom[rows, None]
    return np.asarray(np.exp(-(freedom + 1) / 2 * np.log1p(((_EFFECTS - mean) / error) ** 2 / freedom)))


def _find_quantiles(weights: Floats, parts: tuple[float, ...]) -> Floats:
    """Find the effects below which these parts of each row's weight are."""
    sums = np.cumsum(weights, axis=1)
    sums /= sums[:, -1:] + _TINY
    places = [np.minimum((sums < part).sum(1), len(_EFFECTS) - 1) for part in parts]
    return np.stack([_EFFECTS[place] for place in places])
