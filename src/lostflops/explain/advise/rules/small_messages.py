"""A step sends many small messages, and each pays the latency."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from lostflops.core.estimate import Estimate, Strength
from lostflops.core.results import Evidence
from lostflops.core.units import format_bytes, format_ns, format_share
from lostflops.explain.advise.claim import Claim
from lostflops.explain.advise.rule import Rule
from lostflops.explain.advise.signs.hand_made import are_small, best_buckets, in_hooks, latency_share
from lostflops.explain.advise.signs.traffic import WAIT, sources, traffic_of
from lostflops.predict.whatif.graph_edits.reductions import select_collectives, tensor_groups
from lostflops.predict.whatif.graph_edits.whole_model import select_gradient_gathers

if TYPE_CHECKING:
    from lostflops.explain.advise.case import Case
    from lostflops.predict.graph.tasks import Flags

_BUCKET: Final = 25
"""DDP's default bucket size, in MiB."""
_SMALLEST: Final = 0.05
"""The messages must be exposed for at least this share of the time of all ranks."""
_FEW_BYTES: Final = 65_536
"""Messages that the model needs are small if their median size is at most this many bytes."""


class _Operation(NamedTuple):
    meetings: Flags
    name: str
    what: str
    fix: str


def _find(case: Case) -> Iterator[Claim]:
    made = traffic_of(case)
    hooked = in_hooks(case)
    if hooked.any():
        yield from _claim_hooked_messages(case, hooked)
    if case.facts is not None and are_small(case, meetings := select_gradient_gathers(made.graph, case.facts)):
        yield _claim_gradient_gathers(case, meetings)
    if are_small(case, made.by_hand):
        yield _by_hand(case)
    for one in _operations(case):
        yield from _of_the_model(case, one)


def _by_hand(case: Case) -> Claim:
    made = traffic_of(case)
    rows = made.of(made.by_hand)
    calls, middle = made.a_step(rows), int(np.median(made.size[rows]))
    latency = latency_share(case, made.by_hand) or 0.0
    cure = best_buckets(case)
    lines = sources(case.run, made, rows)
    return Claim(
        cause="small_messages",
        what=f"Gradients are all-reduced one by one after backward, in {calls:.0f} small messages per step.",
        taken=made.attribute(rows),
        evidence=(
            Evidence(
                f"{calls:.0f} all-reduces per step of {format_bytes(middle)} (median) take "
                f"{format_ns(int(made.took[rows].mean()))} each, about {format_share(latency)} of it latency; compute "
                f"hides {format_share(made.share_hidden(rows))}",
                events=made.examples(rows),
                steps=made.steps(rows),
                sources=lines,
            ),
        ),
        strength=Strength.STRONG,
        certain_if="find the loop in the program that calls all_reduce for each parameter.",
        fix=(
            f"Use DistributedDataParallel(model, bucket_cap_mb={cure.bucket}, gradient_as_bucket_view=True) instead of "
            f"dist.all_reduce(p.grad) for each parameter{f' ({lines[0]})' if lines else ''}. Or flatten the gradients "
            "into one buffer (torch._utils._flatten_dense_tensors) and reduce it once."
        ),
        changes=(cure.change,),
    )


def _operations(case: Case) -> Iterator[_Operation]:
    """Yield messages that the model itself needs, by operation."""
    made = traffic_of(case)
    graph = made.graph
    yield _Operation(
        select_collectives(graph, "all_to_all"),
        "all-to-alls",
        "Tokens are sent to experts in",
        "Send more tokens at once: use a larger microbatch, one all_to_all_single for all experts of a rank, and token "
        "counts and tokens in one message. Or place the experts of a layer on fewer ranks.",
    )
    if made.is_sharded:
        yield _Operation(
            select_collectives(graph, "all_gather", "reduce_scatter") & (graph.meetings.ranks != 1),
            "all-gathers and reduce-scatters",
            "FSDP gathers and reduces small units in",
            "Shard larger units: call fully_shard() on whole blocks, not on their layers (FSDP1: auto_wrap_policy with "
            "a larger min_num_params).",
        )
    yield _Operation(
        np.isin(graph.meetings.group, tensor_groups(graph)),
        "all-reduces",
        "Tensor-parallel layers all-reduce activations in",
        "Use fewer tensor-parallel ranks or a larger batch. Parallelize layers in pairs (ColwiseParallel, then "
        "RowwiseParallel), which need one all-reduce instead of two.",
    )


