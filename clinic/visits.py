"""A visit: a patient's run is made or found, diagnosed, cured, and measured."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any, Final

from clinic.measure import step_ns
from clinic.patients import NotHere, Patient
from clinic.scoring import Finding, Outcome
from lostflops.store.run import Run

ROUNDS: Final = 2
"""Rounds of sick and cured runs, in turn, that a saving is measured from."""
Diagnose = Callable[[Run], list[dict[str, Any]]]


def diagnosed(run: Run) -> list[dict[str, Any]]:
    """The findings of `lostflops diagnose --json`."""
    from lostflops.explain.advise.diagnose import diagnose  # noqa: PLC0415

    return list(diagnose(run).to_json()["findings"])


def place(folder: Path, patient: Patient, *, cured: bool) -> Path:
    return folder / patient.name / ("cured" if cured else "sick")


def make(patient: Patient, folder: Path, rounds: int = ROUNDS) -> None:
    """Record the patient. Its cured variant is recorded too, or both are timed in turn where they time themselves."""
    patient.make(place(folder, patient, cured=False), False)
    if patient.is_healthy:
        return
    if patient.time is None:
        patient.make(place(folder, patient, cured=True), True)
        return
    seconds = [[patient.time(False), patient.time(True)] for _ in range(rounds)]
    _times(folder, patient).write_text(json.dumps(seconds), encoding="utf-8")


def visit(
    patient: Patient, folder: Path, *, runs: bool = True, rounds: int = ROUNDS, diagnose: Diagnose = diagnosed
) -> Outcome:
    """`runs` says to run the job; else its runs are taken as they are in the folder."""
    outcome = replace(Outcome.of(patient), load=os.getloadavg()[0] if runs else None)
    try:
        if runs:
            make(patient, folder, rounds)
    except NotHere as error:
        return replace(outcome, skipped=str(error))
    except (RuntimeError, TimeoutError, subprocess.TimeoutExpired) as error:
        return replace(outcome, failed=f"did not run: {str(error).splitlines()[0]}")
    sick = place(folder, patient, cured=False)
    if not (sick / "run.json").exists():
        return replace(outcome, skipped="no run of it is there")
    outcome = replace(outcome, measured=gain(patient, folder), rounds=gains(patient, folder))
    try:
        with Run.open(sick) as run:
            return replace(outcome, findings=tuple(map(Finding.from_diagnosis, diagnose(run))))
    except Exception as error:  # noqa: BLE001 (whatever ends a diagnosis, it is a wrong one)
        return replace(outcome, failed=f"{type(error).__name__}: {error}")


def gain(patient: Patient, folder: Path) -> float | None:
    """Return what part of the sick step the cure saves; None where there is no cured run."""
    if rounds := gains(patient, folder):
        return median(rounds)
    cured = place(folder, patient, cured=True)
    if patient.is_healthy or not (cured / "run.json").exists():
        return None
    with Run.open(place(folder, patient, cured=False)) as before, Run.open(cured) as after:
        return 1 - step_ns(after, per_sample=patient.is_per_sample) / step_ns(before, per_sample=patient.is_per_sample)


def gains(patient: Patient, folder: Path) -> tuple[float, ...]:
    """Return the saving of each round of sick and cured runs without a recorder."""
    times = _times(folder, patient)
    if not times.exists():
        return ()
    return tuple(1 - cured / sick for sick, cured in json.loads(times.read_text(encoding="utf-8")))


def _times(folder: Path, patient: Patient) -> Path:
    return folder / patient.name / "times.json"
