"""Gradients are reduced by hand, a small message for each parameter."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import numpy as np

from lostflops.advise.claim import Claim, Rule
from lostflops.advise.signs.hand_made import are_small, best_buckets, latency_share
from lostflops.advise.signs.traffic import sources
from lostflops.results import Evidence
from lostflops.units import format_bytes, format_ns, format_share

if TYPE_CHECKING:
    from lostflops.advise.case import Case


def _find(case: Case) -> Iterator[Claim]:
    made = case.traffic
    if not are_small(case, made.by_hand):
        return
    rows = made.of(made.by_hand)
    calls, middle = made.a_step(rows), int(np.median(made.size[rows]))
    latency = latency_share(case, made.by_hand) or 0.0
    cure = best_buckets(case)
    lines = sources(case.run, made, rows)
    yield Claim(
        cause="small_messages",
        what=f"Gradients are reduced in {calls:.0f} small messages a step, one after the other, behind backward.",
        taken=made.taken(rows),
        evidence=(
            Evidence(
                f"{calls:.0f} all-reduces a step and rank of {format_bytes(middle)} each (median), "
                f"{format_bytes(made.bytes_a_step(rows))} together; each takes "
                f"{format_ns(int(made.took[rows].mean()))}, of which latency is about {format_share(latency)}, and "
                f"compute hides {format_share(made.hidden(rows))}",
                events=made.examples(rows),
                steps=made.steps(rows),
                sources=lines,
            ),
            Evidence("they are asked for outside of the backward pass, and belong to no bucket of DDP"),
        ),
        confidence=0.9,
        certain_if="the loop that calls all_reduce for each parameter is found in the program",
        fix=(
            f"model = DistributedDataParallel(model, bucket_cap_mb={cure.bucket}, gradient_as_bucket_view=True) "
            f"instead of dist.all_reduce(p.grad) for each parameter{f' ({lines[0]})' if lines else ''}; where that "
            "cannot be, flatten gradients into one buffer (torch._utils._flatten_dense_tensors) and reduce it once"
        ),
        changes=(cure.change,),
    )


RULE: Final = Rule(
    cause="small_messages",
    about=(
        "Every message pays a latency that does not depend on its size. A loop that averages the gradients parameter "
        "by parameter pays it hundreds of times a step, while nothing computes. Buckets pay it a few times, under "
        "compute."
    ),
    find=_find,
)
