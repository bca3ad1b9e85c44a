"""Compute `calibration.json` from outcomes, and check it on jobs that it was not computed from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import pairwise, product
from statistics import fmean, median
from typing import Final, TypeVar
from zlib import crc32

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy.stats import binomtest

from clinic.outcomes import Row, by_entry, by_job
from lostflops.core.estimate import Estimate, Kind, Strength
from lostflops.explain.advise.calibration import Odds, OutcomeCalibration, Reach, log_size

_Fit = TypeVar("_Fit")
_Answer = TypeVar("_Answer")

COVERAGE: Final = 0.9
LIMIT_COVERAGE: Final = 0.95
"""Share of savings that are not above their limit: "at most" promises more than a range."""
FOLDS: Final = 5
FEW: Final = 10
"""Jobs that a kind needs for a reach of its own: of fewer than nine, no miss is one that nine of ten do not exceed."""
PRIOR_JOBS: Final = 3
"""As many jobs count for all rules together when one rule's misses are computed."""
MOST: Final = 3.0
"""A miss counts as at most so many usual ones: one broken measurement must not decide about a rule."""
FLOORS: Final = (0.01, 0.02, 0.03, 0.05)
SLOPES: Final = (0.0, 0.1, 0.2, 0.4)
SURE: Final = 0.05
"""Ranges are wider on one side where estimates miss on that side in so many more jobs that chance does it this
rarely."""
SPREADS: Final = (0.3, 0.6, 1.0, 1.5)
"""By how much rules may differ, in log odds: the one that predicts best is taken."""
PRIOR: Final = 2.0
"""Standard deviation of what a doubt of the rule changes, and of what it changes that rules were corrected on a job, in
log odds: more than a factor of 50 either way is unlikely."""
LEAST_SHARE: Final = 0.5
"""Misses are at least so much the estimate's: how large the error of measuring is, is itself known from few rounds."""
SIZE: Final = 0.3
"""And of what strong evidence changes beside fair, or a saving that is 2.7 times as large: size is no evidence."""
_FLAT: Final = 10.0
_STEPS: Final = 50
_NORMAL_90: Final = 1.645
_BINS: Final = (0.0, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 1.0)


def calibrate(rows: Sequence[Row]) -> OutcomeCalibration:
    ranges = fit_ranges(rows)
    return OutcomeCalibration(digest_rows(rows), COVERAGE, ranges.reaches, ranges.factors, fit_odds(rows))


def written(calibration: OutcomeCalibration) -> bytes:
    """Return what `calibration.json` contains."""
    return msgspec.json.format(msgspec.json.encode(calibration), indent=1) + b"\n"


def digest_rows(rows: Sequence[Row]) -> str:
    return sha256(repr(list(rows)).encode()).hexdigest()[:16]


def rounded(value: float) -> float:
    """Keep three digits, so that the file is the same on every machine."""
    return float(f"{value:.3g}")


# Ranges.


@dataclass(frozen=True, slots=True)
class Ranges:
    reaches: dict[Kind, Reach]
    factors: dict[str, float]


def fit_ranges(rows: Sequence[Row]) -> Ranges:
    """Fit ranges of measured savings on jobs that ran, because simulated jobs repeat more closely than any machine
    does. Limits are fitted on all jobs: what they do not count, such as work that only then ends sooner, is lost in
    both. The range of a replayed saving is that of the what-if, in every verb; how often it holds is shown."""
    measured = [row for row in rows if row.has_range and row.is_real and row.kind is Kind.MEASURED]
    limits = [row for row in rows if row.has_range and row.kind is Kind.BOUND]
    reaches: dict[Kind, Reach] = {}
    squares: dict[str, list[float]] = {}
    if _jobs(measured) >= FEW:
        reaches[Kind.MEASURED] = fit_reach(measured)
        for (cause, _), square in _squares(measured, reaches[Kind.MEASURED]).items():
            squares.setdefault(cause, []).append(square)
    if _jobs(limits) >= FEW:
        reaches[Kind.BOUND] = fit_limit(limits)
    return Ranges(reaches, {cause: rounded(_factor(sum(known), len(known))) for cause, known in squares.items()})


def _jobs(rows: Iterable[Row]) -> int:
    return len({row.job for row in rows})


def _squares(rows: Sequence[Row], unit: Reach) -> dict[tuple[str, str], float]:
    """Return the mean square of the misses of each rule in each job, in units of the usual one."""
    misses = _misses(rows, unit)
    usual = float(np.average(misses**2, weights=by_job(rows))) or 1.0
    squares: dict[tuple[str, str], list[float]] = {}
    for row, square in zip(rows, np.minimum(misses**2 / usual, MOST**2).tolist(), strict=True):
        squares.setdefault((row.cause, row.job), []).append(square)
    return {place: fmean(known) for place, known in squares.items()}


