"""The step time that a summary begins with is the one that predictions start from."""

from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from lostflops.account.job import headline
from lostflops.account.job.headline import describe_job
from lostflops.account.ledger.lines import LINES
from lostflops.account.pace.answers import report_recording
from lostflops.account.pace.normal import NormalSteps, normal_steps
from lostflops.account.pace.timings import paces
from lostflops.explain.analyze.report import _ledger
from lostflops.store.run import Run
from made_timed_runs import recorded
from memory_run import MemoryRun

MS = 1e6


def test_the_card_has_the_step_time_of_predictions(tmp_path: Path) -> None:
    """Six steps in twenty take three times as long: the median is 100 ms, the mean of the middle steps is more."""
    with Run.open(recorded(tmp_path / "run", [100.0] * 14 + [300.0] * 6, world=2)) as run:
        normal = normal_steps(run)
        assert normal is not None
        assert normal.location.value > 110 * MS
        said = describe_job(run, SimpleNamespace(step_count=0, total_ns=0))  # type: ignore[arg-type]
    assert f"{normal.location.value / MS:.0f} ms per step." in said


@pytest.mark.parametrize(
    ("profiled_ms", "said"),
    [(101.0, "2 of them were profiled."), (300.0, "profiling 2 of them added 400 ms.")],
    ids=["noise", "slower"],
)
def test_the_cost_of_profiling_is_said_where_it_is_more_than_noise(
    profiled_ms: float, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    location: Any = SimpleNamespace(value=100 * MS)
    monkeypatch.setattr(headline, "normal_steps", lambda run: NormalSteps(0, np.array([100 * MS]), location))
    answers = iter([[(2,)], [(2, 2 * profiled_ms * MS)]])
    run: Any = SimpleNamespace(rows=lambda query: next(answers))
    assert f"{headline._describe_profiling(run)}." == said


@pytest.mark.parametrize(
    ("normal_ms", "title"),
    [
        (100.0, "The ledger"),
        (65.0, "The ledger of the profiled steps (normal steps take 65.0 ms)"),
        (None, "The ledger"),
    ],
    ids=["alike", "slower", "untimed"],
)
def test_a_ledger_of_other_steps_than_the_card_says_so(normal_ms: float | None, title: str) -> None:
    lines = Counter(dict.fromkeys(LINES, 0) | {"compute": 1_000 * int(MS)})
    total: Any = SimpleNamespace(total_ns=1_000 * int(MS), step_count=10, lines=lines, parts={}, ranks=(0,))
    location: Any = SimpleNamespace(value=(normal_ms or 0.0) * MS)
    normal = None if normal_ms is None else NormalSteps(0, np.array([normal_ms * MS]), location)
    assert _ledger(total, normal).title == title


@pytest.mark.parametrize(
    ("slow", "profiled", "is_said"),
    [
        (range(400, 600), 8, True),
        (range(400, 600), 450, False),
        (range(0), 8, False),
        (range(400, 500), 8, False),  # it is over
        (range(400, 580), 8, False),
    ],
)
def test_a_job_that_became_slower_after_its_windows_is_said_to_have(slow: range, profiled: int, is_said: bool) -> None:
    timings, now = [], 0
    for step in range(600):
        took = round((300 if step in slow else 200) * MS)
        timings.append({"rank": 0, "attempt": 0, "step": step, "start": now, "stop": now + took, "profiled": False})
        now += took
    traced = [{"rank": 0, "step": step} for step in range(profiled, profiled + 3)]
    with MemoryRun(timings=timings, steps=traced, attempts=[{"rank": 0, "attempt": 0}]) as run:
        said = headline.describe_recording(run)  # type: ignore[arg-type]
    sentence = (
        "Since about step 400, steps take 50% longer than before; all profiled steps are from before that, so they do "
        "not show why."
    )
    assert (sentence in said) == is_said
    assert ("Since" in said) == is_said


def test_steps_and_report_count_the_same_profiled_steps() -> None:
    """The profiler also marks the step in which it starts and those in which it writes: no trace of them is kept."""
    times = {step: (step * 10 * MS, (step + 1) * 10 * MS) for step in range(12)}
    timings = [
        {"rank": 0, "attempt": 0, "step": step, "start": int(start), "stop": int(stop), "profiled": 4 <= step <= 9}
        for step, (start, stop) in times.items()
    ]
    traced = [{"rank": 0, "step": step} for step in (5, 6, 7)]
    with MemoryRun(timings=timings, steps=traced, attempts=[{"rank": 0, "attempt": 0}]) as run:
        found: Any = paces(run)  # type: ignore[arg-type]
        figures = report_recording(run, found, found[0]).to_json()  # type: ignore[arg-type]
        said = headline.describe_recording(run)  # type: ignore[arg-type]
    assert (figures["profiled_steps"], figures["steps_beside_window"], figures["window"]) == (3, 3, "5 to 7")
    assert said == "Recorded 12 steps; 3 of them were profiled."
