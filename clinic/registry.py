"""Who is in the clinic."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from clinic.healthy import HEALTHY
from clinic.held_out import HELD_OUT
from clinic.held_out_2 import HELD_OUT_2
from clinic.held_out_3 import HELD_OUT_3
from clinic.held_out_4 import HELD_OUT_4
from clinic.held_out_5 import HELD_OUT_5
from clinic.held_out_6 import HELD_OUT_6
from clinic.patients import Patient
from clinic.real import REAL
from clinic.synthetic import SYNTHETIC

PATIENTS: Final[tuple[Patient, ...]] = (*REAL, *HEALTHY, *SYNTHETIC)
HELD_OUT_SETS: Final = {1: HELD_OUT, 2: HELD_OUT_2, 3: HELD_OUT_3, 4: HELD_OUT_4, 5: HELD_OUT_5, 6: HELD_OUT_6}
NEWEST: Final = 6
"""The newest set. It was scored before anything was fitted to it, and no rule is corrected on it before there is a
newer one: its jobs are to the rules what a user's job is."""


def chosen(only: Collection[str] = (), *, held_out: int | None = None) -> list[Patient]:
    """Return those of these names, or all; each `held_out` set is a clinic of its own."""
    there = PATIENTS if held_out is None else HELD_OUT_SETS[held_out]
    known = {patient.name for patient in there}
    if unknown := [name for name in only if name not in known]:
        raise ValueError(f"no patient {', '.join(unknown)}; there are {', '.join(sorted(known)) or 'none'}")
    return [patient for patient in there if not only or patient.name in only]
