"""A second set of patients that no rule has seen: written without sight of the rules or of their outcomes."""

from __future__ import annotations

from typing import Final

from clinic.patients import Patient

from .real import REAL
from .synthetic import CASES

HELD_OUT_2: Final[tuple[Patient, ...]] = (*REAL, *(case.patient for case in CASES))
