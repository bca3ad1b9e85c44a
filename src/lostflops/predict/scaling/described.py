"""How long would a step of a described job take with other numbers of ranks, given its measured step time?

The step is estimated at both numbers of ranks. Everything but exposed communication is then scaled so that the estimate
of the measured job is its measured step: that corrects rates of products, which are the same at any number of ranks.
Both ends of an estimate are scaled alike, which gives a range.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, log2
from typing import Final

import msgspec

from lostflops.core.errors import UnknownCost, UsageError
from lostflops.core.results import Field, Plot, Result, Series, Table
from lostflops.core.units import format_ns, format_share
from lostflops.predict.estimate.description import PlannedJob
from lostflops.predict.estimate.estimate import PlannedMachine, estimate
from lostflops.predict.estimate.ranges import Range
from lostflops.predict.estimate.request import Request, demand_of
from lostflops.predict.estimate.step_time import EstimatedStep

ERROR_PER_DOUBLING: Final = 0.02
"""Relative error per doubling of ranks. From 256 to 512 GB200, two systems of MLPerf, it was 0.013."""


@dataclass(frozen=True, slots=True)
class DescribedAnswer:
    """Predicted step of a job, in ns."""

    job: PlannedJob
    step: Range
    exposed: Range
    """Exposed communication."""

    @property
    def middle(self) -> float:
        return (self.step.low + self.step.high) / 2


def scale_description(
    asked: Request, machine: PlannedMachine, ranks: Sequence[int], *, strong: bool = False, batch: int | None = None
) -> Result:
    """Predict the steps of a described job at other numbers of ranks; `batch` are its sequences per step there."""
    measured = asked.job.step_seconds
    if not 0 < measured < inf:
        raise UsageError("the description has no step_seconds: add the measured step time of the job that it describes")
    jobs = [resize(asked.job, count, strong=strong, batch=batch) for count in sorted(set(ranks))]
    answers = [predict(asked, machine, job) for job in jobs]
    return Result(
        name="scale",
        title="Scaling of a described job",
        verdict=_verdict(asked.job, answers[-1]),
        blocks=(_table(asked.job, answers, machine.per_host), _plot(asked.job, answers)),
        notes=(*asked.remarks, *_notes(asked.job)),
    )


def resize(job: PlannedJob, ranks: int, *, strong: bool = False, batch: int | None = None) -> PlannedJob:
    """Return the job with another number of replicas: each takes as many sequences as before, or all together do."""
    replica = job.ranks // job.dp
    if ranks % replica:
        raise UsageError(
            f"{ranks:,} ranks are not a whole number of replicas: each has {replica:,} ranks "
            f"(tp {job.tp}, cp {job.cp}, pp {job.pp}). Give a multiple of that."
        )
    dp = ranks // replica
    fields = {
        **msgspec.structs.asdict(job),
        "dp": dp,
        "replicas": 1 if job.replicas == 1 else max(1, dp * job.replicas // job.dp),
        "batch": batch or (job.sequences if strong else job.sequences // job.dp * dp),
    }
    return PlannedJob(**fields)


def predict(asked: Request, machine: PlannedMachine, job: PlannedJob) -> DescribedAnswer:
    """Predict the step of `job`, which differs from the measured job in its ranks and its batch."""
    known, wanted = (_estimate(asked, machine, one) for one in (asked.job, job))
    measured = asked.job.step_seconds * 1e9
    ends = (
        _scale_end(measured, known.total.low, known.communication.low, wanted.total.low, wanted.communication.low),
        _scale_end(measured, known.total.high, known.communication.high, wanted.total.high, wanted.communication.high),
    )
    error = 1 + ERROR_PER_DOUBLING * abs(log2(job.ranks / asked.job.ranks))
    return DescribedAnswer(job, Range(min(ends) / error, max(ends) * error), wanted.communication)


def _estimate(asked: Request, machine: PlannedMachine, job: PlannedJob) -> EstimatedStep:
    answer = estimate(demand_of(Request(asked.model, job), machine.per_host), machine)
    if answer.step is None:
        raise UnknownCost(f"the step time cannot be estimated: {answer.unknown}")
    return answer.step


def _scale_end(measured: float, known: float, known_exposed: float, wanted: float, wanted_exposed: float) -> float:
    """Return the step at one end of the range. If the estimated communication alone exceeds the measured step, all of
    the estimate is scaled."""
    if known_exposed >= measured:
        return wanted * measured / known
    factor = (measured - known_exposed) / (known - known_exposed)
    return (wanted - wanted_exposed) * factor + wanted_exposed


def _verdict(job: PlannedJob, answer: DescribedAnswer) -> str:
    return (
        f"On {answer.job.ranks:,} ranks a step takes {format_ns(round(answer.middle))} "
        f"({format_ns(round(answer.step.low))} to {format_ns(round(answer.step.high))}), throughput per rank is "
        f"{format_share(_efficiency(job, answer))} of the measured job's."
    )


def _notes(job: PlannedJob) -> tuple[str, ...]:
    step = format_ns(round(job.step_seconds * 1e9))
    basis = f"Estimated and scaled to the measured step of {step} on {job.ranks:,} ranks"
    error = f"The range includes {format_share(ERROR_PER_DOUBLING)} per doubling of ranks"
    return (
        f"{basis}; exposed communication is as estimated.",
        f"{error} for what estimates leave out, such as late ranks.",
    )


def _efficiency(job: PlannedJob, answer: DescribedAnswer) -> float:
    before = job.sequences / job.ranks / (job.step_seconds * 1e9)
    return answer.job.sequences / answer.job.ranks / answer.middle / before


def _table(job: PlannedJob, answers: Sequence[DescribedAnswer], per_host: int) -> Table:
    fields = (
        Field("ranks", "count"),
        Field("hosts", "count", shown=False),
        Field("batch", "count"),
        Field("microbatches", "count"),
        Field("step_ns", "ns", "step"),
        Field("low_ns", "ns", "from"),
        Field("high_ns", "ns", "to"),
        Field("exposed_low_ns", "ns", shown=False),
        Field("exposed_high_ns", "ns", shown=False),
        Field("efficiency", "share", "per rank"),
    )
    rows = tuple(
        (
            answer.job.ranks,
            -(-answer.job.ranks // per_host),
            answer.job.sequences,
            answer.job.microbatches,
            *(round(ns) for ns in (answer.middle, answer.step.low, answer.step.high)),
            *(round(ns) for ns in (answer.exposed.low, answer.exposed.high)),
            _efficiency(job, answer),
        )
        for answer in answers
    )
    return Table("ranks", "By number of ranks", fields, rows)


def _plot(job: PlannedJob, answers: Sequence[DescribedAnswer]) -> Plot:
    lines = {
        "step": [(answer.job.ranks, answer.middle) for answer in answers],
        "at least": [(answer.job.ranks, answer.step.low) for answer in answers],
        "at most": [(answer.job.ranks, answer.step.high) for answer in answers],
    }
    series = (
        Series("measured", "marks", ((job.ranks, job.step_seconds * 1e9),)),
        *(Series(name, "line", tuple(points)) for name, points in lines.items()),
    )
    title = "Step time by number of ranks"
    return Plot("plot", title, Field("ranks", "count"), Field("step_ns", "ns", "step"), series, log_y=False)
