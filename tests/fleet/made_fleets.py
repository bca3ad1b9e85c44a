"""Fleets in tables, generated or made by hand."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from lostflops.fleet.changes import add_runs
from lostflops.fleet.summary import RunSummary
from lostflops.testing.fleet import FleetPlan, GeneratedFleet


def generate_summaries(plan: FleetPlan) -> Iterator[RunSummary]:
    yield from GeneratedFleet(plan).summaries()


def make_fleet(place: Path, summaries: Iterable[RunSummary]) -> Path:
    add_runs(place, summaries)
    return place
