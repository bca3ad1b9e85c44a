"""Step series with known truth: autocorrelated steps, steps that something else held up, runs that differ.

For each kind of job: how often two sides that are alike are called different, and how often a planted regression of 3%
is found with as many runs, or steps, as `lostflops` asks for after it has seen a few.

    python -m benchmarks.diff.synthetic [--trials N] [--workers N]
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from itertools import repeat
from pathlib import Path

import numpy as np
import numpy.typing as npt

from lostflops.account.pace.blocks import mean, typical
from lostflops.core.stats import MachineKind
from lostflops.explain.compare.change import RelativeChange, Verdict, change, verdict
from lostflops.explain.compare.power import estimate_needed_runs

RESULTS = Path(__file__).with_name("results") / "synthetic.json"
PLANTED = 0.03
_SEED = 2
Series = list[npt.NDArray[np.float64]]


@dataclass(frozen=True)
class Kind:
    """Of a job. `runs` and `steps` are those of the first look, `lasting` the correlation of a step with the next."""

    name: str
    between_runs: float
    between_steps: float
    lasting: float
    held_up: float
    runs: int = 3
    steps: int = 100


KINDS = (
    Kind("quiet", 0.003, 0.01, 0.3, 0.01),
    Kind("runs differ", 0.012, 0.02, 0.5, 0.02),
    Kind("runs differ, two of each", 0.012, 0.02, 0.5, 0.02, runs=2),
    Kind("runs differ, four of each", 0.012, 0.02, 0.5, 0.02, runs=4),
    Kind("steps differ", 0.002, 0.12, 0.6, 0.03),
    Kind("steps differ, five of each", 0.0, 0.06, 0.6, 0.03, runs=5),
    Kind("steps differ, ten of each", 0.0, 0.12, 0.6, 0.03, runs=10),
    Kind("steps are held up", 0.005, 0.03, 0.5, 0.1),
    Kind("few steps", 0.005, 0.04, 0.7, 0.03, steps=20),
)


def series(kind: Kind, chance: np.random.Generator, *, runs: int, steps: int, slower: float = 0.0) -> Series:
    """Steps are lognormal and autoregressive; one that is held up takes up to three times as long."""
    warm = 50
    drawn = chance.normal(size=(runs, steps + warm)) * np.sqrt(1 - kind.lasting**2)
    for step in range(1, steps + warm):
        drawn[:, step] += kind.lasting * drawn[:, step - 1]
    held = 1 + (chance.random((runs, steps)) < kind.held_up) * chance.uniform(0.2, 2, (runs, steps))
    level = 100 * (1 + slower) * np.exp(kind.between_runs * chance.normal(size=(runs, 1)))
    return list(level * np.exp(kind.between_steps * drawn[:, warm:]) * held)


def compared(before: Series, after: Series) -> tuple[RelativeChange, Verdict]:
    middle = change([typical(one) for one in before], [typical(one) for one in after], MachineKind.HOST)
    average = change([mean(one) for one in before], [mean(one) for one in after], MachineKind.HOST)
    return middle, verdict(middle, average)


def trial(kind: Kind, chance: np.random.Generator) -> Iterator[tuple[str, object]]:
    """Two alike; then, with as many runs or steps as that asks for, two alike and one that is slower."""
    sides = [series(kind, chance, runs=kind.runs, steps=kind.steps) for _ in range(2)]
    seen, found = compared(*sides)
    yield "alike", found
    asked = estimate_needed_runs(seen.noise, PLANTED, runs=kind.runs, steps=kind.steps)
    for what, runs, steps in (("runs", asked.runs, kind.steps), ("steps", kind.runs, asked.steps)):
        if runs is None or steps is None:
            continue
        yield f"asked {what}", runs if what == "runs" else steps
        before, after = (series(kind, chance, runs=runs, steps=steps, slower=more) for more in (0.0, PLANTED))
        yield f"found by {what}", compared(before, after)[1]


def scored(kind: Kind, trials: int) -> dict[str, object]:
    told: dict[str, list[object]] = {}
    for number in range(trials):
        for what, answer in trial(kind, np.random.default_rng([_SEED, number, KINDS.index(kind)])):
            told.setdefault(what, []).append(answer)
    wrong = sum(found in (Verdict.FASTER, Verdict.SLOWER) for found in told["alike"])
    score: dict[str, object] = {**asdict(kind), "trials": trials, "alike_called_different": wrong}
    for what in ("runs", "steps"):
        asked = told.get(f"asked {what}", [])
        score[f"{what}_asked_in"] = len(asked)
        score[f"{what}_asked_median"] = float(np.median(asked)) if asked else None
        score[f"found_by_{what}"] = sum(found == Verdict.SLOWER for found in told.get(f"found by {what}", []))
    return score


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=400)
    parser.add_argument("--workers", type=int, default=2)
    asked = parser.parse_args()
    with ProcessPoolExecutor(asked.workers) as pool:
        scores = list(pool.map(scored, KINDS, repeat(asked.trials)))
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps({"planted": PLANTED, "kinds": scores}, indent=1) + "\n")


if __name__ == "__main__":
    main()
