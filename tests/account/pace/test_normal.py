"""The normal step of a job and how far another run may be off, on made timings with known truth."""

from __future__ import annotations

from collections.abc import Sequence
from math import hypot
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from clinic.measure import step_ns

import lostflops as lf
from lostflops.account.pace.blocks import typical
from lostflops.account.pace.normal import NormalSteps, normal_steps
from lostflops.explain.compare.series import read_timed_steps
from lostflops.fleet.summarise import summarise
from lostflops.predict.whatif.interval import between_runs, noise_of
from made_timed_runs import recorded
from memory_run import MemoryRun

MS = 1_000_000


def timings(times: Sequence[float], attempt: int = 0, **marks: set[int]) -> list[dict[str, Any]]:
    """Rows of two ranks, whose steps take so many ms; `marks` are the steps with a mark."""
    rows, now = [], attempt * 10**12
    for number, ms in enumerate(times):
        took = round(ms * MS)
        flags = {mark: number in marks.get(mark, ()) for mark in ("compiled", "profiled", "skipped")}
        one = {"attempt": attempt, "step": number, "start": now, "stop": now + took, "forward": took // 2}
        rows += [{"rank": rank} | one | flags for rank in range(2)]
        now += took
    return rows


def found(rows: list[dict[str, Any]], **tables: list[dict[str, Any]]) -> NormalSteps | None:
    run: Any = MemoryRun(timings=rows, **tables)
    with run:
        return normal_steps(run)


def test_only_normal_steps_count() -> None:
    times = [900.0, 500.0, *[10.0] * 12, 80.0, 80.0, 40.0]
    normal = found(timings(times, compiled={1}, profiled={14, 15}, skipped={16}))
    assert normal is not None
    assert (normal.times.size, normal.location.value, normal.drift) == (12, 10 * MS, 0.0)


def test_every_verb_has_the_same_normal_step(tmp_path: Path) -> None:
    """A GradScaler skipped the update of three in five steps, which take 6 ms and not 10."""
    skipped = [step for step in range(1, 101) if step % 5 < 3]
    times = [6.0 if step in skipped else 10.0 for step in range(1, 101)]
    with lf.open(recorded(tmp_path / "run", times, skipped=skipped)) as run:
        timed, report, stored = run.steps().to_json(), run.report().to_json(), run.stored
        stated = {
            "steps": timed["recorded"]["step_p50_ns"],
            "settled steps": timed["recorded"]["settled_steps"] * MS / 4,
            "report": report["recorded"]["step_p50_ns"],
            "rates": 8 * 1e9 / report["recorded"]["samples_per_second"],
            "headline": normal_steps(stored).location.value,  # type: ignore[union-attr]
            "fleet": summarise(stored).step_ns,
            "clinic": step_ns(stored),
            "compared": float(np.median(read_timed_steps(stored).times)),
        }
    assert stated == dict.fromkeys(stated, pytest.approx(10 * MS))


def test_a_stall_does_not_move_the_normal_step() -> None:
    normal = found(timings([100.0, *[10.0, 10.2, 9.8] * 10, 30_000.0]))
    assert normal is not None
    assert normal.location.value == pytest.approx(10 * MS, rel=0.01)
    assert noise_of(normal.location) < 0.03


@pytest.mark.parametrize(("steps", "is_known"), [(8, False), (9, True)])
def test_few_steps_say_nothing(steps: int, is_known: bool) -> None:
    """The first of them never counts."""
    assert (found(timings([10.0] * steps)) is not None) == is_known


def test_steps_are_of_the_attempt_that_was_profiled() -> None:
    rows = timings([20.0] * 20, attempt=0) + timings([10.0] * 20, attempt=1)
    attempts = [
        {"rank": rank, "attempt": number, "start": number * 10**12, "stop": number * 10**12 + 10**11}
        for rank in range(2)
        for number in range(2)
    ]
    steps = [{"rank": rank, "step": 5, "start": 100 * MS, "stop": 120 * MS} for rank in range(2)]
    normal = found(rows, attempts=attempts, steps=steps)
    assert normal is not None
    assert (normal.attempt, normal.location.value) == (0, 20 * MS)


def test_a_level_that_changes_is_drift() -> None:
    """Half of the steps take 10 ms, half 12 ms: another run may be as far off."""
    normal = found(timings([50.0, *[10.0] * 16, *[12.0] * 16]))
    assert normal is not None
    assert noise_of(normal.location) + between_runs(normal.drift) > 0.1


@pytest.mark.parametrize(("steps", "runs"), [(32, 0.0), (32, 0.0125), (100, 0.0125)])
@pytest.mark.few(1)
def test_nine_of_ten_runs_are_inside(steps: int, runs: float) -> None:
    """Steps differ by 8%, one in twenty stalls, runs differ by up to 3% in nine of ten cases. Intervals stay
    within 15 points."""
    rng, trials = np.random.default_rng(steps), 300
    level = 1e7 * np.exp(rng.normal(0, runs, (trials, 2, 1)))
    stalls = 1 + (rng.random((trials, 2, steps)) < 0.05) * rng.uniform(0.5, 20, (trials, 2, steps))
    made = level * np.exp(rng.normal(0, 0.08, (trials, 2, steps))) * stalls
    inside, widths = 0, []
    for before, after in made:
        one = NormalSteps(0, before, typical(before))
        half = hypot(noise_of(one.location), between_runs(one.drift))
        inside += abs(typical(after).value / one.location.value - 1) <= half
        widths.append(2 * half)
    assert inside / trials >= 0.88
    assert np.median(widths) <= 0.15