def _factor(squares: float, jobs: int) -> float:
    """Return how far off a rule's savings are, by the sum of the squares of so many jobs. A rule with few jobs is drawn
    towards all rules, as if `PRIOR_JOBS` jobs had missed as usual."""
    return float(((PRIOR_JOBS + squares) / (PRIOR_JOBS + jobs)) ** 0.5)


def _misses(rows: Sequence[Row], unit: Reach) -> NDArray[np.float64]:
    """Return the larger miss of each row, in units of that side of its range."""
    below, above = _scaled_misses(rows, unit)
    return np.maximum(below, above)


def fit_reach(rows: Sequence[Row]) -> Reach:
    """Return the reach whose ranges are the narrowest of those that contain enough of the savings."""
    fitted = [_fit_scaled(rows, floor, slope) for floor, slope in product(FLOORS, SLOPES)]
    return min(fitted, key=lambda reach: _width(reach, rows))


def fit_limit(rows: Sequence[Row]) -> Reach:
    """Return the reach with the lowest limits of those that enough of the savings are not above."""
    units = [Reach(_jobs(rows), floor, slope, 0.0, 0.0) for floor, slope in product(FLOORS, SLOPES)]
    fitted = [msgspec.structs.replace(unit, above=rounded(_limit_miss(unit, rows))) for unit in units]
    return min(fitted, key=lambda reach: median(ends(reach, row)[1] for row in rows))


def _limit_miss(unit: Reach, rows: Sequence[Row]) -> float:
    """Return by how much enough of the savings are not more above their limits, in units of their scale."""
    scores = [((row.measured or 0.0) - _limit(row)) / unit.scale(_limit(row), 0.0) for row in rows]
    return max(_quantile(np.array(scores), np.array(by_job(rows)), LIMIT_COVERAGE), 0.0)


def _limit(row: Row) -> float:
    assert row.high is not None
    return row.high


def _width(reach: Reach, rows: Sequence[Row]) -> float:
    factors = _factors_elsewhere(rows, reach)
    return median(high - low for low, high in (ends(reach, *pair) for pair in zip(rows, factors, strict=True)))


def _factors_elsewhere(rows: Sequence[Row], unit: Reach) -> list[float]:
    """Return for each row the factor of its rule, by other jobs: a job must not narrow or widen its own range."""
    squares = _squares(rows, unit)
    jobs = Counter(cause for cause, _ in squares)
    total = dict.fromkeys(jobs, 0.0)
    for (cause, _), square in squares.items():
        total[cause] += square
    return [_factor(total[row.cause] - squares[row.cause, row.job], jobs[row.cause] - 1) for row in rows]


def ends(reach: Reach | None, row: Row, factor: float = 1.0) -> tuple[float, float]:
    """Return the range of a row, as it is calibrated with a reach; that of a limit begins at 0."""
    assert row.kind is not None
    is_limit = row.kind is Kind.BOUND
    saving = Estimate.bound(_limit(row), "") if is_limit else Estimate(row.value, row.low, row.high, row.kind, "")
    return (saving if reach is None else reach.apply(saving, factor)).ends


def _fit_scaled(rows: Sequence[Row], floor: float, slope: float) -> Reach:
    unit = Reach(_jobs(rows), floor, slope, 0.0, 0.0)
    weights, factors = np.array(by_job(rows)), np.array(_factors_elsewhere(rows, unit))
    share = measuring_share(rows, unit)
    below, above = (share * side / factors for side in _scaled_misses(rows, unit))
    if is_lopsided(rows):
        tail = (1 + COVERAGE) / 2
        low, high = (max(_quantile(side, weights, tail), 0.0) for side in (below, above))
        return Reach(unit.jobs, floor, slope, rounded(low), rounded(high))
    both = rounded(max(_quantile(np.maximum(below, above), weights, COVERAGE), 0.0))
    return Reach(unit.jobs, floor, slope, both, both)


def _scaled_misses(rows: Sequence[Row], unit: Reach) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return how far each saving is below and above its estimate, in units of that side of the range."""
    below, above = [], []
    for row in rows:
        assert row.measured is not None
        assert row.low is not None
        assert row.high is not None
        miss = row.measured - row.value
        below.append(-miss / unit.scale(row.value, row.value - row.low))
        above.append(miss / unit.scale(row.value, row.high - row.value))
    return np.array(below), np.array(above)


def measuring_share(rows: Sequence[Row], unit: Reach | None = None) -> float:
    """Return how much smaller misses would be if savings were measured exactly, as a factor: a saving is measured with
    an error of its own, which is not the estimate's and adds to its square."""
    weights = np.array(by_job(rows))
    scale = np.ones(len(rows)) if unit is None else np.array([_mean_scale(row, unit) for row in rows])
    misses = np.array([(row.measured or 0.0) - row.value for row in rows]) / scale
    errors = np.array([row.error for row in rows]) / scale
    missed = float(weights @ misses**2)
    return max(1 - float(weights @ errors**2) / missed, LEAST_SHARE**2) ** 0.5 if missed else 1.0


