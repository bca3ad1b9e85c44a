"""Ranks beside those that do the same work: whose own time exceeds theirs, and on which line.

A rank's own time is what it does not spend in communication. In synchronous training every rank's step is equally long,
and the wait of the others makes up the difference: so the slow rank is the one with most time of its own. This needs no
clock, and a rank that is late only because another held it up has waited itself, and is not found.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from lostflops.ledger.lines import COMM_LINES, LINES
from lostflops.ledger.profile import Profile

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
Codes = npt.NDArray[np.int64]

OWN_LINES: Final = tuple(line for line in LINES if line not in (*COMM_LINES, "idle.bubble", "unexplained"))
_OWN: Final = np.array([line in OWN_LINES for line in LINES])
_WAITING: Final = np.array([line in ("comm.wait", "comm.bubble") for line in LINES])


@dataclass(frozen=True, slots=True)
class Comparison:
    """By rank and step, in ns; not-a-number where a rank has no such step. `excess` is own time beyond the cohort's,
    `lines` the same by line, `waited` waiting beyond the cohort's, `pieces` by which share it ran more kernels; `told`
    marks steps in which all records of the rank's collectives are there."""

    ranks: Codes
    steps: Codes
    cohort: Codes
    wall: Floats
    own: Floats
    excess: Floats
    lines: Floats
    waited: Floats
    pieces: Floats
    told: Flags

    def place(self, rank: int) -> int:
        return int(np.searchsorted(self.ranks, rank))

    def mean(self, values: Floats) -> Floats:
        """Of each rank over its steps, those with missing records left out where there are others."""
        known = ~np.isnan(self.own)
        used = known & self.told
        used = np.where(used.any(axis=1, keepdims=True), used, known)
        counts = np.maximum(used.sum(axis=1), 1)
        mask = _like(used, values)
        shape = counts if values.ndim == 2 else counts[:, np.newaxis]
        return np.asarray(np.where(mask, values, 0.0).sum(axis=1) / shape)


def compare(
    profiles: Sequence[Profile], cohorts: Mapping[int, Sequence[int]], dark: Mapping[int, frozenset[int]]
) -> Comparison:
    """`cohorts` of each rank; `dark` the steps in which a rank misses records of collectives."""
    profiles = sorted(profiles, key=lambda one: one.rank)
    ranks = np.array([one.rank for one in profiles], np.int64)
    steps = np.unique(np.concatenate([np.empty(0, np.int64), *(one.steps for one in profiles)]))
    lines = np.full((ranks.size, steps.size, len(LINES)), np.nan)
    pieces = np.full((ranks.size, steps.size), np.nan)
    told = np.ones((ranks.size, steps.size), np.bool_)
    for place, one in enumerate(profiles):
        at = np.searchsorted(steps, one.steps)
        lines[place, at] = one.lines
        pieces[place, at] = one.pieces
        lost = dark.get(one.rank, frozenset())
        told[place] = [not lost] if steps.tolist() == [-1] else [step not in lost for step in steps.tolist()]
    cohort = _labels(ranks, cohorts)
    own = lines[:, :, _OWN].sum(axis=2)
    waits = lines[:, :, _WAITING].sum(axis=2)
    return Comparison(
        ranks,
        steps,
        cohort,
        lines.sum(axis=2),
        own,
        own - _usual(own, cohort, told),
        lines[:, :, _OWN] - _usual(lines[:, :, _OWN], cohort, told),
        waits - _usual(waits, cohort, told),
        pieces / _usual(pieces, cohort, told) - 1,
        told,
    )


def _labels(ranks: Codes, cohorts: Mapping[int, Sequence[int]]) -> Codes:
    """A number for each cohort; ranks that share one have the same."""
    first = [min(cohorts.get(rank, (rank,))) for rank in ranks.tolist()]
    return np.unique(np.array(first, np.int64), return_inverse=True)[1]


def _usual(values: Floats, cohort: Codes, told: Flags) -> Floats:
    """Per step the lower median of each rank's cohort, of members with all records where there are two such."""
    usual = np.full(values.shape, np.nan)
    for label in range(int(cohort.max(initial=-1)) + 1):
        rows = np.flatnonzero(cohort == label)
        known = ~np.isnan(values[rows])
        whole = known & _like(told[rows], values)
        enough = whole.sum(axis=0) > 1
        used = np.where(enough, whole, known)
        ordered = np.sort(np.where(used, values[rows], np.nan), axis=0)
        middle = np.maximum(used.sum(axis=0) - 1, 0) // 2
        usual[rows] = np.take_along_axis(ordered, middle[np.newaxis], axis=0)
    return usual


def _like(flags: Flags, values: Floats) -> Flags:
    return flags if values.ndim == 2 else flags[:, :, np.newaxis]
