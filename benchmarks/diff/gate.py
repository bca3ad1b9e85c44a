"""How often the gate is wrong: simulated pairs of runs whose truth is known.

A run is 200 steps of a job: its pattern of steps, times the level of the run, which differs between runs as far as the
product assumes for accelerators, or twice as far. The truth of a pair is the factor by which all steps of B are longer;
it holds for the typical step and for the mean of the job over all of its runs. In the last pattern only B has the long
steps: the truth is that its typical step is unchanged and its mean 90% longer.

    python -m benchmarks.diff.gate [--pairs N] [--workers N] && python -m benchmarks.diff.render
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from itertools import product, repeat
from math import log1p
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from lostflops.account.pace.blocks import Location, mean, typical
from lostflops.core.stats import MachineKind
from lostflops.explain.compare.change import RelativeChange, change, verdict
from lostflops.explain.compare.gate import GateOutcome, outcome

RESULTS: Final = Path(__file__).with_name("results") / "gate.json"
MACHINE: Final = MachineKind.ACCELERATOR
LIMIT: Final = 0.02
LIMITS: Final = (0.02, 0.03, 0.05, 0.1)
STEPS: Final = 200
RUNS: Final = (1, 5)
CHANGES: Final = (0.0, 0.01, 0.03, 0.04)
LEVELS: Final = (1, 2)
"""Spreads between runs, in units of the one that the product assumes."""
_MOST_RUNS: Final = max(RUNS)
Times = npt.NDArray[np.float64]
Made = Callable[[np.random.Generator], Times]


def independent(chance: np.random.Generator) -> Times:
    return np.exp(0.02 * chance.normal(size=STEPS))


def heavy_tail(chance: np.random.Generator) -> Times:
    """Make 5% of the steps longer by at least 20%, with a Pareto tail of index 2.5."""
    return independent(chance) * (1 + (chance.random(STEPS) < 0.05) * 0.2 * (1 + chance.pareto(2.5, STEPS)))


def every_tenth(chance: np.random.Generator) -> Times:
    return independent(chance) * np.where(np.arange(STEPS) % 10 == chance.integers(10), 10, 1)


def drift(chance: np.random.Generator) -> Times:
    """Let the level wander off in a straight line, by 3% at the end of the run (one standard deviation)."""
    return independent(chance) * np.exp(0.03 * chance.normal() * np.linspace(0, 1, STEPS))


def autocorrelated(chance: np.random.Generator) -> Times:
    """Let each step keep 0.8 of what the one before it deviates by; steps deviate by 5%."""
    drawn = chance.normal(size=STEPS + 50) * 0.6
    for step in range(1, drawn.size):
        drawn[step] += 0.8 * drawn[step - 1]
    return np.exp(0.05 * drawn[50:])


def period_two(chance: np.random.Generator) -> Times:
    return independent(chance) * np.where(np.arange(STEPS) % 2, 1.3, 1)


PATTERNS: Final[dict[str, tuple[Made, Made]]] = {
    "independent steps": (independent, independent),
    "heavy tail": (heavy_tail, heavy_tail),
    "every tenth step ten times longer": (every_tenth, every_tenth),
    "drift": (drift, drift),
    "autocorrelation 0.8": (autocorrelated, autocorrelated),
    "period 2": (period_two, period_two),
    "every tenth step of B ten times longer": (independent, every_tenth),
}
ONE_SIDED: Final = "every tenth step of B ten times longer"


def scale(side: Sequence[tuple[Location, Location]], factors: Times, which: int, runs: int) -> list[Location]:
    """Return the first runs of a side at other levels; `which` is 0 for the typical step and 1 for the mean."""
    return [
        replace(run[which], value=run[which].value * by) for run, by in zip(side[:runs], factors.tolist(), strict=False)
    ]


def judge(pattern: str, pairs: int) -> list[dict[str, Any]]:
    """Simulate pairs of a pattern and judge each with one run a side and with several, for all changes and spreads
    between runs: these only scale the steps of a run, so each run is drawn and measured once."""
    cells: dict[tuple[int, int, float], Counter[str]] = {}
    changes = [0.0] if pattern == ONE_SIDED else CHANGES
    for number in range(pairs):
        chance = np.random.default_rng([3, number, list(PATTERNS).index(pattern)])
        steps = [[make(chance) for _ in range(_MOST_RUNS)] for make in PATTERNS[pattern]]
        located = [[(typical(times), mean(times)) for times in side] for side in steps]
        levels = chance.normal(size=(2, _MOST_RUNS)) * MACHINE.spread
        for runs, spread in product(RUNS, LEVELS):
            sides = located, np.exp(spread * levels)
            alike = [
                change(*(scale(side, by, which, runs) for side, by in zip(*sides, strict=True)), MACHINE)
                for which in (0, 1)
            ]
            for slower in changes:
                middle, average = (replace(found, log=found.log + log1p(slower)) for found in alike)
                count(cells.setdefault((runs, spread, slower), Counter()), middle, average, pattern, slower)
    return [
        {"pattern": pattern, "runs": runs, "spread": spread, "slower": slower, "pairs": pairs, **cell}
        for (runs, spread, slower), cell in cells.items()
    ]


def count(cell: Counter[str], middle: RelativeChange, average: RelativeChange, pattern: str, slower: float) -> None:
    cell[f"gate: {outcome(middle, average, LIMIT)}"] += 1
    cell[f"diff: {verdict(middle, average)}"] += 1
    cell["typical inside"] += middle.low <= slower <= middle.high
    cell["mean inside"] += average.low <= (0.9 if pattern == ONE_SIDED else slower) <= average.high
    for limit in LIMITS:
        cell[f"passed at {limit}"] += outcome(middle, average, limit) is GateOutcome.PASSED


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=1000)
    parser.add_argument("--workers", type=int, default=2)
    asked = parser.parse_args()
    with ProcessPoolExecutor(asked.workers) as pool:
        cells = [cell for found in pool.map(judge, PATTERNS, repeat(asked.pairs)) for cell in found]
    RESULTS.write_text(json.dumps({"limit": LIMIT, "limits": LIMITS, "steps": STEPS, "cells": cells}) + "\n")


if __name__ == "__main__":
    main()