def _mean_scale(row: Row, unit: Reach) -> float:
    assert row.low is not None
    assert row.high is not None
    return unit.scale(row.value, (row.high - row.low) / 2)


def is_lopsided(rows: Sequence[Row]) -> bool:
    """Return whether savings are on one side of their estimates in more jobs than chance explains."""
    sides = [fmean((row.measured or 0.0) - row.value for row in rows if row.job == job) for job in _names(rows)]
    return float(binomtest(sum(side > 0 for side in sides), len(sides)).pvalue) < SURE


def _names(rows: Iterable[Row]) -> list[str]:
    return sorted({row.job for row in rows})


def _quantile(scores: NDArray[np.float64], weights: NDArray[np.float64], share: float) -> float:
    """Return the smallest score that so much of the weight does not exceed, with one job more than there are, which may
    exceed all; the largest if they are too few."""
    order = np.argsort(scores)
    reached = np.cumsum(weights[order]) >= share * (weights.sum() + 1) - 1e-9
    return float(scores[order][int(np.argmax(reached))] if reached.any() else scores.max())


# Probability that a finding is right.


@dataclass(frozen=True, slots=True)
class Design:
    """Findings as the numbers that odds are computed from."""

    evidence: NDArray[np.float64]
    """A row for each finding: 1, not weak, strong, size, whether rules were corrected on its job, and then a column for
    each rule."""
    is_right: NDArray[np.float64]
    weights: NDArray[np.float64]
    rules: tuple[str, ...]


_COMMON: Final = 5
_STRONG: Final = {Strength.STRONG: 1.0, Strength.FAIR: 0.0, Strength.WEAK: 0.0}


def counted(rows: Iterable[Row]) -> list[Row]:
    """Return the findings that are right or wrong; side effects of a planted fault are neither."""
    return [row for row in rows if row.is_right is not None]


def design(rows: Sequence[Row]) -> Design:
    rules = tuple(sorted({row.cause for row in rows}))
    lines = [
        [
            1.0,
            float(row.strength is not Strength.WEAK),
            0.5 if row.strength is None else _STRONG[row.strength],
            log_size(row.value),
            float(not row.is_unseen),
            *(float(row.cause == rule) for rule in rules),
        ]
        for row in rows
    ]
    is_right = np.array([float(bool(row.is_right)) for row in rows])
    return Design(np.array(lines), is_right, np.array(by_entry(rows)), rules)


def fit_odds(rows: Sequence[Row]) -> Odds:
    """Fit log odds with normal priors; how much rules differ is what predicts findings of other jobs best. Findings are
    right more often in jobs that rules were corrected on: that part is left out, because a user's job is unseen."""
    seen = counted(rows)
    spread = min(SPREADS, key=lambda one: _loss_elsewhere(seen, one))
    return _fit_odds(seen, spread)


def _fit_odds(rows: Sequence[Row], spread: float) -> Odds:
    made = design(rows)
    priors = np.array([_FLAT, PRIOR, SIZE, SIZE, PRIOR, *[spread] * len(made.rules)])
    values = [rounded(value) for value in _most_likely(made, 1 / priors**2)]
    intercept, fair, stronger, size = values[:4]
    # Few outcomes have fair evidence: they may make strong evidence no less likely to be right.
    strength = {Strength.STRONG: rounded(fair + max(stronger, 0.0)), Strength.FAIR: fair, Strength.WEAK: 0.0}
    return Odds(
        intercept,
        strength,
        size,
        dict(zip(made.rules, values[_COMMON:], strict=True)),
        spread,
    )


