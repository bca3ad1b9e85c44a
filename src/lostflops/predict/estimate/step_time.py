"""Step time of a job, and what limits it.

Each product takes the longer of its FLOPs at the rate of its shape and its bytes at the memory's rate. Ops between
products, accumulated gradients and the optimizer take the time of their bytes. The low end is a compiled model whose
passes hide as much communication as they can; the high end launches every op by itself, fuses nothing, and exposes all
communication that half of the passes do not hide. The ends are closer for a job that is known to be eager or compiled.
Sums of tensor parallelism are exposed at both ends, because the next product waits for them, unless both are split into
parts that run side by side. A pipeline of p stages adds p - 1 microbatches to its m (1F1B, GPipe), divided by the
number of interleaved parts of a stage.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from lostflops.predict.costs.times import CollectiveTime, CommTimes
from lostflops.predict.estimate.description import SIZES, ModelDescription, PlannedJob
from lostflops.predict.estimate.memory import STATES
from lostflops.predict.estimate.ranges import NOTHING, Range, exactly
from lostflops.predict.estimate.rates import Rates
from lostflops.predict.estimate.tensors import list_stage_shards
from lostflops.predict.estimate.traffic import Transfer
from lostflops.predict.estimate.work import FLASH_BACKWARD, LAUNCHED, ModelWork, Product

PASSES: Final = Range(1, 2.5)
"""Times that the optimizer touches its bytes: once if fused; otherwise also for temporaries and the norm of
gradients."""

WIDE: Final = 2
"""How much longer a product takes in bf16 than in fp8, on every device that has both."""

ATTENTION: Final = {"fused": (1, 1), "flex": (0.9, 0.85)}
"""Part of the rate of fused attention, forward and backward: as PyTorch published it with FlexAttention (August
2024)."""


@dataclass(frozen=True, slots=True)
class PassTime:
    """Forward or backward pass of one microbatch, in ns: compute, moving bytes, and additional waits for launches."""

    compute: Range = NOTHING
    memory: Range = NOTHING
    launches: Range = NOTHING

    def __add__(self, other: PassTime) -> PassTime:
        return PassTime(self.compute + other.compute, self.memory + other.memory, self.launches + other.launches)

    def __mul__(self, factor: float) -> PassTime:
        return PassTime(self.compute * factor, self.memory * factor, self.launches * factor)

    @property
    def total(self) -> Range:
        return self.compute + self.memory + self.launches


@dataclass(frozen=True, slots=True, kw_only=True)
class EstimatedStep:
    """Parts of a step in ns; together they are the step."""

    compute: Range
    memory: Range
    launches: Range
    communication: Range
    """Exposed communication."""
    bubble: Range
    transfers: tuple[tuple[Transfer, CollectiveTime], ...] = ()

    @property
    def parts(self) -> dict[str, Range]:
        return {
            "compute": self.compute,
            "memory bandwidth": self.memory,
            "launches": self.launches,
            "exposed communication": self.communication,
            "pipeline bubble": self.bubble,
        }

    @property
    def total(self) -> Range:
        return self.compute + self.memory + self.launches + self.communication + self.bubble

    @property
    def limiter(self) -> str:
        return max(self.parts.items(), key=lambda part: part[1].low + part[1].high)[0]


def step_time(
    job: PlannedJob,
    work: ModelWork,
    *,
    updated: float,
    transfers: list[Transfer],
    rates: Rates,
    times: CommTimes | None,
) -> EstimatedStep:
    """Estimate the step by one stage, as the slowest; `updated` are the bytes that its optimizer moves."""
    forward = forward_pass(job, work, rates)
    backward = backward_pass(job, work, rates)
    again = {"none": NOTHING, "selective": Range(0, 1), "full": exactly(1)}[job.recompute]
    recomputed = PassTime(*(Range(part.low * again.low, part.high * again.high) for part in _fields(forward)))
    microbatch = forward + backward + recomputed
    timed = tuple((one, times.time(one.op, one.size, one.group)) for one in transfers) if times else ()
    blocked = _sum(timed, blocking=True)
    exposed = _estimate_exposed_comm(job, forward, backward, timed)
    whole = microbatch * job.microbatches
    updating = moving(updated, rates)
    # What is summed once a step (a tied embedding) is no part of a microbatch.
    repeated = _sum(tuple(pair for pair in timed if pair[0].dimension != "pp"), blocking=True)
    filling = (job.pp - 1) / job.virtual_stages
    # The first microbatch is sent through all parts of all stages, and its gradient back.
    sends = 2 * (job.pp * job.virtual_stages - 1)
    sent = _sum(tuple(pair for pair in timed if pair[0].op == "send_recv"), blocking=False, each=True) * sends
    repeated += _estimate_exposed_sums(job, (forward.compute + backward.compute) * job.microbatches, timed)
    bubble = (microbatch.total + repeated * (1 / job.microbatches)) * filling + sent
    return EstimatedStep(
        compute=whole.compute,
        memory=whole.memory + Range(updating.low * PASSES.low, updating.high * PASSES.high),
        launches=whole.launches,
        communication=blocked + exposed,
        bubble=bubble,
        transfers=timed,
    )


def _fields(one: PassTime) -> tuple[Range, Range, Range]:
    return one.compute, one.memory, one.launches


def forward_pass(job: PlannedJob, work: ModelWork, rates: Rates) -> PassTime:
    computing, moved = _products(work.products, job.product_size, rates)
    attention = _at(work.attention / ATTENTION[job.attention][0], rates.attention(job.sequence))
    return _add_launch_waits(
        PassTime(computing + attention, moved + _estimate_memory_time(work.moved, rates)), work.launched, rates
    )


def backward_pass(job: PlannedJob, work: ModelWork, rates: Rates) -> PassTime:
    """Estimate the backward pass: two products for each of the forward pass, with the weight and with the input."""
    turned = [side for one in work.products for side in (_by_weight(one), _by_input(one))]
    computing, moved = _products(tuple(turned), job.product_size, rates)
    attention = _at(work.attention * FLASH_BACKWARD / ATTENTION[job.attention][1], rates.attention(job.sequence))
    moved += _estimate_memory_time(work.moved * 2 + work.accumulated, rates)
    return _add_launch_waits(PassTime(computing + attention, moved), work.launched * 2, rates)


def _by_weight(one: Product) -> Product:
    return replace(one, n=one.k, k=one.n)


def _by_input(one: Product) -> Product:
    return replace(one, m=one.n, n=one.k, k=one.m)


def _products(products: tuple[Product, ...], size: int, rates: Rates) -> tuple[Range, Range]:
    """Return the time of products that compute limits, and of those that memory limits."""
    computing = moving_ = NOTHING
    for one in products:
        computed = _at(one.flops * (WIDE if one.is_wide else 1), rates.flops(one.m, one.n, one.k))
        moved = moving(one.elements * size, rates)
        if moved.low > computed.low:
            moving_ += Range(moved.low, max(moved.high, computed.high))
        else:
            computing += Range(computed.low, max(moved.high, computed.high))
    return computing, moving_


def moving(size: float, rates: Rates) -> Range:
    return _at(size, rates.memory)


def _estimate_memory_time(sizes: Range, rates: Rates) -> Range:
    return Range(moving(sizes.low, rates).low, moving(sizes.high, rates).high)


def _at(amount: float, rate: Range) -> Range:
    return Range(amount / rate.high * 1e9, amount / rate.low * 1e9)


def _add_launch_waits(one: PassTime, kernels: Range, rates: Rates) -> PassTime:
    """Add the time that the device waits for launches if they take longer than what is launched. The waits of an eager
    host at best are also there at worst, when kernels are slow and do not hide them."""
    least, most = kernels.low * rates.launch_ns, kernels.high * rates.launch_ns
    worst = max(most - one.total.high, most * LAUNCHED[False].low - one.total.low)
    return PassTime(one.compute, one.memory, Range(max(0.0, least - one.total.low), max(0.0, worst)))


def _sum(
    timed: tuple[tuple[Transfer, CollectiveTime], ...], *, blocking: bool, what: str = "", each: bool = False
) -> Range:
    total = NOTHING
    for one, time in timed:
        if one.blocking == blocking and (not what or one.dimension == what):
            total += Range(time.low, time.high) * (1 if each else one.count)
    return total


def _estimate_exposed_comm(
    job: PlannedJob, forward: PassTime, backward: PassTime, timed: tuple[tuple[Transfer, CollectiveTime], ...]
) -> Range:
    """Return the exposed communication that passes can hide. Sends between stages wait for nothing if parts of stages
    are interleaved."""
    pipeline = NOTHING if job.virtual_stages > 1 else _sum(timed, blocking=False, what="pp")
    products = (forward.compute + backward.compute) * job.microbatches
    return (
        _estimate_exposed_data(job, forward.total, backward.total, timed)
        + Range(0, pipeline.high)
        + _estimate_exposed_sums(job, products, timed)
    )


def _estimate_exposed_data(
    job: PlannedJob, forward: Range, backward: Range, timed: tuple[tuple[Transfer, CollectiveTime], ...]
) -> Range:
    """Return the exposed communication of data parallelism. The backward pass hides the gradients that it makes, all
    passes hide the parameters that ZeRO gathers: at best as long as they take, at worst half as long, and never the
    last collective."""
    data = tuple(pair for pair in timed if pair[0].dimension == "dp")
    if job.zero < 2 and job.virtual_stages > 1:
        return _estimate_exposed_parts(job, forward, backward, data)
    whole = _sum(data, blocking=False)
    hidden = (backward + (forward if job.zero else NOTHING)) * (job.microbatches if job.zero >= 2 else 1)
    last = sum(time.high for _, time in data)
    return _between(whole.low - hidden.low, min(whole.high, max(last, whole.high - hidden.high / 2)))


def _estimate_exposed_parts(
    job: PlannedJob, forward: Range, backward: Range, data: tuple[tuple[Transfer, CollectiveTime], ...]
) -> Range:
    """Return the exposed data-parallel communication of interleaved parts of stages. As many microbatches as there are
    stages go through all parts before the next ones do: the first of them hide gathered parameters, and the last ones
    reduced gradients, of all parts but one."""
    exposed = NOTHING
    for is_gathered, hidden in ((True, forward), (False, backward)):
        sent = _sum(tuple(pair for pair in data if (pair[0].op == "all_gather") == is_gathered), blocking=False)
        exposed += _expose_first_part(sent, hidden * job.pp, job.virtual_stages)
    return exposed


def _estimate_exposed_sums(
    job: PlannedJob, compute: Range, timed: tuple[tuple[Transfer, CollectiveTime], ...]
) -> Range:
    """Return the exposed part of overlapped tensor-parallel sums. A sum and the product beside it are split into as
    many parts as there are ranks."""
    return _expose_first_part(_sum(timed, blocking=False, what="tp"), compute, job.tp)


def _expose_first_part(sent: Range, work: Range, parts: int) -> Range:
    """Return the exposed part of communication that is split into parts, each beside the work on another: one part, and
    what takes longer than the work."""
    least, most = (
        max(time / parts, time - beside * (parts - 1) / parts)
        for time, beside in ((sent.low, work.low), (sent.high, work.high))
    )
    return _between(least, most)


def _between(one: float, other: float) -> Range:
    return Range(max(0.0, min(one, other)), max(0.0, one, other))


def updated_bytes(model: ModelDescription, job: PlannedJob, stage: int) -> float:
    """Return the bytes that the optimizer reads and writes: gradients once, parameters and states twice."""
    mine = list_stage_shards(model, job, stage)
    elements = sum(part.count_shard_elements(job.shards) if job.zero else part.elements for part in mine)
    return elements * update_size(job)


def update_size(job: PlannedJob) -> int:
    size = SIZES[job.held_dtype]
    copied = 8 if job.precision == "master" and job.dtype != "fp32" else 0
    state = 4 if copied else size
    return 3 * size + 2 * state * STATES[job.optimizer] + copied
