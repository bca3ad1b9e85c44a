"""New places of tasks when the passes of a pipeline are rearranged."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from lostflops.predict.graph.tasks import NONE, Flags, Index, Ns, TaskGraph

if TYPE_CHECKING:
    from lostflops.predict.whatif.graph_edits.pipeline import Pipeline

Rows = dict[str, npt.NDArray[Any]]
"""Columns of new tasks, by name."""


class PassPlaces:
    """Places of tasks in the new graph: kept tasks before or after the passes of their step, new tasks between them.
    `order` sorts kept and new tasks together; `old` and `new` are their new indices."""

    def __init__(self, graph: TaskGraph, made: Pipeline, kept: Ns, new: Rows) -> None:
        tasks, passes = graph.tasks, np.flatnonzero(made.passes)
        self._stages = made.ranks.shape[1]
        self._turns = made.steps.size
        of_rank = np.full(int(graph.lanes.rank.max()) + 1, NONE)
        of_rank[made.ranks.ravel()] = np.arange(made.ranks.size)
        turn = np.searchsorted(made.steps, tasks.step)
        self._block = of_rank[graph.rank] * self._turns + np.minimum(turn, self._turns - 1)
        blocks = made.ranks.size * self._turns
        first, last = np.full(blocks, len(tasks)), np.full(blocks, NONE)
        np.minimum.at(first, self._block[passes], passes)
        np.maximum.at(last, self._block[passes], passes)
        self.first_pass, self.last_gap = first, tasks.gap[last]
        behind = (kept > first[self._block[kept]]) & np.isin(tasks.lane[kept], np.unique(tasks.lane[passes]))
        lane = np.concatenate((tasks.lane[kept], new["lane"]))
        section = np.concatenate((np.where(behind, 2, 0), np.ones(new["lane"].size, np.int64)))
        when = np.concatenate((turn[kept], new["turn"]))
        self.order = np.lexsort((np.concatenate((kept, new["place"])), section, when, lane))
        moved = np.empty(self.order.size, np.int64)
        moved[self.order] = np.arange(self.order.size)
        self.old = np.full(len(tasks), NONE, np.int64)
        self.old[kept], self.new = moved[: kept.size], moved[kept.size :]
        own = new["computes"]
        block = (new["replica"] * self._stages + new["stage"]) * self._turns + new["turn"]
        self.block = block
        self._begin, self._end = np.full(blocks, self.order.size), np.full(blocks, NONE)
        np.minimum.at(self._begin, block[own], self.new[own])
        np.maximum.at(self._end, block[own], self.new[own])

    def find_begin(self, tasks: Index) -> Index:
        """Return new indices; a removed pass or transfer gets that of the first pass of its step."""
        return self._find_edge(tasks, self._begin)

    def find_end(self, tasks: Index) -> Index:
        """Return new indices; a removed pass or transfer gets that of the last pass of its step."""
        return self._find_edge(tasks, self._end)

    def is_last(self, new: Rows) -> Flags:
        last: Flags = (self._end[self.block] == self.new) & new["computes"]
        return last

    def is_first(self, tasks: Index) -> Flags:
        """Return for old tasks whether each is the first pass of its step."""
        first: Flags = self.first_pass[self._block[tasks]] == tasks
        return first

    def _find_edge(self, tasks: Index, edge: Ns) -> Index:
        place = np.where(self.old[tasks] >= 0, self.old[tasks], edge[self._block[tasks]])
        told: Index = np.where(tasks >= 0, place, NONE).astype(np.int32)
        return told
