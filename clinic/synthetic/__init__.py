"""Synthetic patients: GPU jobs whose truth is known because they are simulated."""

from clinic.patients import Patient

from . import comm_cases, healthy_cases, host_cases, kernel_cases, mixed_cases, rank_cases
from .case import Case

CASES: tuple[Case, ...] = (
    *host_cases.CASES,
    *comm_cases.CASES,
    *rank_cases.CASES,
    *kernel_cases.CASES,
    *mixed_cases.CASES,
    *healthy_cases.CASES,
)
SYNTHETIC: tuple[Patient, ...] = tuple(case.patient for case in CASES)
