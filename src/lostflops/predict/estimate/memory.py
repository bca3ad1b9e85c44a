"""Memory of one rank, by owner.

Parameters, gradients and optimizer states follow from shapes and are exact. Activations are a range, for a token of a
microbatch in a layer, in elements of the dtype of products:

    least      2 h + 2 q + 2 kv + g f         inputs of norms; queries, keys, values and the output of attention; the
                                              input of the activation (g: 2 if gated, else 1)
    separate   4 h + 3 q + 3 kv + 2 g f       also the outputs of norms, rotation and activation; q + kv less if
                                              positions are learned and nothing is rotated
    most       2 q more if keys and values are repeated for groups of queries, and in fp32 4 h inside of RMS norms,
               2 q + 2 kv if queries and keys are normed

If a token goes to k experts, it is copied: 2 k h more if separate (inputs and outputs of experts), 3 k h at most. With
tensor parallelism h is whole on every rank, unless the sequence is sharded there, which is the low end. fp32 statistics
are added (one number per head for attention, two for norms). A compiled model is between the first two, an eager one
between the last two, and a job for which this is unknown between the first and the last. Attention keeps no scores: an
implementation that does needs far more. With recomputation `full` a layer keeps its input, and one layer of one
microbatch at a time has all; `selective` is anything between. A pipeline stage holds as many microbatches as there are
stages from itself to the last (1F1B); with interleaved parts, more of them, in parts.

Not counted: the context of the driver, buffers of NCCL, memory that the caching allocator holds and has not handed out,
and Adam's step counters (4 bytes per tensor, on the host unless the optimizer is fused).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from lostflops.predict.estimate.description import SIZES, ModelDescription, PlannedJob
from lostflops.predict.estimate.ranges import NOTHING, Range, exactly
from lostflops.predict.estimate.tensors import TensorShard, list_stage_shards, stage_layers

STATES: Final = {"adamw": 2, "adam": 2, "sgd-momentum": 1, "sgd": 0}
"""State elements for each parameter, by optimizer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryEstimate:
    """Bytes in the memory of one rank."""

    parameters: int
    gradients: int
    optimizer: int
    activations: Range | None
    """None if they were not counted."""
    copies: Range
    """Parameters in the dtype of products, if they are held in another or gathered."""
    communication: Range

    @property
    def total(self) -> Range:
        exact = exactly(self.parameters + self.gradients + self.optimizer)
        return exact + (self.activations or NOTHING) + self.copies + self.communication


def memory(
    model: ModelDescription, job: PlannedJob, stage: int, *, dp_rank: int = 0, tp_rank: int = 0
) -> MemoryEstimate:
    """Estimate the memory of one rank; the first of each dimension has the most."""
    mine = list_stage_shards(model, job, stage, tp_rank)
    whole = sum(part.elements for part in mine)
    shard = sum(part.count_shard_elements(job.shards, dp_rank) for part in mine)
    size = SIZES[job.held_dtype]
    return MemoryEstimate(
        parameters=size * (shard if job.zero >= 3 else whole),
        gradients=size * (shard if job.zero >= 2 else whole),
        optimizer=optimizer_bytes(job, shard if job.zero >= 1 else whole),
        activations=activations(model, job, stage),
        copies=_copies(job, whole, mine),
        communication=_communication(job, whole * size, mine),
    )


def optimizer_bytes(job: PlannedJob, elements: int) -> int:
    """Return the bytes of the states of some elements, with the fp32 copy of parameters that `master` means."""
    has_copy = job.precision == "master" and job.dtype != "fp32"
    size = SIZES["fp32" if has_copy else job.held_dtype]
    return size * elements * (STATES[job.optimizer] + has_copy)


