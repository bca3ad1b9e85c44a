"""Durations of calls: batches between barriers, so that a sample is transfer and not a wait for late ranks."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from statistics import median

from lostflops.collect.calibrate.collectives import Call
from lostflops.collect.calibrate.job import CalibrationJob
from lostflops.collect.calibrate.plan import WARM_UP


def batches(job: CalibrationJob, call: Call | None, calls: int, count: int) -> list[list[int]]:
    """Return the time of each batch in ns, by rank.

    All ranks of the job take part; those without a call wait for the others.
    """
    mine, turn = [], 0
    if call is not None:
        turn = _repeat(call, min(calls, WARM_UP), turn)
    job.synchronize()
    for _ in range(count):
        job.barrier()
        began = time.perf_counter_ns()
        if call is not None:
            turn = _repeat(call, calls, turn)
            job.synchronize()
        mine.append(time.perf_counter_ns() - began)
    return job.gather(mine)


def samples(elapsed: Sequence[Sequence[int]], groups: Sequence[Sequence[int]], calls: int) -> list[int]:
    """Return one sample per batch, in ns per call: of a group the slowest rank counts, of several groups the median.

    >>> samples([[100, 120], [110, 100], [300, 300], [200, 200]], [(0, 1), (2, 3)], 10)
    [20, 21]
    """
    count = len(elapsed[0])
    slowest = [[max(elapsed[rank][batch] for rank in group) for group in groups] for batch in range(count)]
    return [round(median(by_group) / calls) for by_group in slowest]


def time_action(action: Callable[[], object], synchronize: Callable[[], None], seconds: float) -> list[int]:
    """Return samples in ns of something that one process does alone: a few batches, within about `seconds`."""
    action()
    synchronize()
    once = _time_calls(action, synchronize, 1)
    calls = max(min(int(5e6 / max(once, 1)), 1000), 1)
    count = min(max(int(seconds * 1e9 / (once * calls)), 3), 15)
    return [_time_calls(action, synchronize, calls) for _ in range(count)]


def _time_calls(action: Callable[[], object], synchronize: Callable[[], None], calls: int) -> int:
    began = time.perf_counter_ns()
    for _ in range(calls):
        action()
    synchronize()
    return round((time.perf_counter_ns() - began) / calls)


def _repeat(call: Call, calls: int, turn: int) -> int:
    for number in range(turn, turn + calls):
        call(number)
    return turn + calls
