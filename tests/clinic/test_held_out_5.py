"""Jobs of the fifth held-out set: who is in it, and that each trains without losing a token."""

import json
import math
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest
from clinic.patients import Patient
from clinic.record import STEP_TIMES, Job, run
from clinic.registry import chosen

FIFTH = chosen(held_out=5)


def test_ten_are_uneven_and_five_are_healthy() -> None:
    assert [patient.causes for patient in FIFTH] == [("expert_imbalance",)] * 10 + [()] * 5
    assert len({patient.name for patient in FIFTH}) == len(FIFTH)
    assert len({patient.job.script for patient in FIFTH if patient.job}) == len(FIFTH)
    assert all(patient.time is not None for patient in FIFTH if not patient.is_healthy)
    assert sum(patient.rank is not None for patient in FIFTH) == 7
    assert sum(bool(patient.layer) for patient in FIFTH) == 2


@pytest.mark.parametrize("patient", FIFTH, ids=lambda patient: patient.name)
def test_a_job_has_four_ranks_and_enough_steps(patient: Patient) -> None:
    job = patient.job
    assert job is not None
    assert Path(job.script).is_file()
    assert job.ranks == 4
    assert 40 <= job.plain_steps <= job.steps <= 60


def train(job: Job, folder: Path) -> tuple[int, int]:
    """Train three steps; return how many rows were sent to experts and how many arrived, on all ranks."""
    times, log = folder / "times.json", folder / "log"
    code = run(replace(job, steps=3).command, log, {STEP_TIMES: str(times)})
    assert code == 0, log.read_text(errors="replace")
    written = json.loads(times.read_text(encoding="utf-8"))
    assert len(written["seconds"]) == 3
    assert math.isfinite(written["loss"])
    sent, arrived = written["rows"]
    return sent, arrived


@pytest.mark.skipif(find_spec("torch") is None, reason="no torch")
@pytest.mark.slow
@pytest.mark.parametrize("patient", FIFTH, ids=lambda patient: patient.name)
def test_all_tokens_arrive_and_the_fixed_job_has_as_many(patient: Patient, tmp_path: Path) -> None:
    assert patient.job is not None
    sent, arrived = train(patient.job, tmp_path)
    assert sent == arrived > 0
    if patient.fixed is not None:
        assert train(patient.fixed, tmp_path) == (sent, arrived)
