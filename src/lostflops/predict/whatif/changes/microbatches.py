"""What if the same batch went through the pipeline in more or fewer microbatches?"""

from __future__ import annotations

from typing import Final

from lostflops.core.errors import NotApplicable
from lostflops.predict.graph.tasks import TaskGraph
from lostflops.predict.whatif.change import Change, Edited, Facts
from lostflops.predict.whatif.graph_edits.pipeline_layout import laid_out, relaid
from lostflops.predict.whatif.graph_edits.values import count

_FIXED: Final = 0.1
_DOUBT: Final = 0.3
"""Smaller microbatches fill a device less, and a recording does not show by how much."""


def _how(value: str) -> str:
    size = f"Megatron: --micro-batch-size = batch of a replica / {value}"
    return f"{size}; torch.distributed.pipelining: n_microbatches={value}"


def _apply(graph: TaskGraph, value: str, _facts: Facts) -> Edited:
    wanted = count(value, "microbatches")
    base, made = laid_out(graph)
    old = made.shape
    if wanted == old.microbatches:
        raise NotApplicable(f"the run already has {wanted} microbatches per step")
    if made.schedule is None:
        raise NotApplicable("the schedule is not 1F1B, GPipe or interleaved, so it cannot be extended")
    if made.fixed > _FIXED:
        raise NotApplicable(
            f"{made.fixed:.0%} of the passes is collectives and waits for launches; how that changes with the size "
            "of a microbatch is unknown"
        )
    if made.schedule == "interleaved" and wanted % old.stages:
        raise NotApplicable(
            f"the number of microbatches of an interleaved schedule must be a multiple of its {old.stages} stages"
        )
    changed = relaid(base, made, made.schedule, old._replace(microbatches=wanted))
    size = f"{wanted} microbatches, each {old.microbatches / wanted:.3g}x the size"
    notes = (
        f"The batch stays the same: {size}. Passes scale with it; transfers and pauses do not change.",
        f"The schedule stays {made.schedule}; sends do not delay passes.",
    )
    return Edited(graph=changed, doubt=_DOUBT, notes=notes)


CHANGE: Final = Change(
    name="microbatches",
    form="microbatches=M",
    about="the same batch goes through the pipeline in M microbatches",
    cost="smaller microbatches use the device less fully; larger ones need more activation memory",
    how=_how,
    apply=_apply,
)
