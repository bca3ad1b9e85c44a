"""A fourth set of patients that no rule has seen: all of them real, written without sight of the rules."""

from __future__ import annotations

from typing import Final

from clinic.patients import Patient

from .real import REAL

HELD_OUT_4: Final[tuple[Patient, ...]] = REAL
