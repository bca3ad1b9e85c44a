"""`lostflops steps`."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.cli.mini_traces import BUSY, CALM, kernel, launch, make_run, op, step

from report_checks import LINES


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("golden"), BUSY, CALM)


def answer(lostflops: Any, *words: str | Path) -> dict[str, Any]:
    outcome = lostflops("steps", *words, "--json")
    assert (outcome.code, outcome.err) == (0, "")
    return json.loads(outcome.out)


def many_steps(durations: list[int]) -> list[dict[str, Any]]:
    """Steps that follow each other, each with one kernel that ends 10 before it does."""
    events, start = [], 0
    for number, duration in enumerate(durations):
        events += [
            step(number, start, duration),
            op("aten::mm", start + 1, 6),
            launch(number, start + 2),
            kernel(number, start + 10, duration - 10),
        ]
        start += duration
    return events


def test_json(lostflops, golden: Path) -> None:
    found = answer(lostflops, golden)
    assert found.keys() == {"schema", "title", "verdict", "notes", "steps", "spread", "ranks", "step_times"}
    assert found["schema"] == "lostflops.steps/1"
    assert found["steps"] == [
        {
            "step": 10,
            "wall_ns": 110_000,
            "slowest_rank": 0,
            "slowest_ns": 120_000,
            "compute": pytest.approx(90 / 220),
            "comm": pytest.approx(20 / 220),
            "copy": 0.0,
            "idle": pytest.approx(110 / 220),
            "mark": "slow",
        },
        {
            "step": 11,
            "wall_ns": 46_000,
            "slowest_rank": 0,
            "slowest_ns": 52_000,
            "compute": pytest.approx(70 / 92),
            "comm": 0.0,
            "copy": pytest.approx(5 / 92),
            "idle": pytest.approx(17 / 92),
            "mark": "",
        },
    ]
    assert found["spread"] == {
        "median_ns": 78_000,
        "shortest_ns": 46_000,
        "longest_ns": 110_000,
        "steps_per_second": pytest.approx(1e9 / 78_000),
    }


def test_json_holds_every_rank_and_step(lostflops, golden: Path) -> None:
    expected = {
        (0, 10): {
            "compute": 40_000,
            "comm.transfer": 20_000,
            "idle.data": 20_000,
            "idle.host": 8_000,
            "idle.python": 20_000,
            "idle.dependency": 12_000,
        },
        (0, 11): {
            "compute": 30_000,
            "copy": 5_000,
            "idle.host": 10_000,
            "idle.python": 4_000,
            "idle.dependency": 3_000,
        },
        (1, 10): {"compute": 50_000, "idle.host": 8_000, "idle.python": 42_000},
        (1, 11): {"compute": 40_000},
    }
    rows = answer(lostflops, golden)["ranks"]
    assert [(row["rank"], row["step"]) for row in rows] == list(expected)
    for row in rows:
        assert tuple(row["lines"]) == LINES
        assert {line: ns for line, ns in row["lines"].items() if ns} == expected[row["rank"], row["step"]]
        assert row["wall_ns"] == sum(row["lines"].values())


def test_text(lostflops, golden: Path) -> None:
    lines = lostflops("steps", golden).out.splitlines()
    assert lines[:2] == ["Steps", "2 steps; the median takes 78.0 us; step 10 takes 1.41 times as long."]
    assert any(line.split()[:6] == ["10", "110", "us", "0", "120", "us"] for line in lines)
    assert any(line.split()[-1:] == ["slow"] for line in lines)
    assert lines[-1] == f"Next: lostflops report {golden} --step 10"


def test_one_rank_and_one_step(lostflops, golden: Path) -> None:
    found = answer(lostflops, golden, "--rank", "1", "--step", "11")
    assert [(row["rank"], row["step"], row["wall_ns"]) for row in found["ranks"]] == [(1, 11, 40_000)]
    assert found["verdict"] == "1 step; it takes 40.0 us."
    assert lostflops("steps", golden, "--rank", "1", "--step", "11").out.splitlines()[-1].endswith("--step 11")


def test_the_slow_ones_are_marked(lostflops, tmp_path: Path) -> None:
    """Step 0 begins with its kernel: 10 less than it takes the host."""
    found = answer(lostflops, make_run(tmp_path, many_steps([110, 100, 120, 121, 100, 300, 100])))
    assert found["spread"]["steps_per_second"] == pytest.approx(7e6 / 941), "of the time of all, not of the median"
    assert [row["wall_ns"] for row in found["steps"]] == [110_000, 100_000, 120_000, 121_000, 100_000, 300_000, 90_000]
    assert [row["step"] for row in found["steps"] if row["mark"]] == [5]
    assert found["verdict"] == "7 steps; the median takes 110 us; step 5 takes 2.73 times as long."


def test_several_slow_ones(lostflops, tmp_path: Path) -> None:
    found = answer(lostflops, make_run(tmp_path, many_steps([100, 100, 100, 200, 100, 100, 300, 100])))
    assert [row["step"] for row in found["steps"] if row["mark"]] == [3, 6]
    assert found["verdict"].startswith("8 steps; the median takes 100 us; 2 are slower: step")
    assert "3.00 times as long" in found["verdict"]


def test_steps_that_were_not_recorded_lie_between(lostflops, tmp_path: Path) -> None:
    """A step does not reach over those that were left out: it ends with its own last event."""
    events = [event for event in many_steps([100] * 5) if not event["name"].endswith(("#2", "#3"))]
    found = answer(lostflops, make_run(tmp_path, events))
    assert [(row["step"], row["wall_ns"]) for row in found["steps"]] == [(0, 100_000), (1, 90_000), (4, 90_000)]


def test_a_slow_step_behind_many_others(lostflops, tmp_path: Path) -> None:
    run = make_run(tmp_path, many_steps([100] * 45 + [500] + [100] * 5))
    outcome = lostflops("steps", run)
    assert "step 45 takes 5.00 times as long" in outcome.out
    assert outcome.out.splitlines()[-1] == f"Next: lostflops report {run} --step 45"
    found = answer(lostflops, run)
    assert [row["step"] for row in found["steps"] if row["mark"]] == [45]


def test_many_steps_are_all_in_json(lostflops, tmp_path: Path) -> None:
    run = make_run(tmp_path, many_steps([100] * 50))
    assert [row["step"] for row in answer(lostflops, run)["ranks"]] == list(range(50))
    assert "... and 10 more" in lostflops("steps", run).out


def test_the_picture_says_on_which_line_a_slow_step_lost_its_time(lostflops, tmp_path: Path) -> None:
    events = many_steps([100, 100, 100, 100])
    events += [step(4, 400, 300), op("aten::mm", 401, 6), launch(4, 402), kernel(4, 640, 50)]
    found = answer(lostflops, make_run(tmp_path, events))["step_times"]
    by_name = {one["series"]: one for one in found}
    assert [*by_name][1].startswith("outlier: slow, most of it ")
    slow = {row["step"]: row for row in answer(lostflops, tmp_path / "run")["ranks"]}
    (number,) = by_name[[*by_name][1]]["step"]
    usual = slow[min(slow)]["lines"]
    most = max(LINES, key=lambda line: slow[number]["lines"][line] - usual[line])
    assert [*by_name][1] == f"outlier: slow, most of it {most}"
    assert by_name[[*by_name][1]]["time_ns"] == [slow[number]["wall_ns"]]
