"""A library of recorded jobs: its order, what an interrupted one leaves, and what makes a finding right."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from clinic.library import OUTCOME, Entry, busy_cores, entries, make_entry, make_library, score_library
from clinic.outcomes import Named, earlier_rows, judge, measured_savings, rows_of, spread_between
from clinic.patients import Patient
from clinic.scoring import Finding, Outcome
from clinic.synthetic import CASES

from clinic import library
from lostflops.core.estimate import Kind, Strength

SICK = Outcome("late", ("straggler",), True, rank=1, busy=2, load=3.5)


def named(cause: str, *ranks: int, **more: object) -> Named:
    known = {"strength": Strength.STRONG, "kind": Kind.MEASURED, "value": 0.2, "low": 0.1, "high": 0.3}
    return Named(cause, **{**known, "ranks": ranks, **more})


def test_wherever_it_stops_the_library_is_balanced() -> None:
    for length in (60, 300, 900):
        first = list(entries())[:length]
        assert len({entry.name for entry in first}) == length
        real = [entry for entry in first if entry.patient.is_real]
        assert length / 8 < len(real) < length / 2 or length == 900
        loads = Counter(entry.busy for entry in real)
        assert max(loads.values()) <= min(loads.values()) + 1
        steps = Counter(entry.patient.job.steps for entry in real if entry.patient.job is not None)
        assert len(steps) >= 3
        assert len({entry.patient.name for entry in real}) >= min(len(real), 180)


def test_one_of_three_is_timed_at_each_load() -> None:
    real = [entry for entry in entries() if entry.patient.is_real]
    timed = Counter(entry.busy for entry in real if entry.rounds)
    assert sum(timed.values()) == pytest.approx(len(real) / 3, abs=2)
    assert max(timed.values()) < 1.1 * min(timed.values())


def test_a_varied_case_has_the_same_fault_of_another_size() -> None:
    for case in CASES[::7]:
        varied = case.varied(2)
        assert varied == case.varied(2)
        assert case.varied(0) == case
        assert (varied.name, varied.causes) == (case.name, case.causes)
        assert varied.cluster(False).seed != case.cluster(False).seed
        assert varied.sick.noise != case.sick.noise


def healthy(name: str, folder_of: list[str] | None = None, error: Exception | None = None) -> Entry:
    def make(folder: Path, _cured: bool) -> Path:
        if error is not None:
            raise error
        folder.mkdir(parents=True)
        (folder / "run.json").write_text("{}")
        if folder_of is not None:
            folder_of.append(name)
        return folder

    return Entry(f"{name}-0", Patient(name, (), is_real=True, make=make))


def test_an_entry_that_is_there_is_not_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    monkeypatch.setattr(library, "entries", lambda _only: iter([healthy("a", made), healthy("b", made)]))
    assert make_library(tmp_path, limit=1) == 1
    assert make_library(tmp_path) == 1
    assert make_library(tmp_path) == 0
    assert made == ["a", "b"]
    told = json.loads((tmp_path / "a-0" / OUTCOME).read_text())
    assert Outcome.from_json(told).load is not None


def test_an_entry_that_failed_is_made_again_and_not_scored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torn = healthy("a", error=RuntimeError("exit code 1\nand more"))
    assert make_entry(torn, tmp_path).failed == "did not run: exit code 1"
    assert all(row.entry != torn.name for row in score_library(tmp_path))
    monkeypatch.setattr(library, "entries", lambda _only: iter([healthy("a")]))
    assert make_library(tmp_path) == 1


def test_what_was_interrupted_leaves_no_entry(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        make_entry(healthy("a", error=KeyboardInterrupt()), tmp_path)  # type: ignore[arg-type]
    assert not (tmp_path / "a-0").exists()
    make_entry(healthy("b"), tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir() if not path.name.startswith(".")) == ["b-0"]


def test_cores_are_busy_only_meanwhile() -> None:
    def used() -> float:
        return sum(os.times()[2:4])

    before = used()
    with busy_cores(1):
        time.sleep(0.5)
    assert used() - before > 0.05


def test_a_simulated_job_is_made_and_scored(tmp_path: Path) -> None:
    case = next(case for case in CASES if case.name == "gpu_slow_device")
    made = make_entry(Entry("gpu_slow_device-1", case.varied(1).patient), tmp_path)
    assert len(made.rounds) == 3
    rows = [row for row in score_library(tmp_path) if row.entry == "gpu_slow_device-1"]
    assert [(row.job, row.cause, row.is_right, row.is_real) for row in rows] == [
        ("gpu_slow_device", "straggler", True, False)
    ]
    (row,) = rows
    assert row.measured == pytest.approx(row.value, abs=0.05)
    assert 0 < row.error < 0.01
    assert {row.entry for row in score_library(tmp_path) if row.job == "gpu_slow_device"} == {row.entry}


def test_a_finding_is_right_if_it_names_the_cause_and_its_rank() -> None:
    assert judge(SICK, named("straggler", 1))
    assert judge(SICK, named("straggler", 0)) is False
    assert judge(SICK, named("straggler", 0, 1)) is False
    assert judge(SICK, named("sync", 1)) is False
    either = replace(SICK, accepted=(("straggler", "checkpoint"),), rank=None)
    assert judge(either, named("checkpoint"))


def test_in_a_healthy_job_every_finding_is_wrong() -> None:
    healthy_job = replace(SICK, causes=(), rank=None)
    rows = list(rows_of(healthy_job, "x", [named("sync"), named("straggler", 1)], (0.2, 0.01)))
    assert [(row.is_right, row.measured) for row in rows] == [(False, None), (False, None)]
    (quiet,) = rows_of(healthy_job, "x", [], None)
    assert (quiet.cause, quiet.is_right, quiet.load) == ("", None, 3.5)


def test_the_saving_of_one_fix_is_known_only_where_there_is_one_fault() -> None:
    found = [named("straggler", 1), named("sync")]
    assert [row.measured for row in rows_of(SICK, "x", found, (0.25, 0.01))] == [0.25, None]
    both = replace(SICK, causes=("straggler", "sync"), rank=None)
    assert [row.measured for row in rows_of(both, "x", found, (0.25, 0.01))] == [None, None]


def test_a_saving_that_was_not_measured_here_is_taken_from_elsewhere() -> None:
    timed = replace(SICK, name="a", measured=0.3, rounds=(0.28, 0.3, 0.32))
    again = replace(SICK, name="a")
    other = replace(SICK, name="b")
    unknown = replace(SICK, name="c")
    earlier = [
        replace(SICK, name=name, measured=saving)
        for name, saving in (("a", 0.4), ("b", 0.1), ("b", 0.2), ("b", 0.3), ("b", 0.2))
    ]
    savings = measured_savings([timed, again, other, unknown], earlier)
    apart = spread_between([timed, other], {"a": [0.4, 0.3], "b": [0.1, 0.2, 0.3, 0.2]})
    assert apart == pytest.approx(0.1 / 0.6745 / 2**0.5)
    assert savings[0] == (0.3, pytest.approx(0.02 / 3**0.5))
    assert savings[1:] == [(pytest.approx(0.35), apart), (0.2, apart), None]
    assert measured_savings([timed, again]) == [savings[0], None]


def test_outcomes_of_earlier_code_are_used_as_what_they_say() -> None:
    found = Finding("straggler", 0.2, 0.1, 0.3, (1,))
    bound = Finding("sync", 0.3, 0.0, 0.3, is_suspected=True)
    rows = list(
        earlier_rows(replace(SICK, findings=(found, bound, Finding("gc")), measured=0.25), "set/late", is_unseen=True)
    )
    assert [(row.kind, row.strength, row.is_right, row.measured) for row in rows] == [
        (Kind.REPLAYED, None, True, None),
        (Kind.BOUND, Strength.WEAK, False, None),
        (None, None, False, None),
    ]
    assert list(earlier_rows(replace(SICK, skipped="needs root"), "set/late", is_unseen=True)) == []
