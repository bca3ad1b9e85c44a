"""What merged messages take, where the recorded ones are small and of about one size.

Such messages cannot tell latency from bandwidth, but small ones are latency for the most part. The quickest of them
bounds what a byte takes from above; the likely value is a quarter of that bound, and both ends are in the interval.
Where sizes differ, or are large, the run's own curve tells.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from lostflops.graph.tasks import TaskGraph
from lostflops.predict.change import Facts
from lostflops.predict.edits.reductions import calls
from lostflops.predict.edits.transfers import Transfers
from lostflops.predict.scaling.own_times import NARROW, SMALL

Rows = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
_BYTES: Final = 0.25
"""Of the quickest small message's time, what goes with bytes."""
_QUICK: Final = 0.1
"""Quantile that stands for the quickest."""


class Merged(NamedTuple):
    ns: Floats
    low: Floats
    high: Floats
    note: str


def merged_times(graph: TaskGraph, facts: Facts, meetings: Rows, sizes: Rows) -> Merged:
    """Of messages of these sizes, in the place of the recorded meetings."""
    told = graph.meetings
    old = told.size[meetings]
    if old.max() < NARROW * old.min() and old.max() <= SMALL and sizes.max() > old.max():
        same = (told.op == told.op[meetings[0]]) & (told.size >= old.min()) & (told.size <= old.max())
        quick = float(np.quantile(told.transfer[same], _QUICK))
        usual = float(np.median(told.transfer[same]))
        most = quick / float(old.mean())
        more = np.maximum(sizes - float(old.mean()), 0.0)
        note = "Messages of one small size were recorded: their time counts as latency for the most part."
        return Merged(usual + _BYTES * most * more, np.full(sizes.size, quick), usual + most * more, note)
    transfers = Transfers.of(graph, facts)
    chosen = np.zeros(len(told), np.bool_)
    chosen[meetings] = True
    _, kinds, which = calls(graph, chosen)
    known = np.array([transfers.ns(*kind) for kind in kinds])[which]
    level = float(told.transfer[meetings].sum()) / max(float(known.sum()), 1.0)
    found = [transfers.time(kinds[0].op, size, kinds[0].ranks, kinds[0].hosts) for size in sizes.tolist()]
    ns, low, high = (level * np.array([getattr(one, end) for one in found]) for end in ("ns", "low", "high"))
    return Merged(ns, low, high, transfers.note)
