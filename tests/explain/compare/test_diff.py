"""Two jobs compared: made ones whose truth is known."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from lostflops.core.errors import UsageError
from lostflops.explain.compare.diff import diff
from lostflops.explain.compare.gate import GateOutcome, gate
from lostflops.explain.compare.series import StepTimes
from lostflops.explain.compare.sides import compare_sides, read_pair
from lostflops.testing import Straggler, SyntheticCluster, store
from made_timed_runs import noisy, recorded


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Three runs of a job, three of the same and three that are a tenth slower, recorded in turns."""
    folder = tmp_path_factory.mktemp("made")
    for number in range(9):
        side, level = (("a", 10), ("b", 10), ("slow", 11))[number % 3]
        recorded(folder / side / f"{number}", noisy(number, level=level), start=number * 10_000_000_000)
    return folder


def runs(folder: Path) -> list[Path]:
    return sorted(folder.iterdir())


def told(before, after, **more):
    return diff(read_pair(before, after, accounted=True, **more)).to_json()


def test_a_tenth_is_found(made):
    found = told(runs(made / "a"), runs(made / "slow"))
    assert found["answer"] == "slower"
    assert found["step"]["low"] < 0.1 < found["step"]["high"]
    assert found["step"]["runs"] == [3, 3]
    assert found["step"]["steps"] == [180, 180]  # without the first of each run
    assert found["step"]["before_ns"] == pytest.approx(10e6, rel=0.02)
    assert found["steps_from"] == "timings"
    assert found["same"]["model"].startswith("16 parameters")
    back = told(runs(made / "slow"), runs(made / "a"))
    assert back["answer"] == "faster"
    assert back["step"]["change"] == pytest.approx(1 / (1 + found["step"]["change"]) - 1)


def test_the_same_job_is_no_difference(made):
    found = told(runs(made / "a"), runs(made / "b"))
    assert found["answer"] in ("no difference", "inconclusive")
    assert found["step"]["low"] < 0 < found["step"]["high"]


def test_one_run_of_each_says_what_it_lacks(made):
    found = told(runs(made / "a")[:1], runs(made / "b")[:1])
    assert found["answer"] == "inconclusive"
    assert any("With one run per side" in note for note in found["notes"])
    assert "record" in found["verdict"]
    assert found["needed_runs"] > 2


@pytest.mark.parametrize("steps", [60, 3])
def test_one_run_of_each_decides_a_large_difference(tmp_path, steps):
    """1.22 s against 247 ms: a factor of five, from three steps too."""
    sides = [
        recorded(tmp_path / name, noisy(number, level=level, steps=steps), start=number * 10**11)
        for number, (name, level) in enumerate((("a", 1220), ("b", 247)))
    ]
    found = told(sides[:1], sides[1:])
    assert found["answer"] == "faster"
    assert found["step"]["low"] < 247 / 1220 - 1 < found["step"]["high"] < -0.5


def test_one_run_of_each_decides_thirty_percent(tmp_path):
    sides = [recorded(tmp_path / f"{level}", noisy(level, level=level), start=level * 10**11) for level in (10, 13)]
    assert told(sides[:1], sides[1:])["answer"] == "slower"


def test_a_machine_that_drifts_widens_the_interval(tmp_path):
    """The second half of each run is 1.4 times as long, as beside another job: so may all of another run be."""
    sides = []
    for number, level in enumerate((10, 12)):
        times = noisy(number, level=level)
        times[30:] = [1.4 * time for time in times[30:]]
        sides.append(recorded(tmp_path / f"{number}", times, start=number * 10**11))
    found = told(sides[:1], sides[1:])
    assert found["answer"] == "inconclusive"
    assert found["step"]["low"] < -0.1


def test_what_is_asked_for_fits_what_was_seen(made, tmp_path):
    """A third less, in steps that differ so much that one run of each does not decide."""
    wild = [
        recorded(tmp_path / name, [at * by for by in (1, 3, 3, 1, 1, 3, 1, 3, 3, 1)])
        for name, at in (("a", 9), ("b", 6))
    ]
    found = told([wild[0]], [wild[1]])
    assert found["answer"] == "inconclusive"
    assert found["needed_effect"] == pytest.approx(1 / 3, abs=0.01)
    assert found["needed_runs"] < 20


def test_a_mean_that_may_differ_decides_nothing(tmp_path):
    """Typical steps are alike; every tenth of some runs of B is ten times as long."""
    long = {1: 100, 3: 10, 5: 10}
    sides = [
        [
            recorded(tmp_path / f"{n}", [*[9.9, 10.1] * 9, long.get(n, 10), 10.0], start=n * 10_000_000_000)
            for n in range(first, 6, 2)
        ]
        for first in (0, 1)
    ]
    found = told(*sides)
    assert found["answer"] == "inconclusive"
    assert "the mean differs by" in found["verdict"]
    answer, result = gate(read_pair(*sides), 0.05)
    assert result is GateOutcome.INCONCLUSIVE
    assert "Only the mean is open" in answer.verdict


