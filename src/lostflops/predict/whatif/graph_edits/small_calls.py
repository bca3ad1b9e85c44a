"""Small collectives whose result the host waits for at once: averages of metrics, flags, barriers.

They move hardly any bytes, and the host computes nothing between the call and the result. Collectives that the model
needs are not among them, however small: gradients, shards of parameters, updated parameters of a sharded optimizer,
tokens of experts, activations of tensor parallel layers, statistics of batches.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final

import numpy as np
import numpy.typing as npt

from lostflops.account.ledger.phases import BACKWARD, FORWARD, OPTIMIZER
from lostflops.core.errors import NotApplicable
from lostflops.predict.graph.tasks import Flags, Index, LaneKind, TaskGraph, TaskKind
from lostflops.predict.whatif.change import Facts
from lostflops.predict.whatif.graph_edits.manual_reductions import by_hand
from lostflops.predict.whatif.graph_edits.reductions import in_phase, members, select_collectives, tensor_groups
from lostflops.predict.whatif.graph_edits.selecting import between_ranks, launchers, on_lanes
from lostflops.predict.whatif.graph_edits.whole_model import select_gradient_gathers

Phases = npt.NDArray[np.integer]

SMALL: Final = 65_536
"""A collective of at most this many bytes moves only a few values."""
_OF_THE_MODEL: Final = ("all_to_all", "reduce_scatter")
_ABOUT: Final = 16
"""Statistics of a batch and their gradients differ by at most this many bytes, such as a count of samples."""


def small_calls(graph: TaskGraph, facts: Facts) -> Flags:
    """Select small collectives that the host waits for at once. Raise `NotApplicable` if there is none."""
    told = graph.meetings
    small = (told.size <= SMALL) & (told.ranks != 1) & ~between_ranks(graph)
    small &= asked_in(graph, lambda phase: phase != BACKWARD)
    with suppress(NotApplicable):
        small &= ~by_hand(graph, facts)
    small &= ~select_gradient_gathers(graph, facts) & ~_of_the_model(graph)
    found = np.zeros(len(told), np.bool_)
    found[graph.tasks.meeting[_find_awaited_tasks(graph, members(graph, small))]] = True
    if not found.any():
        raise NotApplicable("the host does not wait for small collectives in any step")
    return found


def _of_the_model(graph: TaskGraph) -> Flags:
    """Select meetings that forward and backward passes cannot do without."""
    told, back = graph.meetings, in_phase(graph, BACKWARD)
    found: Flags = select_collectives(graph, *_OF_THE_MODEL) | np.isin(told.group, tensor_groups(graph))
    # ZeroRedundancyOptimizer sends the parameters that a rank has updated to the others.
    found |= select_collectives(graph, "broadcast") & asked_in(graph, lambda phase: phase == OPTIMIZER)
    sharded = np.unique(told.group[select_collectives(graph, "all_gather", "reduce_scatter") & back])
    found |= select_collectives(graph, "all_gather") & np.isin(told.group, sharded)
    ahead = np.flatnonzero(in_phase(graph, FORWARD) & (told.size > _ABOUT))
    for group in np.unique(told.group[ahead]).tolist():
        own = ahead[told.group[ahead] == group]
        sizes = np.unique(told.size[back & (told.group == group)])
        found[own] |= (np.abs(told.size[own][:, None] - sizes[None, :]) <= _ABOUT).any(axis=1)
    return found


def asked_in(graph: TaskGraph, is_phase: Callable[[Phases], Flags]) -> Flags:
    """Return the meetings that a rank calls in a phase for which `is_phase` holds."""
    asker = launchers(graph)
    rows = np.flatnonzero((graph.tasks.meeting >= 0) & (asker >= 0))
    found = np.zeros(len(graph.meetings), np.bool_)
    found[graph.tasks.meeting[rows[is_phase(graph.tasks.phase[asker[rows]])]]] = True
    return found


def _find_awaited_tasks(graph: TaskGraph, rows: npt.NDArray[np.int64]) -> Index:
    """Return the tasks among `rows` for which the host waits before it computes anything."""
    tasks, edges, asker = graph.tasks, graph.edges, launchers(graph)
    waits = (tasks.kind[edges.dst] == TaskKind.SYNC) & (tasks.step[edges.src] >= 0) & np.isin(edges.src, rows)
    waits &= asker[edges.src] >= 0
    src, dst = edges.src[waits], edges.dst[waits]
    computed = np.cumsum((tasks.kind == TaskKind.KERNEL) & on_lanes(graph, LaneKind.HOST))
    at_once = (tasks.lane[asker[src]] == tasks.lane[dst]) & (computed[dst] == computed[asker[src]])
    found: Index = np.unique(src[at_once])
    return found
