"""The picture of all steps: each is where it was timed, and those that take much longer say why."""

from typing import Any

import pytest

from lostflops.account.pace.strip import MOST_OUTLIERS, MOST_STEPS, Timed, history_strip, strip, timed_strip
from lostflops.account.pace.timed_steps import TimedSteps
from lostflops.account.pace.timings import choose_pace, paces
from lostflops.explain.analyze.steps import steps
from memory_run import MemoryRun

MS = 1_000_000
PHASES = ("data", "forward", "backward", "optimizer", "outside")
USUAL = (1, 2, 4, 2, 1)


def timing(
    step: int, phases: tuple[int, ...] = USUAL, rank: int = 0, attempt: int = 0, **marks: bool
) -> dict[str, Any]:
    """Phases in ms."""
    start = (attempt * 1000 + step) * 1000 * MS
    told = {phase: ms * MS for phase, ms in zip(PHASES, phases, strict=True)}
    flags = {mark: marks.get(mark, False) for mark in ("compiled", "profiled", "skipped")}
    stop = start + sum(phases) * MS
    return {"rank": rank, "attempt": attempt, "step": step, "start": start, "stop": stop, **told, **flags}


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


def restarted() -> list[dict[str, Any]]:
    """Ten steps of 10 ms with a deep window from 3 to 5, then a restart with six of 20 ms, of which one takes 40 ms."""
    slow = (2, 4, 8, 4, 2)
    return [
        *(timing(number, profiled=3 <= number <= 5) for number in range(10)),
        *(timing(number, slow, attempt=1, profiled=number == 2) for number in range(5)),
        timing(5, (22, 4, 8, 4, 2), attempt=1),
    ]


def test_the_history_has_all_attempts_one_after_the_other():
    with MemoryRun(ranks=[{"rank": 0}], timings=restarted()) as run:
        plot = history_strip(run, paces(run))
    series = {one["series"]: dict(zip(one["number"], one["time_ns"], strict=True)) for one in plot.to_json()}
    assert series == {
        "steps": {**dict.fromkeys(range(10), 10 * MS), **dict.fromkeys(range(10, 15), 20 * MS)},
        "outlier: slow, most of it data": {15: 40 * MS},
        "median": {0: 10 * MS, 9: 10 * MS, 10: 20 * MS, 15: 20 * MS},
    }
    assert [(mark.name, mark.at) for mark in plot.marks] == [("attempt 1", 9.5)]
    assert [(band.start, band.stop) for band in plot.bands] == [(2.5, 5.5), (11.5, 12.5)]


def test_a_restarted_run_shows_its_history_and_json_has_windows_and_attempts():
    attempts = [
        {"rank": 0, "attempt": attempt, "start": attempt * 1000 * MS, "stop": attempt * 1000 * MS + 500 * MS}
        for attempt in (0, 1)
    ]
    with MemoryRun(ranks=[{"rank": 0}], timings=restarted(), attempts=attempts) as run:
        found = steps(run)
        asked = steps(run, steps=[1, 2])
    assert found.blocks[0].name == "history"
    told = found.to_json()
    assert dict(zip(told["step_times"][0]["step"], told["step_times"][0]["time_ns"], strict=True)) == dict.fromkeys(
        range(5), 20 * MS
    ), "of the newest attempt, by its own numbers"
    assert [tuple(row.values()) for row in told["deep_windows"]] == [(0, 3, 5), (1, 2, 2)]
    assert [(row["attempt"], row["first_step"], row["last_step"]) for row in told["attempts"]] == [(0, 0, 9), (1, 0, 5)]
    assert asked.blocks[0].name == "step_times"


def test_one_attempt_has_its_windows_shaded():
    rows = [timing(number, profiled=number in (3, 4, 8)) for number in range(10)]
    with MemoryRun(ranks=[{"rank": 0}], timings=rows) as run:
        plot = steps(run).blocks[0]
    assert plot.name == "step_times"
    assert [(band.start, band.stop) for band in plot.bands] == [(2.5, 4.5), (7.5, 8.5)]
    assert plot.marks == ()


@pytest.mark.parametrize("count", [0, 1])
def test_few_steps_have_no_median_line(count):
    assert [one.name for one in strip([Timed(1, 5.0)] * count, 5.0).series] == ["steps"]