def _most_likely(made: Design, precision: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the most likely coefficients, by Newton's method."""
    found = np.zeros(made.evidence.shape[1])
    for _ in range(_STEPS):
        chance = 1 / (1 + np.exp(-made.evidence @ found))
        slope = made.evidence.T @ (made.weights * (made.is_right - chance)) - precision * found
        curvature = (made.evidence.T * (made.weights * chance * (1 - chance))) @ made.evidence + np.diag(precision)
        step = np.linalg.solve(curvature, slope)
        found = found + step
        if float(np.abs(step).max()) < 1e-9:
            break
    return found


def _loss_elsewhere(rows: Sequence[Row], spread: float) -> float:
    """Return the log loss of findings by the outcomes of other jobs."""
    chances = elsewhere(rows, lambda known: _fit_odds(known, spread), probability)
    losses = [-np.log(chance if row.is_right else 1 - chance) for row, chance in zip(rows, chances, strict=True)]
    weights = np.array(by_entry(rows)) * as_for_users(rows)
    return float(weights @ np.array(losses))


def as_for_users(rows: Sequence[Row]) -> NDArray[np.bool_]:
    """Return which findings are of jobs that were unseen, as a user's is; all, if none is."""
    unseen = np.array([row.is_unseen for row in rows])
    return unseen if unseen.any() else ~unseen


def probability(odds: Odds, row: Row) -> float:
    return odds.probability(row.cause, row.strength or Strength.FAIR, row.value)


# Checks.


def fold(job: str) -> int:
    return crc32(job.encode()) % FOLDS


def elsewhere(
    rows: Sequence[Row], fit: Callable[[Sequence[Row]], _Fit], ask: Callable[[_Fit, Row], _Answer]
) -> list[_Answer]:
    """Return the answer for each row of what was fitted to other jobs."""
    numbers = sorted({fold(row.job) for row in rows})
    fits = {number: fit([row for row in rows if fold(row.job) != number] or rows) for number in numbers}
    return [ask(fits[fold(row.job)], row) for row in rows]


@dataclass(frozen=True, slots=True)
class Held:
    """How many savings were in the ranges of a kind, on jobs that the ranges were not fitted to."""

    kind: Kind
    is_real: bool
    jobs: int
    raw: float
    """Share of measured savings in the ranges before calibration."""
    inside: float
    """And after it."""
    inside_with_error: float
    """After it, if ranges are widened by the 90% error of the measurement."""
    raw_width: float
    width: float
    """Median width, in parts of the step."""


def check_ranges(rows: Sequence[Row]) -> list[Held]:
    shown = [row for row in rows if row.has_range]
    ranges = elsewhere(shown, fit_ranges, _calibrated_ends)
    pairs = list(zip(shown, ranges, strict=True))
    held = []
    for kind, is_real in product(Kind, (True, False)):
        own = [(row, after) for row, after in pairs if row.kind is kind and row.is_real is is_real]
        if own:
            held.append(_held(kind, is_real, own))
    return held


def _calibrated_ends(fitted: Ranges, row: Row) -> tuple[float, float]:
    assert row.kind is not None
    return ends(fitted.reaches.get(row.kind), row, fitted.factors.get(row.cause, 1.0))


def _held(kind: Kind, is_real: bool, pairs: Sequence[tuple[Row, tuple[float, float]]]) -> Held:
    rows, after = [row for row, _ in pairs], [calibrated for _, calibrated in pairs]
    before = [ends(None, row) for row in rows]
    errors = [_NORMAL_90 * row.error for row in rows]
    widened = [(low - error, high + error) for (low, high), error in zip(after, errors, strict=True)]
    return Held(
        kind,
        is_real,
        _jobs(rows),
        *(_inside(rows, ranges) for ranges in (before, after, widened)),
        *(median(high - low for low, high in ranges) for ranges in (before, after)),
    )


def _inside(rows: Sequence[Row], ranges: Sequence[tuple[float, float]]) -> float:
    weights = np.array(by_job(rows))
    is_in = np.array([low <= (row.measured or 0.0) <= high for row, (low, high) in zip(rows, ranges, strict=True)])
    return float(weights @ is_in / weights.sum())


@dataclass(frozen=True, slots=True)
class Bin:
    """Findings of similar probability: every job counts as one."""

    low: float
    high: float
    weight: float
    expected: float
    """Mean probability."""
    right: float
    """Share that was right."""


def check_odds(rows: Sequence[Row]) -> list[Bin]:
    """Return the reliability of probabilities that were fitted to other jobs, on jobs as they were first scored."""
    seen = counted(rows)
    pairs = zip(seen, elsewhere(seen, fit_odds, probability), as_for_users(seen), strict=True)
    shown = [(row, chance) for row, chance, is_shown in pairs if is_shown]
    return bin_chances(*map(list, zip(*shown, strict=True)))


def bin_chances(rows: Sequence[Row], chances: Sequence[float]) -> list[Bin]:
    weights, chance = np.array(by_entry(rows)), np.array(chances)
    is_right = np.array([float(bool(row.is_right)) for row in rows])
    bins = []
    for low, high in pairwise(_BINS):
        own = weights * ((chance > low) & (chance <= high))
        if total := float(own.sum()):
            bins.append(Bin(low, high, total, float(own @ chance / total), float(own @ is_right / total)))
    return bins


def calibration_error(bins: Sequence[Bin]) -> float:
    """Return the expected calibration error: how far probabilities are from what was right, on average."""
    total = sum(one.weight for one in bins)
    return sum(one.weight * abs(one.expected - one.right) for one in bins) / total
