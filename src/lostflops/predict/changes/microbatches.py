"""What if the same batch went through the pipeline in more or fewer microbatches?"""

from __future__ import annotations

from typing import Final

from lostflops.graph.tasks import TaskGraph
from lostflops.predict.change import Change, Edited, Facts, NotApplicable
from lostflops.predict.edits.relaid import laid_out, relaid
from lostflops.predict.edits.values import count

_FIXED: Final = 0.1
_DOUBT: Final = 0.3
"""Smaller microbatches fill a device less, and nothing in a recording tells by how much."""


def _how(value: str) -> str:
    size = f"Megatron: --micro-batch-size of a replica's batch / {value}"
    return f"{size}; torch.distributed.pipelining: n_microbatches={value}"


def _apply(graph: TaskGraph, value: str, _facts: Facts) -> Edited:
    wanted = count(value, "microbatches")
    base, made = laid_out(graph)
    old = made.shape
    if wanted == old.microbatches:
        raise NotApplicable(f"the run has {wanted} microbatches in a step already")
    if made.schedule is None:
        raise NotApplicable("the order of passes is neither 1F1B, GPipe nor interleaved, so it cannot be continued")
    if made.fixed > _FIXED:
        raise NotApplicable(
            f"{made.fixed:.0%} of the passes is collectives and waiting for launches, and nothing tells how much of "
            "that a microbatch of another size takes"
        )
    if made.schedule == "interleaved" and wanted % old.stages:
        raise NotApplicable(f"an interleaved schedule needs a multiple of its {old.stages} stages")
    changed = relaid(base, made, made.schedule, old._replace(microbatches=wanted))
    size = f"{wanted} microbatches of {old.microbatches / wanted:.3g} times the size"
    notes = (
        f"The batch stays: {size}, each pass as much shorter or longer; transfers and pauses stay as they were.",
        f"The schedule stays {made.schedule}; no send holds up a pass.",
    )
    return Edited(changed, _DOUBT, notes)


CHANGE: Final = Change(
    name="microbatches",
    form="microbatches=M",
    about="the same batch goes through the pipeline in M microbatches",
    cost="smaller microbatches fill the device less; larger ones need more memory for activations",
    how=_how,
    apply=_apply,
)
