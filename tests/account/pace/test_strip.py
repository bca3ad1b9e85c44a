"""The picture of all steps: each is where it was timed, and those that take much longer say why."""

from typing import Any

import pytest

from lostflops.account.pace.strip import MOST_OUTLIERS, MOST_STEPS, Timed, strip, timed_strip
from lostflops.account.pace.timed_steps import TimedSteps
from lostflops.account.pace.timings import choose_pace, paces
from lostflops.explain.analyze.steps import steps
from memory_run import MemoryRun

MS = 1_000_000
PHASES = ("data", "forward", "backward", "optimizer", "outside")
USUAL = (1, 2, 4, 2, 1)


def timing(step: int, phases: tuple[int, ...] = USUAL, rank: int = 0, **marks: bool) -> dict[str, Any]:
    """Phases in ms."""
    start = step * 1000 * MS
    told = {phase: ms * MS for phase, ms in zip(PHASES, phases, strict=True)}
    flags = {mark: marks.get(mark, False) for mark in ("compiled", "profiled", "skipped")}
    return {"rank": rank, "attempt": 0, "step": step, "start": start, "stop": start + sum(phases) * MS, **told, **flags}


def drawn(plot: Any) -> dict[str, dict[int, int]]:
    return {one["series"]: dict(zip(one["step"], one["time_ns"], strict=True)) for one in plot.to_json()}


def test_every_step_has_its_time_and_outliers_their_reason():
    rows = [
        timing(0, (50, 2, 4, 2, 1)),
        *(timing(number) for number in (1, 2, 3, 4)),
        timing(5, (9, 2, 4, 2, 1)),
        timing(6, (1, 2, 4, 2, 1), compiled=True),
        timing(7, (1, 2, 44, 2, 1), compiled=True),
        timing(8, (1, 2, 8, 2, 1)),
        timing(9, (3, 4, 8, 4, 2), profiled=True),
    ]
    with MemoryRun(ranks=[{"rank": 0}], timings=rows) as run:
        pace = choose_pace(paces(run))
        found = drawn(timed_strip(run, pace))
    usual = dict.fromkeys((1, 2, 3, 4, 6), 10 * MS)
    assert found == {
        "steps": usual,
        "outlier: compiled": {7: 50 * MS},
        "outlier: first of the attempt": {0: 59 * MS},
        "outlier: profiled": {9: 21 * MS},
        "outlier: slow, most of it backward": {8: 14 * MS},
        "outlier: slow, most of it data": {5: 18 * MS},
        "median": {0: 10 * MS, 9: 10 * MS},
    }


def test_a_step_is_the_median_of_its_ranks():
    rows = [timing(step, (1, 2, 4 + rank, 2, 1), rank) for step in range(4) for rank in range(3)]
    with MemoryRun(ranks=[{"rank": rank} for rank in range(3)], timings=rows) as run:
        assert drawn(timed_strip(run, choose_pace(paces(run))))["steps"] == dict.fromkeys(range(4), 11 * MS)
        told = TimedSteps.of(run, [2])
        assert drawn(timed_strip(run, told.pace, [2]))["steps"] == dict.fromkeys(range(4), 12 * MS)


def test_all_timed_steps_are_in_the_answer_and_those_asked_for_alone():
    with MemoryRun(ranks=[{"rank": 0}], timings=[timing(number) for number in range(60)]) as run:
        found, some = steps(run), steps(run, steps=[3, 5])
    assert found.blocks[0].name == "step_times"
    assert [*drawn(found.blocks[0])["steps"]] == [*range(60)]
    assert [*drawn(some.blocks[0])["steps"]] == [3, 5]


def test_very_many_steps_are_thinned_and_outliers_kept():
    many = [Timed(number, 10.0, "slow" if number % 10 == 0 else "") for number in range(20_000)]
    plot = strip(many, 10.0)
    assert [series.name for series in plot.series] == ["steps, one in 5", "outlier: slow", "median"]
    assert len(plot.series[0].points) <= MOST_STEPS
    assert len(plot.series[1].points) == MOST_OUTLIERS


@pytest.mark.parametrize("count", [0, 1])
def test_few_steps_have_no_median_line(count):
    assert [one.name for one in strip([Timed(1, 5.0)] * count, 5.0).series] == ["steps"]