def test_the_same_recording_counts_once(made):
    with pytest.raises(UsageError, match="same recording"):
        read_pair(runs(made / "a"), runs(made / "a")[:1])


def test_one_step_of_each_tells_nothing(tmp_path):
    few = [recorded(tmp_path / name, [ms, ms]) for name, ms in (("a", 10), ("b", 30))]
    one = read_pair([few[0]], [few[1]])
    assert one.typical.value == pytest.approx(2.0)
    single = [replace(run, steps=StepTimes(run.steps.times[:1])) for run in (*one.before, *one.after)]
    found = diff(compare_sides((single[0],), (single[1],), is_timed=True, comparison=one.comparison)).to_json()
    assert found["answer"] == "inconclusive"
    assert found["step"]["high"] is None
    assert "range unknown" in found["verdict"]


def test_the_run_without_steps_is_named(made, tmp_path):
    """Not one that has them, but no trace."""
    none = recorded(tmp_path / "none", [])
    with pytest.raises(UsageError, match=f"{none} has no step"):
        read_pair(runs(made / "a"), [none])


def test_runs_that_were_not_recorded_in_turns_are_noted(made):
    first, second = runs(made / "a"), runs(made / "b")
    assert not any("alternately" in note for note in told(first, second)["notes"])
    assert any("alternately" in note for note in told([first[0], second[0]], [first[2], second[2]])["notes"])


@pytest.mark.parametrize(
    ("fact", "other"),
    [
        ("world size", {"world": 2}),
        ("device", {"device": "cuda", "device_name": "NVIDIA H100"}),
        ("model", {"parameters": [("weight", [4, 5])]}),
    ],
)
def test_another_job_is_refused(made, tmp_path, fact, other):
    run = recorded(tmp_path / "other", noisy(50), **other)
    with pytest.raises(UsageError, match=f"different jobs: .*{fact}"):
        read_pair(runs(made / "a"), [run])
    found = told(runs(made / "a"), [run], anyway=True)
    assert fact in {row["fact"] for row in found["differing"]}


def test_another_batch_is_compared_per_sample(made, tmp_path):
    """Twice the samples in 1.6 times the time."""
    large = [recorded(tmp_path / f"{n}", noisy(60 + n, level=16), samples=16, torch="2.14.0") for n in range(3)]
    found = told(runs(made / "a"), large)
    assert found["answer"] == "faster"
    assert found["step"]["unit"] == "sample"
    assert found["step"]["change"] == pytest.approx(-0.2, abs=0.02)
    assert {row["fact"] for row in found["differing"]} == {"samples per step", "torch"}


@pytest.fixture(scope="module")
def clusters(tmp_path_factory):
    folder = tmp_path_factory.mktemp("clusters")
    for name, late in (("even", ()), ("late", (Straggler(1, "slow_kernels", factor=1.5),))):
        store(SyntheticCluster(ranks=3, stragglers=late).generate(), folder / name)
    return folder


def test_lines_sum_to_the_difference_of_the_step(clusters):
    found = told([clusters / "even"], [clusters / "late"])
    *lines, step = found["lines"]
    assert step["line"] == "step"
    for key in ("before_ns", "after_ns", "delta_ns"):
        assert sum(line[key] for line in lines) == step[key]
    assert step["delta_ns"] > 0
    assert found["step"]["after_ns"] - found["step"]["before_ns"] == pytest.approx(step["delta_ns"], rel=0.01)
    assert found["steps_from"] == "trace"
    assert {line["line"] for line in lines[:2]} == {"compute", "comm.wait"}
    slower = {row["change"] for row in found["kernels"]}
    assert slower == {"longer"}
    assert json.dumps(found)


def test_collectives_that_changed(clusters, tmp_path):
    """Twice the layers: as many collectives, each of more bytes."""
    plain = SyntheticCluster(ranks=3)
    more = store(
        replace(plain, model=replace(plain.model, layers=plain.model.layers * 2)).generate(), tmp_path / "more"
    )
    found = told([clusters / "even"], [more])
    (reduced,) = (row for row in found["collectives"] if row["collective"].startswith("all_reduce"))
    assert reduced["change"] == "longer"
    assert reduced["after_calls"] == reduced["before_calls"] > 0
    assert reduced["after_bytes"] > 1.5 * reduced["before_bytes"] > 0
