"""What if every op took the same time on all ranks?"""

from __future__ import annotations

from typing import Final

import numpy as np

from lostflops.core.errors import NotApplicable
from lostflops.predict.graph.tasks import TaskGraph
from lostflops.predict.whatif.change import Change, Edited, Facts
from lostflops.predict.whatif.graph_edits.balance import balance_ops, has_host, op_types, slowdowns
from lostflops.predict.whatif.graph_edits.delays import without_waits
from lostflops.predict.whatif.graph_edits.values import one_of
from lostflops.predict.whatif.memory_edits.untouched import keep_memory_unchanged

_DOUBT: Final = 0.2
"""Means and medians stand for what balanced ranks would take; published replays of the same kind agree to 1%."""


def _how(_value: str) -> str:
    return (
        "lostflops ranks names the slow ranks; give stages with more work fewer layers, and sort or pack sequences so "
        "that microbatches are equally long"
    )


def _apply(graph: TaskGraph, value: str, _facts: Facts) -> Edited:
    one_of(value, ("removed",), "imbalance")
    if len(graph.ranks) < 2:
        raise NotApplicable("only one rank was recorded: there is nothing to balance it with")
    base, shorter = without_waits(graph)
    changed = balance_ops(base)
    if has_host(graph):
        note = (
            "Each kernel takes the mean time of the same kernel at the same place in the step, over all ranks and steps"
        )
        return Edited(graph=changed, doubt=_DOUBT, notes=(f"{note}; host time stays the same.",))
    note = "Ops take the mean and transfers the median of their type, over all ranks, microbatches and steps"
    by_op = {"slowdown_by_op": _by_op(base)}
    return Edited(
        graph=changed, doubt=_DOUBT, notes=(f"{note}; short launch delays stay the same.",), extra=by_op, off=shorter
    )


def _by_op(graph: TaskGraph) -> dict[str, float]:
    """What each type of op costs by not being balanced, all others being so."""
    types, of_task = op_types(graph)
    return slowdowns(graph, np.asarray(of_task), types)


CHANGE: Final = Change(
    name="imbalance",
    form="imbalance=removed",
    about="every op takes the same time on all ranks, stages and microbatches",
    cost="work has to move between ranks: split the model or pack the sequences differently",
    how=_how,
    apply=_apply,
    tried=("removed",),
    remember=keep_memory_unchanged("Timing does not change what a rank allocates."),
)
