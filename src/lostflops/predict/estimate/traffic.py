"""What a rank sends in a step: which collectives, how large, how many, in which dimension of the mesh.

Ranks are numbered with tensor parallelism varying fastest, then context and data parallelism, then pipelines; hosts
take ranks in that order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from lostflops.predict.costs.times import Group, Op
from lostflops.predict.estimate.description import SIZES, Job, Model
from lostflops.predict.estimate.tensors import Held, held, stage_layers

BUCKET: Final = 25 * 1024 * 1024
"""What DDP reduces at once."""
PLACES: Final = ("embedding", "layer", "head")


@dataclass(frozen=True, slots=True)
class Transfer:
    """`count` collectives of `size` bytes a step, in the sizes of times.py. Those that a pass waits for are `blocking`;
    others can run beside it."""

    dimension: Literal["dp", "cp", "tp", "pp"]
    what: str
    op: Op
    size: int
    count: int
    group: Group
    blocking: bool = False

    @property
    def total(self) -> int:
        return self.size * self.count


def traffic(model: Model, job: Job, stage: int, per_host: int) -> list[Transfer]:
    """Of one rank of a stage, with so many ranks on each host."""
    mine = held(model, job, stage)
    return [
        *data_parallel(job, mine, per_host),
        *_tensor_parallel(model, job, stage, per_host),
        *_context_parallel(model, job, stage, per_host),
        *_pipeline(model, job, stage, per_host),
    ]


def _group(ranks: int, stride: int, per_host: int) -> Group:
    return Group(ranks, min(ranks, -(-ranks * stride // per_host)))


def data_parallel(job: Job, mine: tuple[Held, ...], per_host: int) -> list[Transfer]:
    elements = sum(part.elements for part in mine)
    if job.alike == 1 or not elements:
        return []
    reduced = elements * SIZES[job.reduce_dtype or job.held_dtype]
    group = _group(job.shards, job.tp, per_host)
    if job.zero == 0:
        count = -(-reduced // BUCKET)
        return [Transfer("dp", "gradients", "all_reduce", reduced // count, count, _group(job.alike, job.tp, per_host))]
    units = sum(max((part.times for part in mine if part.tensor.place == place), default=0) for place in PLACES)
    times = job.microbatches if job.zero >= 2 else 1
    found = [Transfer("dp", "gradients", "reduce_scatter", reduced // units, units * times, group)]
    if job.zero == 3:
        gathered = elements * (job.product_size if job.dtype != "fp32" else 4)
        passes = 2 * job.microbatches
        found.append(Transfer("dp", "parameters", "all_gather", gathered // units, units * passes, group))
    else:
        gathered = elements * SIZES[job.held_dtype]
        found.append(Transfer("dp", "parameters", "all_gather", gathered // units, units, group))
    if job.replicas > 1:
        across = _group(job.replicas, job.tp * job.shards, per_host)
        found.append(Transfer("dp", "replicas", "all_reduce", reduced // units // job.shards, units * times, across))
    return [transfer for transfer in found if transfer.group.ranks > 1]


def _tensor_parallel(model: Model, job: Job, stage: int, per_host: int) -> list[Transfer]:
    """Two sums of activations a layer forward and two backward, the forward ones again where layers are recomputed;
    one where the vocabulary is sharded, on either end. Sequence parallelism moves as many bytes in two halves."""
    if job.tp == 1:
        return []
    group = _group(job.tp, 1, per_host)
    size = job.tokens * model.hidden * job.product_size
    passes = 3 if job.recompute == "full" else 2
    count = 2 * passes * stage_layers(model, job)[stage]
    ends = (stage == 0) + (stage == job.pp - 1 and model.head != "none")
    return [Transfer("tp", "activations", "all_reduce", size, (count + ends) * job.microbatches, group, blocking=True)]


def _context_parallel(model: Model, job: Job, stage: int, per_host: int) -> list[Transfer]:
    """Keys and values of a layer go to all ranks forward and backward, and their gradients come back; a ring moves as
    many bytes, a part at a time."""
    if job.cp == 1:
        return []
    group = _group(job.cp, job.tp, per_host)
    size = job.tokens * job.cp * 2 * model.keys * model.width // job.tp * job.product_size
    passes = stage_layers(model, job)[stage] * job.microbatches
    gathers = passes * (3 if job.recompute == "full" else 2)
    return [
        Transfer("cp", "keys and values", "all_gather", size, gathers, group, blocking=True),
        Transfer("cp", "gradients of keys and values", "reduce_scatter", size, passes, group, blocking=True),
    ]


def _pipeline(model: Model, job: Job, stage: int, per_host: int) -> list[Transfer]:
    if job.pp == 1:
        return []
    stride = job.tp * job.alike
    # Neighbouring stages share a host only where both fit on it.
    pair = Group(2, 1 if 2 * stride <= per_host else 2)
    size = job.tokens * model.hidden * job.product_size
    neighbours = (stage > 0) + (stage < job.pp - 1)
    found = [Transfer("pp", "activations", "send_recv", size, 2 * neighbours * job.microbatches, pair)]
    if model.tied and model.head != "none" and stage in {0, job.pp - 1}:
        weight = model.vocabulary * model.hidden // job.tp * SIZES[job.reduce_dtype or job.held_dtype]
        ends = Group(2, 1 if job.ranks <= per_host else 2)
        found.append(Transfer("pp", "tied embedding", "all_reduce", weight, 1, ends, blocking=True))
    return found
