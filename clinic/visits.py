"""A visit: a patient's run is made or found, diagnosed, cured, and measured."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from clinic.measure import step_ns
from clinic.patients import NotHere, Patient
from clinic.scoring import Outcome
from lostflops.store.run import Run

Diagnose = Callable[[Run], list[dict[str, Any]]]


def diagnosed(run: Run) -> list[dict[str, Any]]:
    """The findings of `lostflops diagnose --json`."""
    from lostflops.advise.diagnose import diagnose  # noqa: PLC0415

    return list(diagnose(run).to_json()["findings"])


def place(folder: Path, patient: Patient, *, cured: bool) -> Path:
    return folder / patient.name / ("cured" if cured else "sick")


def make(patient: Patient, folder: Path) -> None:
    """Runs the patient, and its cured variant where it has one."""
    for cured in (False,) if patient.is_healthy else (False, True):
        patient.make(place(folder, patient, cured=cured), cured)


def visit(patient: Patient, folder: Path, *, runs: bool = True, diagnose: Diagnose = diagnosed) -> Outcome:
    """`runs` says to run the job; else its runs are taken as they are in the folder."""
    told: dict[str, Any] = {"name": patient.name, "causes": patient.causes, "is_real": patient.is_real}
    try:
        if runs:
            make(patient, folder)
    except NotHere as error:
        return Outcome(**told, skipped=str(error))
    except (RuntimeError, TimeoutError, subprocess.TimeoutExpired) as error:
        return Outcome(**told, failed=f"did not run: {str(error).splitlines()[0]}")
    sick = place(folder, patient, cured=False)
    if not (sick / "run.json").exists():
        return Outcome(**told, skipped="no run of it is there")
    measured = gain(patient, folder)
    try:
        with Run.open(sick) as run:
            found = tuple((one["cause"], _gain_of(one)) for one in diagnose(run))
    except Exception as error:  # noqa: BLE001 (whatever ends a diagnosis, it is a wrong one)
        return Outcome(**told, measured=measured, failed=f"{type(error).__name__}: {error}")
    return Outcome(**told, found=found, measured=measured)


def _gain_of(finding: dict[str, Any]) -> float | None:
    prediction = finding["prediction"]
    return None if prediction is None else float(prediction["gain"])


def gain(patient: Patient, folder: Path) -> float | None:
    """What part of the sick step the cure saves; None where there is no cured run."""
    cured = place(folder, patient, cured=True)
    if patient.is_healthy or not (cured / "run.json").exists():
        return None
    with Run.open(place(folder, patient, cured=False)) as before, Run.open(cured) as after:
        return 1 - step_ns(after, per_sample=patient.is_per_sample) / step_ns(before, per_sample=patient.is_per_sample)
