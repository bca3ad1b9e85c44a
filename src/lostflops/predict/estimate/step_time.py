"""Step time of a job, and what limits it.

Each product takes the longer of its FLOPs at the rate of its shape and its bytes at the memory's rate. Ops between
products, accumulated gradients and the optimizer take the time of their bytes. The low end is a compiled model whose
passes hide as much communication as they can; the high end launches every op by itself, fuses nothing, and exposes all
communication. The ends are closer for a job that is known to be eager or compiled. Sums of tensor parallelism are
exposed at both ends, because the next product waits for them. A pipeline of p stages and m microbatches adds p - 1
microbatches (1F1B, GPipe).
"""

from __future__ import annotations

from dataclasses import dataclass
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
    bubble = (microbatch.total + repeated * (1 / job.microbatches)) * (job.pp - 1)
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
    return Product(one.m, one.k, one.n, one.count, one.unshaped)


def _by_input(one: Product) -> Product:
    return Product(one.n, one.k, one.m, one.count, one.unshaped)


def _products(products: tuple[Product, ...], size: int, rates: Rates) -> tuple[Range, Range]:
    """Return the time of products that compute limits, and of those that memory limits."""
    computing = moving_ = NOTHING
    for one in products:
        computed = _at(one.flops, rates.flops(one.m, one.n, one.k))
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


def _sum(timed: tuple[tuple[Transfer, CollectiveTime], ...], *, blocking: bool, what: str = "") -> Range:
    total = NOTHING
    for one, time in timed:
        if one.blocking == blocking and (not what or one.dimension == what):
            total += Range(time.low, time.high) * one.count
    return total


def _estimate_exposed_comm(
    job: PlannedJob, forward: PassTime, backward: PassTime, timed: tuple[tuple[Transfer, CollectiveTime], ...]
) -> Range:
    """Return the exposed communication: at best what passes are too short to hide, at worst all of it. The backward
    pass hides the gradients that it makes, all passes hide the parameters that ZeRO-3 gathers."""
    data = _sum(timed, blocking=False, what="dp")
    passes = backward.total.low + (forward.total.low if job.zero else 0)
    hidden = passes * (job.microbatches if job.zero >= 2 else 1)
    pipeline = _sum(timed, blocking=False, what="pp")
    return Range(max(0.0, data.low - hidden), data.high) + Range(0, pipeline.high)


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
