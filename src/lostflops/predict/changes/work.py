"""What if ranks that do the same got equally much of it?"""

from __future__ import annotations

from typing import Final

from lostflops.graph.tasks import TaskGraph
from lostflops.predict.change import Change, Edited, Facts, NotApplicable
from lostflops.predict.edits.cohorts import cohorts
from lostflops.predict.edits.delays import without_waits
from lostflops.predict.edits.evened import even_ranks
from lostflops.predict.edits.values import one_of

_DOUBT: Final = 0.15
"""Work is never quite even, and kernels do not take time in proportion to it."""


def _how(_value: str) -> str:
    return (
        "deal samples out by their length: sort or bucket by length, pack sequences to a fixed number of tokens "
        "(a batch sampler that gives every rank the same), drop_last=True"
    )


def _apply(graph: TaskGraph, value: str, _facts: Facts) -> Edited:
    one_of(value, ("even",), "work")
    kinds = [kind for kind in cohorts(graph) if len(kind) > 1]
    if not kinds:
        raise NotApplicable("no two ranks were recorded that do the same work in one collective: nothing to even out")
    base, shorter = without_waits(graph)
    note = "Between two collectives of a step each rank computes as long as the mean of its kind"
    return Edited(even_ranks(base, kinds), _DOUBT, (f"{note}; the rest stays.",), off=shorter)


CHANGE: Final = Change(
    name="work",
    form="work=even",
    about="ranks that do the same get equally much of it in each step",
    cost="batches are put together by length or cost, not by chance alone",
    how=_how,
    apply=_apply,
    tried=("even",),
)
