"""A fifth set of patients: jobs whose tokens travel to experts, written without sight of the rule for experts."""

from __future__ import annotations

from typing import Final

from clinic.patients import Patient

from .real import REAL

HELD_OUT_5: Final[tuple[Patient, ...]] = REAL
