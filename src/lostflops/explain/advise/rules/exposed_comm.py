"""Communication that could overlap with compute does not: gradients reduced late, or parameters gathered late."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import numpy as np

from lostflops.core.errors import UnknownCost
from lostflops.core.estimate import Strength
from lostflops.core.results import Evidence
from lostflops.core.units import format_bytes, format_ns, format_share
from lostflops.explain.advise.claim import Claim
from lostflops.explain.advise.rule import Rule
from lostflops.explain.advise.signs.hand_made import are_small, best_buckets
from lostflops.explain.advise.signs.machine import machine
from lostflops.explain.advise.signs.traffic import sources, traffic_of
from lostflops.explain.advise.signs.unhidden import has_backward, unhidden
from lostflops.predict.whatif.graph_edits.reductions import select_collectives
from lostflops.predict.whatif.graph_edits.selecting import POINT_TO_POINT, between_ranks
from lostflops.predict.whatif.graph_edits.whole_model import select_weight_averages

if TYPE_CHECKING:
    from lostflops.explain.advise.case import Case
    from lostflops.explain.advise.signs.traffic import Traffic
    from lostflops.predict.graph.tasks import Flags

_HIDDEN: Final = 0.5
"""Communication counts as overlapped if compute hides at least this part of it."""
_SMALLEST: Final = 0.02
"""Exposed transfers must take at least this share of the time of all ranks."""
_MUCH: Final = 0.15
"""The same for all-to-alls between dependent layers, which no setting hides completely."""


def _find(case: Case) -> Iterator[Claim]:
    claims = [] if case.baseline is None else list(_claim_from_replay(case))
    if not claims and (case.baseline is None or not has_backward(case)):
        claims = list(unhidden(case))
    if not claims and case.baseline is None:
        raise UnknownCost(case.why_unpriced)
    yield from claims


def _claim_from_replay(case: Case) -> Iterator[Claim]:
    """Yield claims about exposed calls in replayed steps, by their purpose."""
    made = traffic_of(case)
    if made.by_hand.any():
        if not are_small(case, made.by_hand):
            yield _by_hand(case, made)
        return
    if case.facts is not None and (moved := made.of(select_weight_averages(made.graph, case.facts))).any():
        if _is_exposed(case, made, moved):
            yield _claim_weight_averaging(case, made, moved)
        return
    gathered = select_collectives(made.graph, "all_gather") & (made.graph.meetings.ranks != 1)
    rows = made.of(gathered | (made.in_backward & select_collectives(made.graph, "reduce_scatter")))
    if made.of(gathered).any() and _is_exposed(case, made, rows) and case.price("prefetch=1") is not None:
        yield _claim_missing_prefetch(case, made, rows)
        return
    late = made.of(
        select_collectives(made.graph, "reduce_scatter") & (made.graph.meetings.ranks != 1) & ~made.in_backward
    )
    if _is_exposed(case, made, late):
        yield _claim_late_reduce_scatters(case, made, late)
        return
    # Kernels that send among more than two ranks are those of an all-to-all.
    exchanged = made.of(select_collectives(made.graph, "all_to_all", *POINT_TO_POINT) & ~between_ranks(made.graph))
    if _is_exposed(case, made, exchanged):
        yield _claim_all_to_alls(case, made, exchanged)


def _is_exposed(case: Case, made: Traffic, rows: Flags) -> bool:
    return (
        int(made.exposed[rows].sum()) >= _SMALLEST * case.wall
        and bool(rows.any())
        and made.share_hidden(rows) < _HIDDEN
    )


def _by_hand(case: Case, made: Traffic) -> Claim:
    rows = made.of(made.by_hand)
    cure = best_buckets(case)
    lines = sources(case.run, made, rows)
    own = (
        f"Use DistributedDataParallel(model, bucket_cap_mb={cure.bucket}, gradient_as_bucket_view=True), which "
        f"reduces during backward(), instead of reducing afterwards{f' ({lines[0]})' if lines else ''}. Or call "
        "all_reduce(async_op=True) in Parameter.register_post_accumulate_grad_hook. DeepSpeed: set "
        '"overlap_comm": true. Megatron: --overlap-grad-reduce.'
    )
    sharded = (
        "Call fully_shard(block) on each block before fully_shard(model) (FSDP1: auto_wrap_policy), so that each block "
        "reduces its gradients while earlier blocks run backward. Now the whole model is one unit."
    )
    return Claim(
        cause="exposed_comm",
        what="Gradients are reduced after the backward pass, while nothing computes.",
        taken=made.attribute(rows),
        evidence=(_cite_calls(made, rows, "all-reduces of gradients, started after the backward pass", lines),),
        strength=Strength.STRONG,
        certain_if="find the call in the program that reduces gradients after backward().",
        fix=sharded if made.is_sharded else own,
        changes=(cure.change,),
    )


def _claim_missing_prefetch(case: Case, made: Traffic, rows: Flags) -> Claim:
    return Claim(
        cause="exposed_comm",
        what="FSDP gathers parameters only when they are needed, and compute waits for them.",
        taken=made.attribute(rows),
        evidence=(
            _cite_calls(made, rows, "all-gathers of parameters and reduce-scatters", sources(case.run, made, rows)),
        ),
        strength=Strength.STRONG,
        certain_if="record with prefetching: each unit's all-gather must start before the previous unit ends.",
        fix=(
            "FSDP2: call fully_shard on each block, block.set_modules_to_forward_prefetch([next_block]) and "
            "set_modules_to_backward_prefetch. FSDP1: FullyShardedDataParallel(..., backward_prefetch="
            "BackwardPrefetch.BACKWARD_PRE, forward_prefetch=True)."
            + machine(case).pick(gpu=" Do not set CUDA_DEVICE_MAX_CONNECTIONS=1.")
        ),
        changes=("prefetch=1",),
    )


def _claim_late_reduce_scatters(case: Case, made: Traffic, rows: Flags) -> Claim:
    """Claim late reduce-scatters, with a price for these alone: a what-if of all communication would gain more."""
    return Claim(
        cause="exposed_comm",
        what="Gradients are reduce-scattered after the backward pass, while nothing computes.",
        taken=made.attribute(rows),
        evidence=(_cite_calls(made, rows, "reduce-scatters after the backward pass", sources(case.run, made, rows)),),
        strength=Strength.STRONG,
        certain_if="record with the fix: each layer's reduction must start while earlier layers run backward.",
        fix=(
            'DeepSpeed: set "zero_optimization": {"overlap_comm": true}. Megatron: use --overlap-grad-reduce. FSDP2: '
            "call fully_shard(block) on each block."
        ),
    )


def _claim_weight_averaging(case: Case, made: Traffic, rows: Flags) -> Claim:
    lines = sources(case.run, made, rows)
    return Claim(
        cause="exposed_comm",
        what="Weights are averaged between steps, while nothing computes.",
        taken=made.attribute(rows),
        evidence=(_cite_calls(made, rows, "all-reduces of weights, outside forward and backward", lines),),
        strength=Strength.STRONG,
        certain_if="find the call in the program that averages parameters after the update.",
        fix=(
            "Use DistributedDataParallel(model, gradient_as_bucket_view=True), which reduces gradients during "
            f"backward(), instead of averaging weights{f' ({lines[0]})' if lines else ''}. For local SGD, average only "
            "every n steps: torch.distributed.algorithms.model_averaging.averagers.PeriodicModelAverager(period=n)."
        ),
    )


def _claim_all_to_alls(case: Case, made: Traffic, rows: Flags) -> Claim:
    is_usual = int(made.exposed[rows].sum()) < _MUCH * case.wall
    return Claim(
        cause="exposed_comm",
        what="All-to-alls are exposed: nothing computes while they run.",
        taken=made.attribute(rows),
        evidence=(_cite_calls(made, rows, "all-to-alls", sources(case.run, made, rows)),),
        strength=Strength.FAIR,
        certain_if="exchange one half of the batch while the other half computes: steps must get shorter.",
        fix=(
            "Mixture of experts: dispatch with async_op=True, and compute shared experts or the other half of the "
            "batch in the meantime. torchrec: use TrainPipelineSparseDist. Exchange tokens in bfloat16 to halve the "
            "bytes."
        ),
        changes=("overlap=perfect",),
        suspected="A mixture of experts always exposes some all-to-all time." if is_usual else "",
    )


def _cite_calls(made: Traffic, rows: Flags, what: str, lines: tuple[str, ...]) -> Evidence:
    steps = max(len(made.graph.steps), 1)
    return Evidence(
        f"per step: {made.a_step(rows):.3g} {what} ({format_bytes(made.bytes_a_step(rows))}) take "
        f"{format_ns(int(made.took[rows].sum()) // steps)}; compute hides {format_share(made.share_hidden(rows))}",
        events=made.examples(rows),
        ranks=tuple(np.unique(made.rank[rows]).tolist()),
        steps=made.steps(rows),
        sources=lines,
    )


RULE: Final = Rule(
    cause="exposed_comm",
    about=(
        "Ranks exchange gradients, parameters or activations while nothing computes. Most of this can overlap with "
        "compute: gradients can be reduced as soon as they are ready, while earlier layers still run backward, and the "
        "parameters of the next layer can be gathered while this layer computes."
    ),
    find=_find,
)
