"""How long will a step of a job take on a machine, and does the job fit in its memory?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from lostflops.core.errors import UnknownCost
from lostflops.predict.costs.times import CommTimes
from lostflops.predict.estimate.demand import Demand, Stage
from lostflops.predict.estimate.description import PlannedJob
from lostflops.predict.estimate.ranges import Range
from lostflops.predict.estimate.rates import Rates
from lostflops.predict.estimate.step_time import EstimatedStep, step_time

HEADROOM: Final = 3 << 30
"""Bytes of a device that are not counted: the driver's context, NCCL's buffers, memory that the allocator cannot
use."""


@dataclass(frozen=True, slots=True)
class PlannedMachine:
    """Machine that a job will run on; None for unknown figures."""

    name: str
    rates: Rates | None = None
    times: CommTimes | None = None
    per_host: int = 8
    capacity: int | None = None


@dataclass(frozen=True, slots=True)
class LaunchEstimate:
    """Figures of the result: step time of the stage that takes the longest, memory of the one that holds the most."""

    demand: Demand
    machine: PlannedMachine
    fullest: Stage
    step: EstimatedStep | None
    unknown: str
    """Reason why there is no step time."""

    @property
    def job(self) -> PlannedJob:
        return self.demand.job

    @property
    def tokens_per_second(self) -> Range | None:
        if self.step is None or not self.demand.has_tokens:
            return None
        return Range(
            self.job.step_tokens * 1e9 / self.step.total.high, self.job.step_tokens * 1e9 / self.step.total.low
        )

    @property
    def mfu(self) -> Range | None:
        """MFU relative to the dense peak of all ranks."""
        rates = self.machine.rates
        if self.step is None or rates is None or rates.peak is None or self.demand.flops is None:
            return None
        whole = self.demand.flops / (rates.peak * self.job.ranks) * 1e9
        return Range(whole / self.step.total.high, whole / self.step.total.low)

    @property
    def fits(self) -> str:
        """`yes` with `HEADROOM` to spare, `no`, `maybe`, or `unknown`."""
        if self.machine.capacity is None:
            return "unknown"
        held = self.fullest.memory.total
        if self.fullest.memory.activations is None and held.low <= self.machine.capacity:
            return "unknown"
        if held.low > self.machine.capacity:
            return "no"
        return "yes" if held.high + HEADROOM <= self.machine.capacity else "maybe"

    @property
    def is_tight(self) -> bool:
        """Whether the counted memory fits, and only what is not counted may be too much."""
        return self.fits == "maybe" and self.fullest.memory.total.high <= (self.machine.capacity or 0)


def estimate(demand: Demand, machine: PlannedMachine) -> LaunchEstimate:
    fullest = max(demand.stages, key=lambda stage: stage.memory.total.high)
    step, unknown = _slowest(demand, machine)
    return LaunchEstimate(demand, machine, fullest, step, unknown)


def _slowest(demand: Demand, machine: PlannedMachine) -> tuple[EstimatedStep | None, str]:
    if machine.rates is None:
        return None, "no device is named: give --device or --calibration"
    steps = []
    for stage in demand.stages:
        if stage.work is None:
            return None, "the factory returned no inputs, so FLOPs are not counted: return (module, inputs)"
        if stage.transfers and machine.times is None:
            return None, "the cost of communication is unknown: give --topology or --calibration"
        try:
            steps.append(
                step_time(
                    demand.job,
                    stage.work,
                    updated=stage.updated,
                    transfers=stage.transfers,
                    rates=machine.rates,
                    times=machine.times,
                )
            )
        except UnknownCost as error:
            return None, str(error)
    return max(steps, key=lambda step: step.total.high), ""
