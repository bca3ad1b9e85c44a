"""What if all pipeline stages took the same time?"""

from __future__ import annotations

from typing import Final

from lostflops.core.errors import NotApplicable
from lostflops.predict.graph.tasks import TaskGraph
from lostflops.predict.whatif.change import Change, Edited, Facts
from lostflops.predict.whatif.graph_edits.cohorts import cohorts
from lostflops.predict.whatif.graph_edits.delays import without_waits
from lostflops.predict.whatif.graph_edits.even_work import even_stages
from lostflops.predict.whatif.graph_edits.selecting import between_ranks
from lostflops.predict.whatif.graph_edits.values import one_of

_DOUBT: Final = 0.2
"""Only whole layers can be moved, so stages stay uneven by up to half a layer."""


def _how(_value: str) -> str:
    return (
        "move layers from long stages to short ones; Megatron: --decoder-first-pipeline-num-layers and "
        "--decoder-last-pipeline-num-layers; torch.distributed.pipelining: other split points"
    )


def _apply(graph: TaskGraph, value: str, _facts: Facts) -> Edited:
    one_of(value, ("even",), "stages")
    if not between_ranks(graph).any():
        raise NotApplicable("no rank sends to another, so there are no pipeline stages")
    found = cohorts(graph)
    if len(found) < 2:
        raise NotApplicable("only one stage was recorded")
    base, shorter = without_waits(graph)
    note = "Every stage takes the mean compute time of all stages, with all its passes scaled by one factor"
    return Edited(
        graph=even_stages(base, found), doubt=_DOUBT, notes=(f"{note}; transfers stay the same.",), off=shorter
    )


CHANGE: Final = Change(
    name="stages",
    form="stages=even",
    about="all pipeline stages have the same compute time",
    cost="layers have to be moved between stages",
    how=_how,
    apply=_apply,
    tried=("even",),
)
