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
    """A training job, sick or healthy, and the same job cured. Healthy patients have no causes and no cure."""

    name: str
    causes: tuple[str, ...]
    """All of these are there, in the order of what they cost."""
    is_real: bool
    make: Callable[[Path, bool], Path]
    """`make(folder, cured)` writes and ingests a run below the folder, and returns its own; `NotHere` if it cannot."""
    is_per_sample: bool = False
    """The saving is per sample: a step of the cured job holds other work than a step of the sick job."""
    job: Job | None = None
    """What is started, where the sick run is one torchrun on this machine."""
    fixed: Job | None = None
    """What is started for the cured run then."""
    accepted: tuple[tuple[str, ...], ...] = ()
    """For each cause, the ids that name it; empty where each has one name only."""
    rank: int | None = None
    """The rank that a right finding names, where the fault is on one rank."""
    layer: str = ""
    """A pattern of the layer that a right finding names, where the fault is in one layer."""
    time: Callable[[bool], float] | None = None
    """`time(cured)` runs the job without a recorder and returns its usual step time in seconds. Where it is missing,
    the saving comes from recorded runs."""

    @property
    def is_healthy(self) -> bool:
        return not self.causes
