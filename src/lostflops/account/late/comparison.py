"""Ranks compared with those that do the same work: which have more time of their own, and on which line?

A rank's own time is the time that it does not spend in communication. In synchronous training the steps of all ranks
are equally long, and the waits of the others make up the difference: so the slow rank is the one with most own time.
This needs no clock. A rank that is late only because another held it up has waited itself, and is not found.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from lostflops.account.ledger.lines import COMM_LINES, LINES
from lostflops.account.ledger.profile import StepProfile

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
Codes = npt.NDArray[np.int64]

OWN_LINES: Final = tuple(line for line in LINES if line not in (*COMM_LINES, "idle.bubble", "unexplained"))
_OWN: Final = np.array([line in OWN_LINES for line in LINES])
_QUEUED: Final = OWN_LINES.index("idle.dependency")
_NOT_QUEUED: Final = np.arange(len(OWN_LINES)) != _QUEUED


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Ranks compared with their cohorts, in ns per step.

    Steps that not all of a cohort recorded are left out, and so are ranks without any. If the record of a collective is
    missing, its time looks like queued work: ranks that miss any are compared without `idle.dependency`.
    """

    ranks: Codes
    steps: Codes
    cohort: Codes
    wall: Floats
    own: Floats
    """Time that is not spent in communication."""
    computed: Floats
    """Part of `own` that is compute."""
    excess: Floats
    """`own` above that of the cohort."""
    lines: Floats
    """Excess by line, in the order of `OWN_LINES`."""
    pieces: Floats
    """Share by which the rank ran more kernels."""
    by_step: Floats
    """Excess of each step, NaN if left out; where steps begin differs between ranks, so only sums are certain."""
    counts: Codes
    """Number of steps of each rank."""
    on_device: bool = False
    """Whether steps are those of devices: each lasts until the next, but the last only until its last event."""

    def place(self, rank: int) -> int:
        return int(np.searchsorted(self.ranks, rank))


def compare(
    profiles: Sequence[StepProfile],
    cohorts: Mapping[int, Sequence[int]],
    dark: frozenset[int],
    *,
    on_device: bool = False,
) -> Comparison:
    """Compare ranks with their `cohorts`; `dark` are ranks that miss records of collectives."""
    profiles = sorted((one for one in profiles if one.steps.size), key=lambda one: one.rank)
    ranks = np.array([one.rank for one in profiles], np.int64)
    steps = np.unique(np.concatenate([np.empty(0, np.int64), *(one.steps for one in profiles)]))
    lines = np.full((ranks.size, steps.size, len(LINES)), np.nan)
    pieces = np.full((ranks.size, steps.size), np.nan)
    told = np.array([rank not in dark for rank in ranks.tolist()], np.bool_)
    for place, one in enumerate(profiles):
        at = np.searchsorted(steps, one.steps)
        lines[place, at] = one.lines
        pieces[place, at] = one.pieces
    cohort = _labels(ranks, cohorts)
    apart = ~_in_common(~np.isnan(pieces), cohort)
    lines[apart], pieces[apart] = np.nan, np.nan
    counts = np.maximum((~np.isnan(pieces)).sum(axis=1), 1)
    mean = np.nansum(lines, axis=1) / counts[:, np.newaxis]
    ran = np.nansum(pieces, axis=1) / counts
    own = mean[:, _OWN]
    whole, without = own.sum(axis=1), own[:, _NOT_QUEUED].sum(axis=1)
    by_line = own - usual(own, cohort, told)
    by_line[:, _QUEUED] = np.where(told, by_line[:, _QUEUED], 0.0)
    steps_whole = lines[:, :, _OWN].sum(axis=2)
    steps_without = lines[:, :, _OWN][:, :, _NOT_QUEUED].sum(axis=2)
    return Comparison(
        ranks=ranks,
        steps=steps,
        cohort=cohort,
        wall=mean.sum(axis=1),
        own=whole,
        computed=own[:, OWN_LINES.index("compute")],
        excess=np.where(told, whole - usual(whole, cohort, told), without - usual(without, cohort)),
        lines=by_line,
        pieces=ran / np.maximum(usual(ran, cohort), 1) - 1,
        by_step=np.where(
            told[:, np.newaxis],
            steps_whole - usual(steps_whole, cohort, told),
            steps_without - usual(steps_without, cohort),
        ),
        counts=counts,
        on_device=on_device,
    )


def _labels(ranks: Codes, cohorts: Mapping[int, Sequence[int]]) -> Codes:
    """Number the cohorts: ranks of one cohort have the same number."""
    first = [min(cohorts.get(rank, (rank,))) for rank in ranks.tolist()]
    return np.unique(np.array(first, np.int64), return_inverse=True)[1]


def _in_common(known: Flags, cohort: Codes) -> Flags:
    """Return the steps of each rank that its whole cohort has; all of its steps if there are none.

    A step lasts until the next, but the last of a rank only until its last event: it is left out if others go on.
    """
    kept = known.copy()
    last = known.shape[1] - 1 - known[:, ::-1].argmax(axis=1) if known.size else np.empty(0, np.int64)
    for label in range(int(cohort.max(initial=-1)) + 1):
        rows = np.flatnonzero(cohort == label)
        shared = np.asarray(known[rows].all(axis=0))
        if last[rows].min() < last[rows].max() and shared.sum() > 1:
            shared[last[rows].min()] = False
        kept[rows] &= shared | ~shared.any()
    return kept


def usual(values: Floats, cohort: Codes, told: Flags | None = None) -> Floats:
    """Return the lower median of each rank's cohort, of members with all records if there are two of them."""
    found = np.full(values.shape, np.nan)
    for label in range(int(cohort.max(initial=-1)) + 1):
        rows = np.flatnonzero(cohort == label)
        known = ~np.isnan(values[rows])
        whole = known if told is None else known & told[rows].reshape(-1, *(1,) * (values.ndim - 1))
        used = np.where(whole.sum(axis=0) > 1, whole, known)
        ordered = np.sort(np.where(used, values[rows], np.nan), axis=0)
        middle = np.maximum(used.sum(axis=0) - 1, 0) // 2
        found[rows] = np.take_along_axis(ordered, middle[np.newaxis], axis=0)
    return found
