"""Communication that could run under compute does not: reduced behind the backward pass, or gathered when needed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import numpy as np

from lostflops.advise.claim import Claim, Gain, Rule
from lostflops.advise.signs.hand_made import are_small, best_buckets
from lostflops.advise.signs.traffic import sources
from lostflops.advise.signs.unhidden import has_backward, unhidden
from lostflops.errors import UnknownCost
from lostflops.predict.edits.reductions import called
from lostflops.predict.edits.selecting import POINT_TO_POINT, between_ranks
from lostflops.predict.edits.whole_model import averaged
from lostflops.results import Evidence
from lostflops.units import format_bytes, format_ns, format_share

if TYPE_CHECKING:
    from lostflops.advise.case import Case
    from lostflops.advise.signs.traffic import Traffic
    from lostflops.graph.tasks import Flags

_HIDDEN: Final = 0.5
"""Part that compute hides from which on communication counts as overlapped."""
_SMALLEST: Final = 0.02
"""Of all time, that exposed transfers must take to be looked at."""
_SHARDED: Final = """
    select 1 from events
    where starts_with(name, 'FSDP::') or starts_with(name, 'FullyShardedDataParallel.') limit 1"""


def _find(case: Case) -> Iterator[Claim]:
    claims = [] if case.baseline is None else list(_replayed(case))
    if not claims and (case.baseline is None or not has_backward(case)):
        claims = list(unhidden(case))
    if not claims and case.baseline is None:
        raise UnknownCost(case.why_unpriced)
    yield from claims


def _replayed(case: Case) -> Iterator[Claim]:
    """Yield what the calls of replayed steps are for, and what of them nothing hides."""
    made = case.traffic
    if made.by_hand.any():
        if not are_small(case, made.by_hand):
            yield _by_hand(case, made)
        return
    if case.facts is not None and (moved := made.of(averaged(made.graph, case.facts))).any():
        if _is_exposed(case, made, moved):
            yield _averaged(case, made, moved)
        return
    gathered = called(made.graph, "all_gather") & (made.graph.meetings.ranks != 1)
    rows = made.of(gathered | (made.in_backward & called(made.graph, "reduce_scatter")))
    if made.of(gathered).any() and _is_exposed(case, made, rows) and case.price("prefetch=1") is not None:
        yield _unprefetched(case, made, rows)
        return
    late = made.of(called(made.graph, "reduce_scatter") & (made.graph.meetings.ranks != 1) & ~made.in_backward)
    if _is_exposed(case, made, late):
        yield _scattered(case, made, late)
        return
    # Kernels that send among more than two ranks are those of an all-to-all.
    exchanged = made.of(called(made.graph, "all_to_all", *POINT_TO_POINT) & ~between_ranks(made.graph))
    if _is_exposed(case, made, exchanged):
        yield _exchanged(case, made, exchanged)


def _is_exposed(case: Case, made: Traffic, rows: Flags) -> bool:
    return int(made.exposed[rows].sum()) >= _SMALLEST * case.wall and bool(rows.any()) and made.hidden(rows) < _HIDDEN


def _by_hand(case: Case, made: Traffic) -> Claim:
    rows = made.of(made.by_hand)
    cure = best_buckets(case)
    lines = sources(case.run, made, rows)
    is_sharded = bool(case.run.sql(_SHARDED).fetchall())
    own = (
        f"model = DistributedDataParallel(model, bucket_cap_mb={cure.bucket}, gradient_as_bucket_view=True), which "
        f"reduces while backward() goes on, instead of reducing behind it{f' ({lines[0]})' if lines else ''}; where "
        "gradients are kept by hand, Parameter.register_post_accumulate_grad_hook with all_reduce(async_op=True)"
    )
    sharded = (
        "fully_shard(block) on each block of the model before fully_shard(model) (FSDP1: auto_wrap_policy), so that "
        "each reduces its gradients while blocks before it still go backward; now one unit holds the whole model"
    )
    return Claim(
        cause="exposed_comm",
        what="Gradients are reduced when the backward pass is over, and nothing computes meanwhile.",
        taken=made.taken(rows),
        evidence=(_told(made, rows, "all-reduces of gradients, asked for behind the backward pass", lines),),
        confidence=0.9,
        certain_if="the call that reduces gradients behind backward() is found in the program",
        fix=sharded if is_sharded else own,
        changes=(cure.change,),
    )


def _unprefetched(case: Case, made: Traffic, rows: Flags) -> Claim:
    return Claim(
        cause="exposed_comm",
        what="Sharded parameters are gathered when they are needed, and compute waits for them.",
        taken=made.taken(rows),
        evidence=(
            _told(made, rows, "gatherings of parameters and scattered reductions", sources(case.run, made, rows)),
        ),
        confidence=0.9,
        certain_if="with prefetching the gathering of a unit starts before the unit before it has computed",
        fix=(
            "FSDP2: fully_shard(...) on each block, with block.set_modules_to_forward_prefetch([next_block]) and "
            "set_modules_to_backward_prefetch; FSDP1: FullyShardedDataParallel(..., backward_prefetch="
            "BackwardPrefetch.BACKWARD_PRE, forward_prefetch=True, limit_all_gathers=True); no "
            "CUDA_DEVICE_MAX_CONNECTIONS=1, which keeps gatherings behind compute"
        ),
        changes=("prefetch=1",),
    )


def _scattered(case: Case, made: Traffic, rows: Flags) -> Claim:
    """What a what-if of all communication gains would be more than that of these alone."""
    share = min(int(made.exposed[rows].sum()) / case.wall, 1.0)
    return Claim(
        cause="exposed_comm",
        what="Gradients are reduced to their shards when the backward pass is over, and nothing computes meanwhile.",
        taken=made.taken(rows),
        evidence=(_told(made, rows, "scattered reductions behind the backward pass", sources(case.run, made, rows)),),
        confidence=0.85,
        certain_if="with overlap_comm the reductions of a layer start while layers before it go backward",
        fix=(
            'DeepSpeed: "zero_optimization": {"overlap_comm": true}; Megatron: --overlap-grad-reduce; FSDP2: '
            "fully_shard(block) on each block, so that each reduces while blocks before it go backward"
        ),
        gain=Gain(share, share / 2, share, "what of these reductions nothing hides"),
    )


def _averaged(case: Case, made: Traffic, rows: Flags) -> Claim:
    share = min(int(made.exposed[rows].sum()) / case.wall, 1.0)
    lines = sources(case.run, made, rows)
    return Claim(
        cause="exposed_comm",
        what="Weights are averaged between steps, and nothing computes meanwhile.",
        taken=made.taken(rows),
        evidence=(_told(made, rows, "all-reduces of weights, outside of passes", lines),),
        confidence=0.85,
        certain_if="the call that averages parameters after the update is found in the program",
        fix=(
            "model = DistributedDataParallel(model, gradient_as_bucket_view=True), which reduces gradients while "
            f"backward() goes on, instead of averaging weights{f' ({lines[0]})' if lines else ''}; where ranks are "
            "meant to step on their own, average every n steps: "
            "torch.distributed.algorithms.model_averaging.averagers.PeriodicModelAverager(period=n)"
        ),
        gain=Gain(share, share / 2, share, "what of averaging nothing hides"),
    )


def _exchanged(case: Case, made: Traffic, rows: Flags) -> Claim:
    return Claim(
        cause="exposed_comm",
        what="Exchanges between all ranks run while nothing computes.",
        taken=made.taken(rows),
        evidence=(_told(made, rows, "all-to-alls", sources(case.run, made, rows)),),
        confidence=0.7,
        certain_if="the batch after the current one is exchanged while the current one computes, and steps get shorter",
        fix=(
            "torchrec: TrainPipelineSparseDist (inputs of the next batch are exchanged under this one's compute); "
            "mixture of experts: dispatch with async_op=True and compute shared experts or the other half of the batch "
            "meanwhile; smaller messages with fp16/bf16 qcomms"
        ),
        changes=("overlap=perfect",),
    )


def _told(made: Traffic, rows: Flags, what: str, lines: tuple[str, ...]) -> Evidence:
    steps = max(len(made.graph.steps), 1)
    return Evidence(
        f"{made.a_step(rows):.3g} {what} a step and rank, {format_bytes(made.bytes_a_step(rows))}; their transfers "
        f"take {format_ns(int(made.took[rows].sum()) // steps)} a step, and compute hides "
        f"{format_share(made.hidden(rows))}",
        events=made.examples(rows),
        ranks=tuple(np.unique(made.rank[rows]).tolist()),
        steps=made.steps(rows),
        sources=lines,
    )


RULE: Final = Rule(
    cause="exposed_comm",
    about=(
        "Ranks exchange gradients, parameters or activations while their devices have nothing else to do. Most of it "
        "could run under compute: a gradient can travel as soon as it is there, while earlier layers still go "
        "backward, and the parameters of the next layer can be gathered while this one computes."
    ),
    find=_find,
)
