"""A reduced clinic: a few patients are made, diagnosed, and must get their cause as first finding."""

from importlib.util import find_spec
from pathlib import Path

import pytest
from clinic.patients import Patient
from clinic.registry import PATIENTS, chosen
from clinic.visits import diagnosed, place

from lostflops.explain.advise.rules import RULES
from lostflops.store.run import Run

REAL = "loader_without_workers"
CAUSES = ("input_pipeline", "straggler", "few_microbatches")
"""One synthetic patient of each, and a healthy one."""
KNOWN = {rule.cause for rule in RULES}


def synthetic(causes: tuple[str, ...]) -> Patient | None:
    return next((patient for patient in PATIENTS if not patient.is_real and patient.causes == causes), None)


def first_finding(patient: Patient, folder: Path) -> str:
    sick = place(folder, patient, cured=False)
    patient.make(sick, False)
    with Run.open(sick) as run:
        found = diagnosed(run)
    return found[0]["cause"] if found else "nothing"


@pytest.mark.parametrize("cause", CAUSES)
def test_a_synthetic_patient_gets_its_cause(cause: str, tmp_path: Path) -> None:
    patient = synthetic((cause,))
    if patient is None or cause not in KNOWN:
        pytest.skip(f"no rule or no synthetic patient of {cause}")
    assert first_finding(patient, tmp_path) == cause


@pytest.mark.parametrize("name", ["gpu_shards_reduced_late", "gpu_healthy_sharded_hosts"])
def test_what_unseen_patients_taught(name: str, tmp_path: Path) -> None:
    (patient,) = chosen((name,), held_out=1)
    assert first_finding(patient, tmp_path) == (patient.causes[0] if patient.causes else "nothing")


def test_a_healthy_patient_is_left_alone(tmp_path: Path) -> None:
    patient = synthetic(())
    if patient is None:
        pytest.skip("no healthy synthetic patient")
    assert first_finding(patient, tmp_path) == "nothing"


@pytest.mark.skipif(find_spec("torch") is None, reason="no torch")
@pytest.mark.slow
def test_a_real_patient_gets_its_cause(tmp_path: Path) -> None:
    (patient,) = chosen([REAL])
    if not {*patient.causes} <= KNOWN:
        pytest.skip(f"no rule of {patient.causes[0]}")
    assert first_finding(patient, tmp_path) in patient.causes
