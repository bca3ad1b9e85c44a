"""Communication of a rank in a step: which collectives, how large, how many, in which dimension of the mesh.

Ranks are numbered with tensor parallelism varying fastest, then context and data parallelism, then pipelines; hosts are
filled in that order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from lostflops.predict.costs.times import CommGroup, Op
from lostflops.predict.estimate.description import SIZES, ModelDescription, PlannedJob
from lostflops.predict.estimate.tensors import TensorShard, list_stage_shards, stage_layers

BUCKET: Final = 25 * 1024 * 1024
"""Bytes that DDP reduces at once."""
PLACES: Final = ("embedding", "layer", "head")


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """Equal collectives of one rank in a step."""

    dimension: Literal["dp", "cp", "tp", "pp"]
    what: str
    op: Op
    size: int
    """Bytes of each collective, as times.py counts them."""
    count: int
    """Number of collectives in a step."""
    group: CommGroup
    blocking: bool = False
    """Whether a pass waits for them; others can run beside it."""

    @property
    def total(self) -> int:
        return self.size * self.count


def traffic(model: ModelDescription, job: PlannedJob, stage: int, per_host: int) -> list[Transfer]:
    """Return the transfers of one rank of a stage, with `per_host` ranks on each host."""
    mine = list_stage_shards(model, job, stage)
    return [
        *data_parallel(job, mine, per_host),
        *_tensor_parallel(model, job, stage, per_host),
        *_context_parallel(model, job, stage, per_host),
        *_pipeline(model, job, stage, per_host),
    ]


def _group(ranks: int, stride: int, per_host: int) -> CommGroup:
    return CommGroup(ranks, min(ranks, -(-ranks * stride // per_host)))


def data_parallel(job: PlannedJob, mine: tuple[TensorShard, ...], per_host: int) -> list[Transfer]:
    elements = sum(part.elements for part in mine)
    if job.alike == 1 or not elements:
        return []
    reduced = elements * SIZES[job.reduce_dtype or job.held_dtype]
    group = _group(job.shards, job.tp, per_host)
    if job.zero == 0:
        count = -(-reduced // BUCKET)
        return [
            Transfer(
                dimension="dp",
                what="gradients",
                op="all_reduce",
                size=reduced // count,
                count=count,
                group=_group(job.alike, job.tp, per_host),
            )
        ]
    units = sum(max((part.times for part in mine if part.tensor.place == place), default=0) for place in PLACES)
    times = job.microbatches if job.zero >= 2 else 1
    found = [
        Transfer(
            dimension="dp",
            what="gradients",
            op="reduce_scatter",
            size=reduced // units,
            count=units * times,
            group=group,
        )
    ]
    if job.zero == 3:
        gathered = elements * (job.product_size if job.dtype != "fp32" else 4)
        passes = 2 * job.microbatches
        found.append(
            Transfer(
                dimension="dp",
                what="parameters",
                op="all_gather",
                size=gathered // units,
                count=units * passes,
                group=group,
            )
        )
    else:
        gathered = elements * SIZES[job.held_dtype]
        found.append(
            Transfer(
                dimension="dp", what="parameters", op="all_gather", size=gathered // units, count=units, group=group
            )
        )
    if job.replicas > 1:
        across = _group(job.replicas, job.tp * job.shards, per_host)
        found.append(
            Transfer(
                dimension="dp",
                what="replicas",
                op="all_reduce",
                size=reduced // units // job.shards,
                count=units * times,
                group=across,
            )
        )
    return [transfer for transfer in found if transfer.group.ranks > 1]


def _tensor_parallel(model: ModelDescription, job: PlannedJob, stage: int, per_host: int) -> list[Transfer]:
    """Return two sums of activations per layer forward and two backward, the forward ones again if layers are
    recomputed, and one on either end where the vocabulary is sharded. Sequence parallelism moves as many bytes in two
    halves."""
    if job.tp == 1:
        return []
    group = _group(job.tp, 1, per_host)
    size = job.tokens * model.hidden * job.product_size
    passes = 3 if job.recompute == "full" else 2
    count = 2 * passes * stage_layers(model, job)[stage]
    ends = (stage == 0) + (stage == job.pp - 1 and model.head != "none")
    return [
        Transfer(
            dimension="tp",
            what="activations",
            op="all_reduce",
            size=size,
            count=(count + ends) * job.microbatches,
            group=group,
            blocking=not job.tp_overlap,
        )
    ]


def _context_parallel(model: ModelDescription, job: PlannedJob, stage: int, per_host: int) -> list[Transfer]:
    """Return transfers of keys and values, which go to all ranks forward and backward in each layer, and of their
    gradients, which come back; a ring moves as many bytes, a part at a time."""
    if job.cp == 1:
        return []
    group = _group(job.cp, job.tp, per_host)
    size = job.tokens * job.cp * 2 * model.keys * model.width // job.tp * job.product_size
    passes = stage_layers(model, job)[stage] * job.microbatches
    gathers = passes * (3 if job.recompute == "full" else 2)
    return [
        Transfer(
            dimension="cp",
            what="keys and values",
            op="all_gather",
            size=size,
            count=gathers,
            group=group,
            blocking=True,
        ),
        Transfer(
            dimension="cp",
            what="gradients of keys and values",
            op="reduce_scatter",
            size=size,
            count=passes,
            group=group,
            blocking=True,
        ),
    ]


def _pipeline(model: ModelDescription, job: PlannedJob, stage: int, per_host: int) -> list[Transfer]:
    if job.pp == 1:
        return []
    stride = job.tp * job.alike
    # Neighbouring stages share a host only where both fit on it.
    pair = CommGroup(2, 1 if 2 * stride <= per_host else 2)
    # Each tensor-parallel rank sends its part of the tokens.
    size = job.tokens * model.hidden // job.tp * job.product_size
    neighbours = 2 * job.virtual_stages - (stage == 0) - (stage == job.pp - 1)
    found = [
        Transfer(
            dimension="pp",
            what="activations",
            op="send_recv",
            size=size,
            count=2 * neighbours * job.microbatches,
            group=pair,
        )
    ]
    if model.tied and model.head != "none" and stage in {0, job.pp - 1}:
        weight = model.vocabulary * model.hidden // job.tp * SIZES[job.reduce_dtype or job.held_dtype]
        ends = CommGroup(2, 1 if job.ranks <= per_host else 2)
        found.append(
            Transfer(
                dimension="pp", what="tied embedding", op="all_reduce", size=weight, count=1, group=ends, blocking=True
            )
        )
    return found