def _of_the_model(case: Case, one: _Operation) -> Iterator[Claim]:
    made = traffic_of(case)
    rows = made.of(one.meetings & (made.graph.meetings.size > 0))
    share = min(int(made.exposed[rows].sum()) / (case.wall or 1), 1.0)
    if share < _SMALLEST or np.median(made.size[rows]) > _FEW_BYTES or not are_small(case, one.meetings):
        return
    calls, latency = made.a_step(rows), latency_share(case, one.meetings) or 0.0
    yield Claim(
        cause="small_messages",
        what=f"{one.what} {calls:.0f} small messages per step, and each pays the latency.",
        taken=made.attribute(rows),
        evidence=(
            Evidence(
                f"{calls:.0f} {one.name} per step of {format_bytes(int(np.median(made.size[rows])))} (median) take "
                f"{format_ns(int(made.took[rows].mean()))} each, about {format_share(latency)} of it latency; compute "
                f"hides {format_share(made.share_hidden(rows))}",
                events=made.examples(rows),
                steps=made.steps(rows),
                sources=sources(case.run, made, rows),
            ),
        ),
        strength=Strength.FAIR,
        certain_if="record the job with twice the batch: the time of these messages must hardly change.",
        fix=one.fix,
        saving=Estimate.bound(share, "the exposed time of these messages"),
    )


def _claim_hooked_messages(case: Case, meetings: Flags) -> Iterator[Claim]:
    """Yield gradients that hooks reduce one by one. Small messages hardly show how long a large one takes: the gain is
    between zero and that of perfect overlap."""
    made = traffic_of(case)
    rows = made.of(meetings)
    found, bound = case.price(f"bucket_mb={_BUCKET}"), case.price("overlap=perfect")
    exposed = int(made.exposed[rows].sum()) / case.wall
    if found is None or bound is None or exposed < _SMALLEST or found.value <= 0:
        return
    lines, basis = sources(case.run, made, rows), "replaying the run with overlap=perfect"
    yield Claim(
        cause="small_messages",
        what=f"Gradients are all-reduced one by one during backward, in {made.a_step(rows):.0f} messages per step.",
        taken=made.attribute(rows),
        evidence=(
            Evidence(
                f"{made.a_step(rows):.0f} all-reduces per step of {format_bytes(int(np.median(made.size[rows])))} "
                f"(median) take {format_ns(int(made.took[rows].mean()))} each; compute hides "
                f"{format_share(made.share_hidden(rows))}; the model is not wrapped in DistributedDataParallel",
                events=made.examples(rows),
                steps=made.steps(rows),
                sources=lines,
            ),
        ),
        strength=Strength.STRONG,
        certain_if="find the hook in the program that calls all_reduce for each parameter.",
        fix=(
            f"Use DistributedDataParallel(model, bucket_cap_mb={_BUCKET}, gradient_as_bucket_view=True) instead of one "
            f"hook per parameter{f' ({lines[0]})' if lines else ''}."
        ),
        saving=Estimate.bound(bound.value, basis),
    )


def _claim_gradient_gathers(case: Case, meetings: Flags) -> Claim:
    made = traffic_of(case)
    rows = made.of(meetings)
    lines, latency = sources(case.run, made, rows), latency_share(case, meetings) or 0.0
    return Claim(
        cause="small_messages",
        what=f"Every rank all-gathers all gradients, in {made.a_step(rows):.0f} small messages per step.",
        taken={**made.attribute(rows), **made.attribute(rows, WAIT)},
        evidence=(
            Evidence(
                f"{made.a_step(rows):.0f} all-gathers per step of {format_bytes(int(np.median(made.size[rows])))} "
                "(median), one per parameter after the backward pass, take "
                f"{format_ns(int(made.took[rows].mean()))} each, about {format_share(latency)} of it latency",
                events=made.examples(rows),
                steps=made.steps(rows),
                sources=lines,
            ),
        ),
        strength=Strength.STRONG,
        certain_if="find the loop in the program that calls all_gather for each parameter.",
        fix=(
            "Use DistributedDataParallel(model, gradient_as_bucket_view=True), which averages gradients in buckets "
            f"during backward, instead of dist.all_gather for each parameter{f' ({lines[0]})' if lines else ''}."
        ),
    )


RULE: Final = Rule(
    cause="small_messages",
    about=(
        "Every message pays the latency, whatever its size. A loop that averages gradients parameter by parameter pays "
        "it hundreds of times per step, while nothing computes; buckets pay it a few times. Small FSDP units, experts "
        "with few tokens and small tensor-parallel layers pay it too, and each needs a different fix."
    ),
    find=_find,
)
