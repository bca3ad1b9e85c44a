"""The profiled step of a run whose time is the median, and when each rank was in it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import mean
from typing import TYPE_CHECKING

import numpy as np

from lostflops.account.align.one_clock import OneClock
from lostflops.account.ledger.record import steps_of
from lostflops.account.ledger.windows import step_window

if TYPE_CHECKING:
    from lostflops.store.run import Run


@dataclass(frozen=True, slots=True)
class RankStep:
    """When a rank was in a step, in ns on the common clock."""

    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class MedianStep:
    """The median of the profiled steps that most ranks have."""

    run: Run
    clock: OneClock
    number: int
    ns: float
    """Its time, the mean of its ranks."""
    steps: int
    """Number of steps that it is the median of."""
    ranks: Mapping[int, RankStep]

    @classmethod
    def of(cls, run: Run) -> MedianStep | None:
        """Return the median step; None if no step was profiled."""
        clock, found = OneClock.of(run), _read_rank_steps(run)
        if not found:
            return None
        most = max(map(len, found.values()))
        times = {number: mean(stop - start for start, stop in by_rank.values()) for number, by_rank in found.items()}
        whole = sorted((number for number in found if len(found[number]) == most), key=lambda number: times[number])
        number = whole[(len(whole) - 1) // 2]
        ranks = {rank: RankStep(*_to_common(clock, rank, own)) for rank, own in found[number].items()}
        return cls(run, clock, number, times[number], len(whole), ranks)

    @property
    def is_on_one_clock(self) -> bool:
        return len(self.ranks) == 1 or all(map(self.clock.ties, self.ranks))

    def origin(self, rank: int) -> int:
        """Return when the step began: on its first rank, or on this rank if there is no common clock."""
        if self.is_on_one_clock:
            return min(one.start for one in self.ranks.values())
        return self.ranks[rank].start

    def length(self, rank: int) -> int:
        """Return the time from the origin to the end of the step on this rank, in ns."""
        return self.ranks[rank].stop - self.origin(rank)

    def caused_waits(self) -> Mapping[int, int]:
        """Return how long others waited for each rank in this step, in ns; without ranks that no other waited for."""
        rows = self.run.rows(
            "select late_rank, sum(wait)::bigint from arrivals "
            f"where step = {self.number} and late_rank is not null group by late_rank"
        )
        return dict(rows)


def _to_common(clock: OneClock, rank: int, times: tuple[int, int]) -> tuple[int, int]:
    start, stop = clock.to_common(rank, np.array(times, np.int64)).tolist()
    return start, stop


def _read_rank_steps(run: Run) -> Mapping[int, Mapping[int, tuple[int, int]]]:
    """Return the start and stop of each profiled step by step and rank, each on the clock of its rank."""
    rows = run.rows(
        "select distinct rank from steps where rank in (select rank from ranks where events > 0) order by rank"
    )
    ranks = [rank for (rank,) in rows]
    found: defaultdict[int, dict[int, tuple[int, int]]] = defaultdict(dict)
    for rank, steps in zip(ranks, steps_of(run, ranks), strict=True) if ranks else ():
        own = step_window(steps, steps.on_device)
        for number, start, stop in zip(own.number, own.start.tolist(), own.stop.tolist(), strict=True):
            if stop > start:
                found[number][rank] = start, stop
    return found
