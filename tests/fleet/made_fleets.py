"""Fleets in tables, generated or made by hand."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from lostflops.fleet.changes import add_runs
from lostflops.fleet.summary import RunSummary
from lostflops.testing.fleet import FleetPlan, GeneratedFleet

SECOND = 1_000_000_000


def generate_summaries(plan: FleetPlan) -> Iterator[RunSummary]:
    """Generated summaries with times in ns, as those of runs have."""
    for made in GeneratedFleet(plan).summaries():
        pace = [msgspec.structs.replace(one, start=one.start * SECOND) for one in made.pace]
        yield msgspec.structs.replace(made, start=made.start * SECOND, stop=made.stop * SECOND, pace=pace)


def make_fleet(place: Path, summaries: Iterable[RunSummary]) -> Path:
    add_runs(place, summaries)
    return place
