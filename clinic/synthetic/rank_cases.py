"""Some ranks keep the others waiting: stragglers, uneven work, uneven pipelines."""

from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean

from lostflops.testing import Straggler, SyntheticCluster

from .case import Case, late
from .jobs import DDP, TWO_HOSTS, pipeline

_FIRST, _STEPS = DDP.first_step, 12


def _heating(rank: int, first: float, growth: float) -> tuple[Straggler, ...]:
    """Every step is slower than the one before."""
    return tuple(
        Straggler(rank, "slow_kernels", factor=first + growth * number, steps=(_FIRST + number,))
        for number in range(_STEPS)
    )


def _batches(name: str, job: SyntheticCluster, sizes: Sequence[tuple[float, ...]]) -> Case:
    """Sizes by step and rank; the cure deals each step's samples out evenly."""

    def sized(steps: Sequence[tuple[float, ...]]) -> SyntheticCluster:
        larger = tuple(
            Straggler(rank, "larger_batch", factor=size, steps=(_FIRST + number,))
            for number, step in enumerate(steps)
            for rank, size in enumerate(step)
            if size > 1
        )
        return replace(job, stragglers=larger, steps=len(steps))

    even = [(fmean(step),) * len(step) for step in sizes]
    return Case(name, ("work_imbalance",), ("comm.wait",), sized(sizes), sized(even))


_SEQUENCES = [
    (1.02, 1.61, 1.10, 1.33),
    (1.45, 1.04, 1.21, 1.09),
    (1.12, 1.18, 1.05, 1.74),
    (1.03, 1.27, 1.52, 1.06),
    (1.38, 1.11, 1.02, 1.29),
    (1.08, 1.02, 1.83, 1.15),
    (1.57, 1.36, 1.07, 1.01),
    (1.19, 1.48, 1.04, 1.22),
]
_MICROBATCHES = pipeline(16, 2048)
_COOL = replace(DDP, steps=_STEPS)
_HOT = replace(_COOL, stragglers=tuple(part for rank in range(DDP.ranks) for part in _heating(rank, 1.02, 0.06)))

CASES = (
    late("gpu_slow_device", DDP, Straggler(2, "slow_kernels", factor=1.25)),
    late("gpu_one_rank_late_data", TWO_HOSTS, Straggler(3, "late_data", delay=60_000_000)),
    late("gpu_one_rank_host_stall", DDP, Straggler(1, "host_stall", delay=55_000_000)),
    late("gpu_one_rank_allocates", DDP, Straggler(0, "allocation", delay=15_000_000)),
    late("gpu_thermal_rank", replace(TWO_HOSTS, steps=_STEPS), *_heating(5, 1.02, 0.05)),
    _batches("gpu_more_samples", DDP, [(1.0, 1.0, 1.0, 1.35)] * 6),
    _batches("gpu_uneven_sequences", DDP, _SEQUENCES),
    Case("gpu_throttled_ranks", ("throttling",), ("compute",), _HOT, _COOL),
    Case(
        "gpu_uneven_stages",
        ("stage_imbalance",),
        ("comm.bubble",),
        replace(_MICROBATCHES, stage_layers=(2, 3, 5, 2)),
        replace(_MICROBATCHES, stage_layers=(3, 3, 3, 3)),
    ),
    Case("gpu_few_microbatches", ("few_microbatches",), ("comm.bubble",), pipeline(4, 8192), _MICROBATCHES),
)
