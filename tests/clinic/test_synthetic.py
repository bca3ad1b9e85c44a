"""Synthetic patients: each ingests, its ledger closes, and its disease stands on the lines that it is said to."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from clinic.synthetic import CASES, SYNTHETIC
from clinic.synthetic.case import Case
from clinic.visits import gain, make, place

from lostflops import Run
from lostflops.explain.analyze.report import report

QUICK = ("gpu_item_per_layer", "gpu_slow_device", "gpu_fp32")
SICK = [case for case in CASES if case.causes]


def shorter(case: Case) -> Case:
    return replace(case, sick=replace(case.sick, steps=4), cured=replace(case.cured, steps=4))


def lines_of_a_step(folder: Path) -> dict[str, float]:
    """Mean over ranks and steps; the ledger closes, and explains everything."""
    with Run.open(folder) as run:
        found = report(run).to_json()
    lines = {row["line"]: row["ns"] for row in found["ledger"]["lines"]}
    assert sum(lines.values()) == found["ledger"]["total_ns"]
    assert lines["unexplained"] == 0
    steps = len(found["window"]["steps"]) * found["quality"]["ranks_seen"]
    return {line: ns / steps for line, ns in lines.items()}


def check(case: Case, folder: Path) -> None:
    patient = case.patient
    make(patient, folder)
    sick = lines_of_a_step(place(folder, patient, cured=False))
    if not case.causes:
        return
    cured = lines_of_a_step(patient.make(place(folder, patient, cured=True), True))
    grown = Counter({line: sick[line] - cured[line] for line in sick})
    assert {line for line, _ in grown.most_common(len(case.lines))} == set(case.lines)
    saved = gain(patient, folder)
    assert saved is not None
    assert saved > 0.05


@pytest.mark.parametrize("name", QUICK)
def test_the_disease_is_on_its_line(name: str, tmp_path: Path) -> None:
    check(shorter(next(case for case in CASES if case.name == name)), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_disease_is_on_its_line(case: Case, tmp_path: Path) -> None:
    check(case, tmp_path)


def test_there_are_enough_of_each() -> None:
    causes = Counter(len(case.causes) for case in CASES)
    assert causes[1] >= 18
    assert causes[2] >= 3
    assert causes[0] >= 5
    assert len({patient.name for patient in SYNTHETIC}) == len(SYNTHETIC)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_jobs_vary_by_chance(case: Case) -> None:
    for cured in (False, True):
        job = case.cluster(cured)
        assert job.steps >= 4
        assert min(job.noise, job.host.jitter, job.network.jitter) > 0.01
    assert case.cluster(cured=False).seed != case.cluster(cured=True).seed


@pytest.mark.parametrize("case", SICK, ids=lambda case: case.name)
def test_the_cure_leaves_the_job_as_it_is(case: Case) -> None:
    sick, cured = case.sick, case.cured
    assert (sick.ranks, sick.hosts, sick.steps) == (cured.ranks, cured.hosts, cured.steps)
    assert (sick.tensor_parallel, sick.pipeline_parallel) == (cured.tensor_parallel, cured.pipeline_parallel)
    assert sum(sick.stage_layers) == sum(cured.stage_layers)
