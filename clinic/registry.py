"""Who is in the clinic."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from clinic.held_out import HELD_OUT
from clinic.held_out_2 import HELD_OUT_2
from clinic.patients import Patient
from clinic.real import REAL
from clinic.synthetic import SYNTHETIC

PATIENTS: Final[tuple[Patient, ...]] = (*REAL, *SYNTHETIC)


def chosen(only: Collection[str] = (), *, held_out: bool = False) -> list[Patient]:
    """Those of these names, or all; `held_out` ones are a clinic of their own."""
    there = (*HELD_OUT, *HELD_OUT_2) if held_out else PATIENTS
    known = {patient.name for patient in there}
    if unknown := [name for name in only if name not in known]:
        raise ValueError(f"no patient {', '.join(unknown)}; there are {', '.join(sorted(known)) or 'none'}")
    return [patient for patient in there if not only or patient.name in only]
