"""Patients that no rule has seen: written after the rules, scored apart, and never used to change one."""

from __future__ import annotations

from typing import Final

from clinic.patients import Patient

from .real import REAL
from .synthetic import CASES

HELD_OUT: Final[tuple[Patient, ...]] = (*REAL, *(case.patient for case in CASES))
