"""Where series of step times change their level, as it could have been known run by run.

After each run, all divisions of the runs since the last change are tried: at least `RUNS_BEFORE` before, at least
`RUNS_AFTER` after. The means of both sides are compared by Student's t, with the noise within the sides. A single wild
run is no change: it loses weight with the square of its distance from the runs around it. The threshold is such that
1% of unchanged series of 40 runs ever show a rise, and 1% ever a fall; it was found by simulation (normal noise; with
tails of Student's t, or with 3% of wild runs, it is about the same or less). Neighbouring runs that are alike
(correlation 0.3) raise it to 6%, unless other series of the fleet show their correlation. `benchmarks/fleet_scores.py`
measures it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from lostflops.core.stats import t_to_normal
from lostflops.fleet.robust import Floats, Ints
from lostflops.fleet.step_noise import FLOOR, StepNoise

RUNS_BEFORE: Final = 4
RUNS_AFTER: Final = 2
LEAST: Final = 0.01
"""Smaller changes are not reported, however certain."""
_THRESHOLD: Final = 3.9
"""The normal deviate that a change must reach."""
_WILD: Final = 2.0
"""Runs further than so many standard deviations from the runs around them lose weight."""
_LOOKBACK: Final = 120


@dataclass(frozen=True, slots=True)
class Break:
    """A change of level."""

    first: int
    """Index of the first run after it."""
    seen: int
    """Index of the run after which it was certain."""


def find_breaks(values: Floats, errors: Floats, lengths: Ints, noise: StepNoise) -> list[list[Break]]:
    """Find changes in series: rows of logarithms of step times with their standard errors, so many of them valid."""
    found: list[list[Break]] = [[] for _ in lengths]
    starts = np.zeros(len(lengths), np.int64)
    rows = np.arange(len(lengths))
    while rows.size:
        parts, part_errors = (_align(table[rows], starts[rows]) for table in (values, errors))
        first, seen = _find_first_breaks(parts, part_errors, (lengths - starts)[rows], noise)
        changed = first >= 0
        rows, first, seen = rows[changed], first[changed], seen[changed]
        for row, own_first, own_seen in zip(rows.tolist(), first.tolist(), seen.tolist(), strict=True):
            found[row].append(Break(int(starts[row]) + own_first, int(starts[row]) + own_seen))
        starts[rows] += first
    return found


def compute_deviates(values: Floats, errors: Floats, noise: StepNoise) -> tuple[Floats, Floats]:
    """Compute, for each division of the runs, by how much the level rises, and how certain, as a normal deviate."""
    weights = weigh_runs(values, errors)
    values = values - np.median(values, axis=1, keepdims=True)
    total, sums = np.cumsum(weights, axis=1), np.cumsum(weights * values, axis=1)
    squares = np.sum(weights * values**2, axis=1, keepdims=True)
    places = np.arange(RUNS_BEFORE - 1, values.shape[1] - RUNS_AFTER)
    before, after = total[:, places], total[:, -1:] - total[:, places]
    low, high = sums[:, places] / before, (sums[:, -1:] - sums[:, places]) / after
    freedom = before + after - 2 + noise.runs
    within = squares - before * low**2 - after * high**2 + noise.runs * noise.spread**2
    variance = np.maximum(within / freedom, FLOOR**2) * (1 / before + 1 / after)
    variance *= (1 + noise.correlation) / (1 - noise.correlation)
    return high - low, t_to_normal((high - low) / np.sqrt(variance), freedom)


def weigh_runs(values: Floats, errors: Floats) -> Floats:
    """Compute weights of runs: less for uncertain runs, and for those unlike the runs around them."""
    if values.shape[1] < 2:
        return np.ones_like(values)
    neighbours = np.abs(np.diff(values, axis=1))
    spread = np.maximum(1.0484 * np.median(neighbours, axis=1, keepdims=True), FLOOR)
    certain = spread**2 / (spread**2 + errors**2)
    certain /= certain.max(axis=1, keepdims=True)
    count = values.shape[1]
    around = np.clip(np.arange(count), 2, max(count - 3, 2))[:, None] + np.arange(-2, 3)
    middle = np.sort(values[:, np.minimum(around, count - 1)], axis=2)[:, :, 2]
    distance = np.abs(values - middle) / spread * np.sqrt(certain)
    return np.asarray(certain * np.minimum(1, (_WILD / np.maximum(distance, 1e-9)) ** 2))


def _find_first_breaks(values: Floats, errors: Floats, lengths: Ints, noise: StepNoise) -> tuple[Ints, Ints]:
    """Find the first change of each series, and the run that made it certain; both -1 if there is no change."""
    first, seen = np.full(len(lengths), -1), np.full(len(lengths), -1)
    for stop in range(RUNS_BEFORE + RUNS_AFTER, int(lengths.max(initial=0)) + 1):
        rows = np.flatnonzero((lengths >= stop) & (first < 0))
        if not rows.size:
            break
        start = max(0, stop - _LOOKBACK)
        rise, deviate = compute_deviates(values[rows, start:stop], errors[rows, start:stop], noise)
        size = np.where(np.abs(rise) >= np.log1p(LEAST), np.abs(deviate), 0)
        best = np.argmax(size, axis=1)
        is_sure = size[np.arange(len(rows)), best] >= _THRESHOLD
        first[rows[is_sure]] = start + RUNS_BEFORE + best[is_sure]
        seen[rows[is_sure]] = stop - 1
    return first, seen


def _align(table: Floats, starts: Ints) -> Floats:
    """Move each row to the left, so that it begins at its start; its end is repeated."""
    places = np.minimum(np.arange(table.shape[1]) + starts[:, None], table.shape[1] - 1)
    return np.take_along_axis(table, places, axis=1)
