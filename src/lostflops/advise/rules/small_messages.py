"""Gradients are reduced by hand, a small message for each parameter."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import numpy as np

from lostflops.advise.claim import Claim, Gain, Rule
from lostflops.advise.signs.hand_made import are_small, best_buckets, in_hooks, latency_share
from lostflops.advise.signs.traffic import WAIT, sources
from lostflops.predict.edits.whole_model import gathered
from lostflops.results import Evidence
from lostflops.units import format_bytes, format_ns, format_share

if TYPE_CHECKING:
    from lostflops.advise.case import Case
    from lostflops.graph.tasks import Flags

_BUCKET: Final = 25
"""MiB, DDP's own."""
_SMALLEST: Final = 0.05
"""Of all time that they must be exposed."""


def _find(case: Case) -> Iterator[Claim]:
    made = case.traffic
    hooked = in_hooks(case)
    if hooked.any():
        yield from _hooked(case, hooked)
    if case.facts is not None and are_small(case, meetings := gathered(made.graph, case.facts)):
        yield _gathered(case, meetings)
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


def _hooked(case: Case, meetings: Flags) -> Iterator[Claim]:
    """How long a larger message takes, small ones hardly tell: the gain lies between nothing and what perfect overlap
    gains."""
    made = case.traffic
    rows = made.of(meetings)
    found, bound = case.price(f"bucket_mb={_BUCKET}"), case.price("overlap=perfect")
    exposed = int(made.exposed[rows].sum()) / case.wall
    if found is None or bound is None or exposed < _SMALLEST or found.gain <= 0:
        return
    share, lines = min(found.gain, bound.gain), sources(case.run, made, rows)
    basis = f"replaying the run with buckets of {_BUCKET} MiB, and at most what overlap=perfect gains"
    yield Claim(
        cause="small_messages",
        what=f"Gradients are reduced one by one as they come, in {made.a_step(rows):.0f} small messages a step.",
        taken=made.taken(rows),
        evidence=(
            Evidence(
                f"{made.a_step(rows):.0f} all-reduces a step and rank of "
                f"{format_bytes(int(np.median(made.size[rows])))} each (median) while backward goes on; each takes "
                f"{format_ns(int(made.took[rows].mean()))}, and compute hides {format_share(made.hidden(rows))}",
                events=made.examples(rows),
                steps=made.steps(rows),
                sources=lines,
            ),
            Evidence("no DistributedDataParallel wraps the model, so that they are in no buckets"),
        ),
        confidence=0.85,
        certain_if="the hook that calls all_reduce for each parameter is found in the program",
        fix=(
            f"model = DistributedDataParallel(model, bucket_cap_mb={_BUCKET}, gradient_as_bucket_view=True) instead of "
            f"a hook for each parameter{f' ({lines[0]})' if lines else ''}"
        ),
        gain=Gain(share, 0.0, bound.gain, basis),
    )


def _gathered(case: Case, meetings: Flags) -> Claim:
    made = case.traffic
    rows = made.of(meetings)
    lines, latency = sources(case.run, made, rows), latency_share(case, meetings) or 0.0
    share = min(int((made.exposed + made.waited)[rows].sum()) / case.wall, 1.0)
    return Claim(
        cause="small_messages",
        what=f"Every rank gathers the gradients of all, in {made.a_step(rows):.0f} small messages a step.",
        taken={**made.taken(rows), **made.taken(rows, WAIT)},
        evidence=(
            Evidence(
                f"{made.a_step(rows):.0f} all-gathers a step and rank of "
                f"{format_bytes(int(np.median(made.size[rows])))} each (median), behind the backward pass and one for "
                f"each parameter; each takes {format_ns(int(made.took[rows].mean()))}, of which latency is about "
                f"{format_share(latency)}",
                events=made.examples(rows),
                steps=made.steps(rows),
                sources=lines,
            ),
        ),
        confidence=0.9,
        certain_if="the loop that calls all_gather for each parameter is found in the program",
        fix=(
            "model = DistributedDataParallel(model, gradient_as_bucket_view=True), which averages gradients in buckets "
            f"while backward goes on, instead of dist.all_gather for each{f' ({lines[0]})' if lines else ''}"
        ),
        gain=Gain(share * latency, share * latency / 2, share, "latency of these messages, and what waits for them"),
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
