"""What if ranks with the same role had equal amounts of work?"""

from __future__ import annotations

from typing import Final

from lostflops.core.errors import NotApplicable
from lostflops.predict.graph.tasks import TaskGraph
from lostflops.predict.whatif.change import Change, Edited, Facts
from lostflops.predict.whatif.graph_edits.cohorts import cohorts
from lostflops.predict.whatif.graph_edits.delays import without_waits
from lostflops.predict.whatif.graph_edits.even_work import even_ranks
from lostflops.predict.whatif.graph_edits.values import one_of

_DOUBT: Final = 0.15
"""Work is never quite even, and kernel times are not proportional to it."""


def _how(_value: str) -> str:
    return (
        "distribute samples by length: sort or bucket by length, pack sequences to a fixed number of tokens (a batch "
        "sampler that gives every rank the same amount), drop_last=True"
    )


def _apply(graph: TaskGraph, value: str, _facts: Facts) -> Edited:
    one_of(value, ("even",), "work")
    kinds = [kind for kind in cohorts(graph) if len(kind) > 1]
    if not kinds:
        raise NotApplicable("no two recorded ranks do the same work in one collective: nothing to balance")
    base, shorter = without_waits(graph)
    note = "Between two collectives of a step, each rank takes the mean compute time of its peers"
    return Edited(
        graph=even_ranks(base, kinds), doubt=_DOUBT, notes=(f"{note}; the rest stays the same.",), off=shorter
    )


CHANGE: Final = Change(
    name="work",
    form="work=even",
    about="ranks with the same role get the same amount of work in each step",
    cost="batches are formed by length or cost, not purely at random",
    how=_how,
    apply=_apply,
    tried=("even",),
)
