"""Patients that no rule has seen: written after the rules, scored apart, and never used to change one."""

from __future__ import annotations

from typing import Final

from clinic.patients import Patient

HELD_OUT: Final[tuple[Patient, ...]] = ()
