"""Memory, work and communication of one rank of each pipeline stage, for a described or a counted model."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from lostflops.core.errors import UsageError
from lostflops.predict.estimate.description import ModelDescription, PlannedJob
from lostflops.predict.estimate.factory import Counted
from lostflops.predict.estimate.memory import STATES, MemoryEstimate, memory, optimizer_bytes
from lostflops.predict.estimate.ranges import NOTHING, Range
from lostflops.predict.estimate.step_time import update_size, updated_bytes
from lostflops.predict.estimate.tensors import Tensor, TensorShard, check_layout, share, stage_layers, tensors
from lostflops.predict.estimate.traffic import Transfer, data_parallel, traffic
from lostflops.predict.estimate.work import LAUNCHED, ModelWork, Product, model_flops, recomputed_flops, work


@dataclass(frozen=True, slots=True)
class Stage:
    """Demand of one rank of a pipeline stage."""

    layers: int | None
    memory: MemoryEstimate
    work: ModelWork | None
    updated: float
    """Bytes that the optimizer moves."""
    transfers: list[Transfer]


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    name: str
    job: PlannedJob
    parameters: int
    embedding: int
    per_layer: int | None
    flops: int | None
    """FLOPs of the model in a step, on all ranks."""
    recomputed: Range
    stages: tuple[Stage, ...]
    has_tokens: bool = True


def estimate_demand(model: ModelDescription, job: PlannedJob, per_host: int) -> Demand:
    check_layout(model, job)
    found = tensors(model)
    by_place = {place: sum(one.elements for one in found if one.place == place) for place in ("layer", "head")}
    embedding = sum(one.elements for one in found if one.place == "embedding")
    return Demand(
        name=model.name,
        job=job,
        parameters=embedding + by_place["layer"] * model.layers + by_place["head"],
        embedding=embedding,
        per_layer=by_place["layer"],
        flops=model_flops(model, job),
        recomputed=recomputed_flops(model, job),
        stages=tuple(
            Stage(
                layers,
                memory(model, job, stage),
                work(model, job, stage),
                updated_bytes(model, job, stage),
                traffic(model, job, stage, per_host),
            )
            for stage, layers in enumerate(stage_layers(model, job))
        ),
    )


def estimate_counted_demand(model: Counted, job: PlannedJob, per_host: int) -> Demand:
    """Estimate the demand of a module that was counted: it is one stage, and how its layers could be sharded is not
    known."""
    if job.tp > 1 or job.pp > 1 or job.cp > 1:
        raise UsageError("how to split a Python model over tp, pp or cp is unknown: give a description of it instead")
    if job.recompute != "none":
        raise UsageError("a Python model is counted as it runs: recompute inside the model, and leave out --recompute")
    mine = tuple(
        TensorShard(Tensor(name=one.name, shape=one.shape, place="layer"), one.shape, 1)
        for one in model.parameters
        if one.trained
    )
    flops = None if model.flops is None else model.flops * job.dp * job.microbatches
    stage = Stage(
        layers=None,
        memory=_memory(model, job),
        work=_work(model, job),
        updated=sum(one.count_shard_elements(job.shards if job.zero else 1) for one in mine) * update_size(job),
        transfers=data_parallel(job, mine, per_host),
    )
    return Demand(
        name=model.name,
        job=job,
        parameters=model.elements,
        embedding=model.embedding,
        per_layer=None,
        flops=flops,
        recomputed=NOTHING,
        stages=(stage,),
        has_tokens=False,
    )


def _memory(model: Counted, job: PlannedJob) -> MemoryEstimate:
    """Estimate memory, with parameters and gradients in the dtypes that the module has, and states in those or as
    `master` says."""
    parts = job.shards

    def size(is_sharded: bool, only_trained: bool) -> int:
        return sum(
            one.element_size * share(one.shape[0], parts if is_sharded else 1, 0) * prod(one.shape[1:])
            for one in model.parameters
            if one.trained or not only_trained
        )

    is_cast = job.precision == "autocast" and model.dtype == "fp32" != job.dtype
    whole = size(is_sharded=False, only_trained=True)
    states = size(is_sharded=job.zero >= 1, only_trained=True) * STATES[job.optimizer]
    if job.precision == "master" and model.dtype != "fp32":
        trained = tuple(one for one in model.parameters if one.trained)
        rows = sum(share(one.shape[0], parts if job.zero >= 1 else 1, 0) * prod(one.shape[1:]) for one in trained)
        states = optimizer_bytes(job, rows)
    return MemoryEstimate(
        parameters=size(is_sharded=job.zero >= 3, only_trained=False),
        gradients=size(is_sharded=job.zero >= 2, only_trained=True),
        optimizer=states,
        # Autocast keeps what products take and give in half of the bytes that were counted, and norms in all of them.
        activations=None if model.kept is None else Range(model.kept / 2 if is_cast else model.kept, model.kept),
        copies=Range(0, whole) if job.zero >= 3 or is_cast else NOTHING,
        communication=Range(0, whole) if job.dp > 1 else NOTHING,
    )


def _work(model: Counted, job: PlannedJob) -> ModelWork | None:
    """Estimate work, None if it was not counted. A third of the counted FLOPs is forward. What autograd keeps is
    written and read at least once."""
    if model.flops is None or model.kept is None:
        return None
    launched = LAUNCHED[job.compiled] * model.kernels
    return ModelWork((Product(unshaped=model.flops / 3),), 0, Range(1, 3) * model.kept, NOTHING, launched)
