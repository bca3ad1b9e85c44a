"""What a patient is: a training job whose causes of lost time are known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from clinic.record import Job


class NotHere(Exception):
    """This machine cannot run the patient, and why."""


@dataclass(frozen=True, slots=True)
class Patient:
    """`make(folder, cured)` writes and ingests a run below the folder, and returns its own; `NotHere` where it cannot.

    Healthy patients have no causes and no cure. Causes are in the order of what they cost. `gain` is per sample where
    a step of the cured job holds other work than one of the sick. `job` is what is started where the sick run is one
    torchrun on this machine.
    """

    name: str
    causes: tuple[str, ...]
    is_real: bool
    make: Callable[[Path, bool], Path]
    is_per_sample: bool = False
    job: Job | None = None

    @property
    def is_healthy(self) -> bool:
        return not self.causes
