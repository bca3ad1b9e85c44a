"""The stretch of runs in which each host looks most like a slow one: since when it is slow, until when it was."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from lostflops.fleet.host_evidence import HostNoise
from lostflops.fleet.host_times import HostTimes
from lostflops.fleet.robust import Floats, Ints

_LEVELS: Final = (0.03, 0.06, 0.12, 0.25)
"""Effects that are tried: the best of them is near enough to choose a stretch."""


@dataclass(frozen=True, slots=True)
class HostStretches:
    """Rows of each host, `first` to `last`; both -1 where no stretch looks slow."""

    first: Ints
    last: Ints
    advantage: Floats
    """How much likelier the runs are if the host was slow in the stretch only, not in all of them, as a logarithm."""

    def contain_rows(self, times: HostTimes) -> npt.NDArray[np.bool_]:
        """Compute which rows are in the stretch of their host."""
        rows = np.arange(len(times.host))
        return (rows >= self.first[times.host]) & (rows <= self.last[times.host])


def find_stretches(times: HostTimes, noise: HostNoise) -> HostStretches:
    """Find the stretch of each host whose runs are explained best by a slow host, compared with a usual one."""
    count = len(times.names)
    best, whole = np.zeros(count), np.full(count, -np.inf)
    first, last = np.full(count, -1), np.full(count, -1)
    for level in _LEVELS:
        gains = _compare_explanations(times, noise, level)
        whole = np.maximum(whole, np.bincount(times.host, gains, minlength=count))
        gain, start, stop = _find_largest_sums(gains, times.host, count)
        is_better = gain > best
        best = np.where(is_better, gain, best)
        first, last = np.where(is_better, start, first), np.where(is_better, stop, last)
    return HostStretches(first, last, best - whole)


def _compare_explanations(times: HostTimes, noise: HostNoise, level: float) -> Floats:
    """Compute by how much each run is likelier on a host that is slower by `level` than on a usual one, as a log."""
    variance = times.error**2 + noise.runs.spread**2 + noise.jobs.spread**2 + 1e-8
    freedom = min(noise.runs.freedom, noise.jobs.freedom)
    usual, slow = (np.log1p((times.slower - at) ** 2 / (freedom * variance)) for at in (0.0, level))
    return (freedom + 1) / 2 * (usual - slow)


def _find_largest_sums(gains: Floats, host: Ints, count: int) -> tuple[Floats, Ints, Ints]:
    """Find the stretch of rows with the largest sum for each host; rows are sorted by host."""
    best, first, last = np.zeros(count), np.full(count, -1), np.full(count, -1)
    if not gains.size:
        return best, first, last
    sums = np.cumsum(gains)
    before = sums - gains
    # Each host starts below all sums of the host before it, so the running minimum starts again.
    before_in_turn = before - host * (np.ptp(np.append(sums, 0)) + 1)
    lowest = np.minimum.accumulate(before_in_turn)
    starts = np.maximum.accumulate(np.where(before_in_turn == lowest, np.arange(len(gains)), 0))
    reached = sums - before[starts]
    hosts, tops = np.unique(host, return_index=True)
    best[hosts] = np.maximum.reduceat(reached, tops)
    last[hosts] = np.maximum.reduceat(np.where(reached == best[host], np.arange(len(gains)), -1), tops)
    first[hosts] = starts[last[hosts]]
    return best, first, last
