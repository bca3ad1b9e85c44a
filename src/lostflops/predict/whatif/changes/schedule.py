"""What if the pipeline ran its passes in another order?"""

from __future__ import annotations

from typing import Final

from lostflops.account.align.pipeline_actions import CUT
from lostflops.core.errors import NotApplicable
from lostflops.core.units import pluralise
from lostflops.predict.graph.tasks import TaskGraph
from lostflops.predict.whatif.change import Change, Edited, Facts, join_costs
from lostflops.predict.whatif.graph_edits.orders import DUALPIPE, SCHEDULES, ZERO_BUBBLE, PipelineShape
from lostflops.predict.whatif.graph_edits.pipeline_layout import laid_out, relaid
from lostflops.predict.whatif.graph_edits.values import one_of

_DOUBT: Final = 0.1
_CUT_DOUBT: Final = 0.25
"""A job was recorded as 1F1B and as interleaved, and each was predicted from the other: 16% of the change off, both
ways."""
_CHUNKS: Final = 2
_DUALPIPE_NOTES: Final = (
    (
        "Each of p ranks holds two stages: rank r holds stages r and p - 1 - r. It needs memory for parameters, "
        "gradients and optimizer state of both, and for activations of p + 1 microbatches. Whether it fits is not "
        "checked."
    ),
    (
        "DualPipe runs a forward and a backward pass together; this prediction runs them one after the other. The "
        "communication that this hides, such as all-to-alls inside passes, would be saved in addition."
    ),
    "The two ranks that hold the same stage have to sum its gradients; that time is not included.",
    "DualPipe cuts some backward passes in two: we assume that half of the time computes gradients of weights.",
)
_COSTS: Final = {
    "interleaved": "more transfers and more activations in memory",
    "gpipe": "activations of all microbatches in memory",
    "zero_bubble": "later stages keep more activations",
    "dualpipe": "two stages on each rank, so parameters twice",
    "1f1b": "no cost: fewest activations in memory",
}


def _how(value: str) -> str:
    if value == "interleaved":
        return (
            "Megatron: --num-virtual-stages-per-pipeline-rank 2; torch.distributed.pipelining: ScheduleInterleaved1F1B"
        )
    if value == ZERO_BUBBLE:
        return "torch.distributed.pipelining: ScheduleInterleavedZeroBubble, the closest to the predicted ZB-H1"
    if value == DUALPIPE:
        return (
            "github.com/deepseek-ai/DualPipe: DualPipe((stage, mirrored_stage)); torch.distributed.pipelining has "
            "ScheduleDualPipeV, which needs half as many ranks for the same stages"
        )
    return f"torch.distributed.pipelining: {'ScheduleGPipe' if value == 'gpipe' else 'Schedule1F1B'}"


def _apply(graph: TaskGraph, value: str, facts: Facts) -> Edited:
    one_of(value, SCHEDULES, "schedule")
    if facts.schedule in CUT:
        raise NotApplicable(f"the run uses {CUT[facts.schedule]}, whose passes cannot be rearranged")
    base, made = laid_out(graph)
    if made.schedule == value:
        raise NotApplicable(f"the run already uses {value}")
    old = made.shape
    chunks = {"interleaved": max(old.chunks, _CHUNKS), DUALPIPE: 2}.get(value, 1)
    if value == DUALPIPE:
        _check_dualpipe(old)
    if value == "interleaved" and old.microbatches % old.stages:
        raise NotApplicable(
            f"the number of microbatches of an interleaved schedule must be a multiple of its {old.stages} stages, and "
            f"the run has {old.microbatches}"
        )
    changed = relaid(base, made, value, PipelineShape(old.stages, chunks, old.microbatches))
    notes = [
        "Passes keep their times, transfers take the median of their direction, and sends do not delay passes.",
        "In the ledger, all time inside a pass is then compute, also waits and idle time that the pass contains.",
    ]
    if value == DUALPIPE:
        notes += _DUALPIPE_NOTES
    elif chunks != old.chunks:
        notes.append(
            f"Each rank holds {pluralise(chunks, 'chunk')} of the model instead of {old.chunks}, with equal layers; "
            "embedding and output layer stay in the first and last chunk."
        )
    if value == "gpipe":
        notes.append("Activations of all microbatches are in memory at once; whether they fit is not checked.")
    if value == ZERO_BUBBLE:
        notes.append(
            "Half of each backward pass computes gradients of weights, which fill the bubble (ZB-H1); no stage keeps "
            "more activations than the first stage of 1F1B."
        )
    is_same_cut = chunks == old.chunks and value not in (ZERO_BUBBLE, DUALPIPE)
    return Edited(graph=changed, doubt=_DOUBT if is_same_cut else _CUT_DOUBT, notes=tuple(notes))


def _check_dualpipe(shape: PipelineShape) -> None:
    if shape.stages % 2 or shape.microbatches % 2 or shape.microbatches < 2 * shape.stages:
        raise NotApplicable(
            "DualPipe needs an even number of stages, and an even number of microbatches that is at least twice that; "
            f"the run has {pluralise(shape.stages, 'stage')} and {shape.microbatches:,} microbatches"
        )


CHANGE: Final = Change(
    name="schedule",
    form="schedule=1f1b|gpipe|interleaved|zero_bubble|dualpipe",
    about="stages run their microbatches in another order",
    cost=join_costs(_COSTS),
    costs=_COSTS,
    how=_how,
    apply=_apply,
    tried=("interleaved", "zero_bubble", "dualpipe", "1f1b"),
)
