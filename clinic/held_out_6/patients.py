"""The patients of the sixth held-out set."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Final

from clinic.held_out_6.truth import JOBS, NO_ID, TRUTHS, WELL, Truth
from clinic.patients import Patient
from clinic.record import Job, record, time_job

PLAIN_STEPS: Final = 44


def _job(script: str, flags: str, ranks: int) -> Job:
    return Job(str(JOBS / script), flags, ranks, plain_steps=PLAIN_STEPS)


def _make(job: Job, fixed: Job, folder: Path, cured: bool) -> Path:
    return record(fixed if cured else job, folder)


def _time(job: Job, fixed: Job, cured: bool) -> float:
    return time_job(fixed if cured else job)


def sick(truth: Truth) -> Patient:
    job, fixed = (_job(truth.script, flags, truth.ranks) for flags in ("", "--fixed"))
    return Patient(
        truth.name,
        (truth.accepted or (NO_ID,))[:1],
        True,
        partial(_make, job, fixed),
        job=job,
        fixed=fixed,
        accepted=(truth.accepted,),
        rank=truth.rank,
        layer=truth.layer,
        time=partial(_time, job, fixed),
    )


def healthy(script: str, ranks: int) -> Patient:
    job = _job(script, "", ranks)
    return Patient(script.removesuffix(".py"), (), True, partial(_make, job, job), job=job)


HELD_OUT_6: Final = (*map(sick, TRUTHS), *(healthy(script, ranks) for script, ranks in WELL.items()))
