"""What a patient is: a training job whose causes of lost time are known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


class NotHere(Exception):
    """This machine cannot run the patient, and why."""


@dataclass(frozen=True, slots=True)
class Patient:
    """`make(folder, cured)` writes and ingests a run below the folder, and returns its own; `NotHere` where it cannot.

    Healthy patients have no causes and no cure. Causes are in the order of what they cost. `gain` is per sample where
    a step of the cured job holds other work than one of the sick.
    """

    name: str
    causes: tuple[str, ...]
    is_real: bool
    make: Callable[[Path, bool], Path]
    is_per_sample: bool = False

    @property
    def is_healthy(self) -> bool:
        return not self.causes
