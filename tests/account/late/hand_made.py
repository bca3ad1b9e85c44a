"""Profiles of ranks that a test states line by line, in ns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from lostflops.account.late.comparison import Comparison, compare
from lostflops.account.ledger.lines import LINES
from lostflops.account.ledger.profile import StepProfile, WaitedFor

Step = Mapping[str, int]
WORLD = "0@0-63"


def profile(
    rank: int,
    steps: Sequence[Step] | Step,
    waited: Mapping[int, int] | Iterable[WaitedFor] = (),
    *,
    numbers: Sequence[int] | None = None,
    pieces: Sequence[int] | int = 100,
) -> StepProfile:
    """`steps` by line, three equal ones where one is given; `waited` by who was late in the one group, or in full."""
    rows = [steps] * 3 if isinstance(steps, Mapping) else list(steps)
    lines = np.array([[row.get(line, 0) for line in LINES] for row in rows], np.int64).reshape(-1, len(LINES))
    told = [WaitedFor(WORLD, late, False, ns) for late, ns in waited.items()] if isinstance(waited, Mapping) else waited
    return StepProfile(
        rank,
        np.array(range(len(rows)) if numbers is None else numbers, np.int64),
        lines,
        tuple(told),
        np.broadcast_to(np.asarray(pieces, np.int64), len(rows)),
    )


def one_cohort(profiles: Iterable[StepProfile]) -> dict[int, list[int]]:
    ranks = [one.rank for one in profiles]
    return dict.fromkeys(ranks, ranks)


def compared(
    profiles: Sequence[StepProfile], cohorts: Mapping[int, Sequence[int]] | None = None, dark: Iterable[int] = ()
) -> Comparison:
    return compare(profiles, one_cohort(profiles) if cohorts is None else cohorts, frozenset(dark))


@dataclass
class Found:
    """Evidence as a test states it, by rank."""

    flops: Mapping[int, float] = field(default_factory=dict)
    slower: Mapping[int, float] = field(default_factory=dict)

    def more_flops(self, rank: int) -> float:
        return self.flops.get(rank, 0.0)

    def slower_kernels(self, rank: int) -> float:
        return self.slower.get(rank, 0.0)