def activations(model: ModelDescription, job: PlannedJob, stage: int) -> Range:
    tokens = job.tokens
    layers = stage_layers(model, job)[stage]
    layer = layer_activations(model, job) * tokens
    entry = Range(1 / job.tp, 1) * (tokens * model.hidden * job.product_size)
    ahead = count_held_microbatches(job, stage)
    whole = layer * (layers * ahead)
    full = entry * (layers * ahead) + layer
    kept = {"none": whole, "full": full, "selective": Range(full.low, max(full.high, whole.high))}
    ends = entry if stage == 0 else NOTHING
    if stage == job.pp - 1 and model.head != "none":
        chunk = tokens / job.loss_chunks * model.vocabulary / job.tp
        ends += Range(job.product_size, 2 * job.product_size + 8) * chunk + Range(entry.low, 3 * entry.high)
    return kept[job.recompute] + ends


def count_held_microbatches(job: PlannedJob, stage: int) -> float:
    """Return the microbatches whose activations a stage holds at once; with interleaved stages, parts of microbatches
    count as parts.

    >>> job = PlannedJob(sequence=1, pp=4, batch=8)
    >>> [count_held_microbatches(job, stage) for stage in (0, 3)]
    [4, 1]
    >>> count_held_microbatches(PlannedJob(sequence=1, pp=4, virtual_stages=2, batch=8), 0)
    5.5
    """
    left = job.pp - stage
    if job.virtual_stages == 1:
        return min(job.microbatches, left)
    parts = 2 * (left - 1) + (job.virtual_stages - 1) * job.pp + 1
    return min(job.microbatches, parts / job.virtual_stages)


def layer_activations(model: ModelDescription, job: PlannedJob) -> Range:
    """Return the bytes for a token in a layer. What tensor parallelism does not shard (h) is whole on every rank,
    unless the sequence is sharded there (sequence parallelism), which is the low end."""
    h, f = model.hidden, model.ffn * max(1, model.experts_per_token) / job.tp
    q, kv = model.heads * model.width / job.tp, model.keys * model.width / job.tp
    gates = 2 if model.gated else 1
    least = 2 * h / job.tp + 2 * q + 2 * kv + gates * f
    rotated = 0 if model.positions else q + kv
    routed = h * model.experts_per_token
    inner = 2 * q + 2 * kv + rotated + 2 * gates * f + 2 * routed
    separate = 4 * h + inner
    upcast = 4 * h + 2 * (q + kv) * model.qk_norm if model.norm == "rms" else 0
    most = separate + (2 * q if model.keys < model.heads else 0) + routed + upcast * 4 / job.product_size
    low, high = 4 * h / job.tp + inner if job.compiled is False else least, separate if job.compiled else most
    statistics = 4 * (model.heads / job.tp + 2)
    return Range(low * job.product_size + statistics, high * job.product_size + statistics)


def _copies(job: PlannedJob, whole: int, mine: tuple[TensorShard, ...]) -> Range:
    """Return the bytes of copies of parameters. Casts of autocast live until the end of a pass, unless they are made
    where they are used; ZeRO-3 has one to two layers gathered at a time, or the embedding or head if that is larger."""
    if job.zero >= 3:
        unit = _largest_unit(mine) * job.product_size
        return Range(unit, 2 * unit)
    is_cast = job.precision == "autocast" and job.dtype != "fp32"
    return Range(0, whole * job.product_size) if is_cast else NOTHING


def _communication(job: PlannedJob, gradients: int, mine: tuple[TensorShard, ...]) -> Range:
    """Return the bytes of buffers. DDP's buckets are a second copy of gradients unless they are views; sharded
    gradients pass through a unit's buffer."""
    if job.alike == 1:
        return NOTHING
    if job.zero >= 2:
        unit = _largest_unit(mine) * SIZES[job.reduce_dtype or job.held_dtype]
        return Range(unit, 2 * unit)
    return Range(0, gradients)


def _largest_unit(mine: tuple[TensorShard, ...]) -> int:
    """Return the most elements that are gathered at once: a layer, or the embedding, or the head."""
    units = {"embedding": 0, "layer": 0, "head": 0}
    for part in mine:
        units[part.tensor.place] += part.elements // part.times
    return max(units.values())
