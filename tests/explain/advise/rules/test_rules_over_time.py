"""Warm-up, throttling, growing memory, the profiler and recompilation: series of steps with known truth."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.explain.advise.rules.made_loops import Loop, case_of, claims

from lostflops.core.errors import UnknownCost
from lostflops.explain.advise.case import Case
from lostflops.explain.advise.claim import Claim
from lostflops.explain.advise.rule import Rule
from lostflops.explain.advise.rules import compilation, growing_steps, memory_growth, profiler, throttling, warmup
from lostflops.testing import Losses, SyntheticCluster, store
from memory_run import MemoryRun

MS = 1_000_000
MIB = 1024 * 1024


def timed(rule: Rule, ns: Callable[[int, int], int], steps: int = 40, ranks: int = 2, **more: Any) -> list[Claim]:
    """What a rule says of steps of so many ns by rank and number; `more` are columns, by rank and number as well."""
    rows, begin = [], 0
    for number in range(steps):
        for rank in range(ranks):
            whole = ns(rank, number)
            own = {name: value(rank, number) for name, value in more.items()}
            marks = {"compiled": False, "profiled": False}
            phases = {"data": 0, "forward": whole // 2, "backward": whole - whole // 2, "optimizer": 0, "outside": 0}
            times = {"rank": rank, "attempt": 0, "step": number, "start": begin, "stop": begin + whole}
            rows.append(times | phases | marks | own)
        begin += max(ns(rank, number) for rank in range(ranks))
    run: Any = MemoryRun(timings=rows, ranks=[{"rank": rank} for rank in range(ranks)])
    with run:
        return list(rule.find(Case(run)))


def steadily(rank: int, number: int) -> int:
    return 10 * MS + (number * 7919 + rank * 104729) % 97 * MS // 100


def test_no_timings() -> None:
    for rule in (memory_growth.RULE, profiler.RULE):
        with pytest.raises(UnknownCost, match="step times were not recorded"):
            timed(rule, steadily, steps=0)


@pytest.mark.parametrize(
    "rule", [warmup.RULE, throttling.RULE, growing_steps.RULE, memory_growth.RULE, profiler.RULE, compilation.RULE]
)
def test_a_steady_job(rule: Rule) -> None:
    assert timed(rule, steadily) == []


def test_slow_first_steps() -> None:
    """Steps 1 to 5 take 40 ms, 34 others 10 ms: 150 of 540 ms are lost. The very first is slow in every job."""
    (found,) = timed(warmup.RULE, lambda rank, number: (500 if number == 0 else 40 if number <= 5 else 10) * MS)
    assert found.saving is not None
    assert found.saving.value == pytest.approx(150 / 540)
    assert found.evidence[0].steps == (1, 2, 3, 4, 5)
    assert timed(warmup.RULE, lambda rank, number: (500 if number == 0 else 20 if number <= 2 else 10) * MS) == []


def test_periodic_slow_steps() -> None:
    """Every 8th step takes 50 ms more between the passes: 4 of 39."""

    def outside(rank: int, number: int) -> int:
        return 50 * MS if number % 8 == 7 else 0

    (found,) = timed(warmup.RULE, lambda rank, number: 10 * MS + outside(rank, number), outside=outside)
    assert found.saving is not None
    assert found.saving.value == pytest.approx(250 / (390 + 250))
    assert found.what == "Every 8th step takes 50.0 ms longer (between the passes): 39.1% of all step time."
    assert found.evidence[0].steps == (7, 15, 23, 31, 39)


@pytest.mark.parametrize("period", [2, 5])
def test_a_period_in_noise(period: int) -> None:
    """Steps differ by 10%; one in `period` takes 5 ms more, and every step counts, the typical one too."""

    def took(rank: int, number: int) -> int:
        return steadily(rank, number) + (5 * MS if number % period == 1 else 0)

    (found,) = timed(warmup.RULE, took)
    assert found.saving is not None
    lost = 5 * len(range(1, 40, period)) / 39
    assert found.saving.value == pytest.approx(lost / (10.5 + lost), abs=0.02)
    assert found.saving.low < found.saving.value < found.saving.high
    assert found.saving.high - found.saving.low < 0.15
    assert found.what.startswith(f"Every {warmup.ordinal(period)} step takes")


def test_the_line_of_a_period_is_named(tmp_path: Path) -> None:
    """Every 3rd step saves a checkpoint for 80 ms; the window of six steps samples it."""
    stacks = ["main train.py:10;save train.py:33;write torch/serialization.py:5"] * 9

    def python(rank: int, number: int) -> int:
        return 80 if number % 3 == 1 else 0

    with case_of(Loop(steps=36, profiled=30, python=python, stacks=stacks).write(tmp_path)) as case:
        (found,) = claims(case, warmup.RULE)
    assert found.what.startswith("Every 3rd step takes 80.0 ms longer in save train.py:33: ")
    assert "save train.py:33" in found.fix


def test_a_single_stall_is_suspected() -> None:
    """30 s in one of 39 steps of 10 ms: nearly all of the time, but it may not come back."""
    (found,) = timed(warmup.RULE, lambda rank, number: steadily(rank, number) + (30_000 * MS if number == 17 else 0))
    assert found.saving is not None
    assert found.saving.value == pytest.approx(30_000 / (30_000 + 39 * 10.5), abs=0.01)
    assert (found.saving.kind, found.suspected) == (
        "bound",
        "It happened once in 39 steps, so it may not happen again.",
    )
    assert found.what.startswith("Step 17 stalled")


@pytest.mark.parametrize("slow", [{7}, {1, 20}, {5, 6, 17, 33}])
def test_now_and_then_a_slow_step_is_no_period(slow: set[int]) -> None:
    assert timed(warmup.RULE, lambda rank, number: (60 if number in slow else 10) * MS, ranks=1) == []


def test_slow_steps_of_a_trace(tmp_path: Path) -> None:
    """Without timings: in two of eight steps the host runs Python for 4 ms."""
    first = SyntheticCluster(ranks=2).first_step
    cluster = SyntheticCluster(ranks=2, steps=8, losses=Losses(python=4 * MS, steps=(first, first + 1)))
    with case_of(store(cluster.generate(), tmp_path / "run")) as case:
        (found,) = claims(case, warmup.RULE)
        assert found.saving is not None
        assert found.evidence[0].steps == (first, first + 1)
        assert sum(ns for (_, line), ns in found.taken.items() if line == "idle.python") == pytest.approx(
            case.total.lines["idle.python"], rel=0.01
        )
        assert sum(found.taken.values()) / case.wall == pytest.approx(found.saving.value, abs=0.02)
        assert claims(case, throttling.RULE) == []


def test_all_ranks_get_slower() -> None:
    (found,) = timed(throttling.RULE, lambda rank, number: 10 * MS + number * MS // 10, ranks=3)
    # 39 settled steps from 10.1 to 13.9 ms, of which the first 13 have the median 10.7
    assert found.saving is not None
    assert found.saving.value == pytest.approx(1 - 10.7 / 12.0)
    assert found.evidence[0].ranks == (0, 1, 2)
    assert found.suspected, "on a host other work does the same"
    assert "nvidia-smi" not in found.fix + found.certain_if
    assert timed(growing_steps.RULE, lambda rank, number: 10 * MS + number * MS // 10, ranks=3) == []


def test_one_part_of_the_step_that_grows() -> None:
    """Between the passes 0.1 ms more in each step: the program, and no device that slows down."""

    def outside(rank: int, number: int) -> int:
        return number * MS // 10

    def took(rank: int, number: int) -> int:
        return steadily(rank, number) + outside(rank, number)

    def half(rank: int, number: int) -> int:
        return steadily(rank, number) // 2

    phases = {"outside": outside, "forward": half, "backward": half}
    (found,) = timed(growing_steps.RULE, took, ranks=3, **phases)
    assert found.saving is not None
    assert found.saving.value == pytest.approx(1 - (10.5 + 0.7) / (10.5 + 2.0), abs=0.03)
    assert "because the time between the passes grows on all ranks" in found.what
    assert timed(throttling.RULE, took, ranks=3, **phases) == []
    more = {"tokens": lambda rank, number: 4096 + 41 * number}
    assert timed(growing_steps.RULE, took, ranks=3, **phases, **more) == []


def test_a_loss_over_all_past_batches_grows_in_the_backward_pass_too() -> None:
    """Half of the growth is between the passes, half in the backward pass; a device that slows down doubles nothing."""

    def grows(from_ms: float) -> Callable[[int, int], int]:
        return lambda rank, number: round((from_ms + number / 20) * MS)

    def took(rank: int, number: int) -> int:
        return steadily(rank, number) + number * MS // 10

    found = timed(growing_steps.RULE, took, ranks=3, outside=grows(0.2), forward=steadily, backward=grows(5))
    assert ["because the time between the passes grows" in one.what for one in found] == [True]
    assert timed(growing_steps.RULE, took, ranks=3, outside=grows(3), forward=steadily, backward=grows(5)) == []
    larger = timed(growing_steps.RULE, took, ranks=3, forward=grows(0.2), outside=steadily, backward=grows(5))
    assert larger == [], "inputs that get larger do the same"


@pytest.mark.parametrize("rule", [warmup.RULE, throttling.RULE, growing_steps.RULE])
@pytest.mark.few(1)
def test_healthy_jobs_of_a_loaded_machine_are_silent(rule: Rule) -> None:
    """Steps are slow together, and one in ten stalls."""
    alarms = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        state = rng.normal(size=40)
        for at in range(1, 40):
            state[at] = 0.6 * state[at - 1] + 0.8 * state[at]
        times = 1e7 * np.exp(0.08 * state) * (1 + (rng.random(40) < 0.1) * rng.uniform(0.2, 4, 40))
        alarms += bool([one for one in timed(rule, lambda _, number: int(times[number])) if not one.suspected])  # noqa: B023
    assert alarms == 0


def test_sequences_that_get_longer_slow_no_device_down() -> None:
    def longer(rank: int, number: int) -> int:
        return steadily(rank, number) * (100 + number) // 100

    assert timed(throttling.RULE, longer, tokens=lambda rank, number: 4096)
    assert timed(throttling.RULE, longer, tokens=lambda rank, number: 4096 + 41 * number) == []


def test_one_rank_that_gets_slower_is_not_all() -> None:
    """All steps take longer, because the others wait in the backward pass."""
    assert (
        timed(
            throttling.RULE,
            lambda rank, number: 10 * MS + number * MS // 10,
            ranks=3,
            forward=lambda rank, number: 5 * MS + (number * MS // 10 if rank == 1 else 0),
        )
        == []
    )


def test_a_job_that_others_disturb_for_a_while() -> None:
    assert timed(throttling.RULE, lambda rank, number: steadily(rank, number) * (2 if 20 < number < 30 else 1)) == []


def test_memory_that_grows() -> None:
    (found,) = timed(memory_growth.RULE, steadily, peak_memory=lambda rank, number: 500 * MIB + number * 2 * MIB)
    assert found.taken == {}
    assert found.what == "The process's memory grows by 2.10 MB per step: 2.10 GB in 1,000 steps."
    assert (found.ranks, found.evidence[0].ranks) == ((), (0, 1))
    (found,) = timed(memory_growth.RULE, steadily, peak_memory=lambda rank, number: 500 * MIB + number * 2 * MIB * rank)
    assert found.ranks == (1,)


@pytest.mark.parametrize(
    "peak",
    [
        lambda rank, number: 500 * MIB,
        lambda rank, number: 500 * MIB + min(number, 12) * 20 * MIB,
        lambda rank, number: 500 * MIB + (0 if number < 20 else 300 * MIB),
        lambda rank, number: round(500 * MIB + 100 * MIB * (1 - np.exp(-number / 5))),
        lambda rank, number: 500 * MIB + number * 4096,
        lambda rank, number: None,
    ],
)
def test_memory_that_settles(peak: Callable[[int, int], int | None]) -> None:
    assert timed(memory_growth.RULE, steadily, peak_memory=peak) == []


@pytest.mark.parametrize(("factor", "is_said"), [(3, True), (1.2, False)])
def test_profiled_steps(factor: float, is_said: bool) -> None:
    found = timed(
        profiler.RULE,
        lambda rank, number: round(10 * MS * (factor if number >= 30 else 1)),
        profiled=lambda rank, number: number >= 30,
    )
    assert [one.what.startswith("Profiled steps take 3.00x the time of normal steps") for one in found] == [
        True
    ] * is_said


def test_steps_that_compile_again() -> None:
    """Every tenth compiles for 90 ms; the first two did as well, as they should."""

    def is_compiling(rank: int, number: int) -> bool:
        return number % 10 == 0 or number == 1

    (found,) = timed(
        compilation.RULE,
        lambda rank, number: (100 if is_compiling(rank, number) else 10) * MS,
        compiled=is_compiling,
    )
    assert found.saving is not None
    assert found.saving.value == pytest.approx(3 * 90 / (35 * 10 + 4 * 100))
    assert found.evidence[0].steps == (10, 20, 30)
    assert timed(compilation.RULE, steadily, compiled=lambda rank, number: number < 2) == []


def test_a_job_with_a_window(tmp_path: Path) -> None:
    """None of them is seen in a loop that is steady."""
    with case_of(Loop(more=lambda rank, number: {"peak_memory": 10**9}).write(tmp_path)) as case:
        for rule in (warmup.RULE, throttling.RULE, memory_growth.RULE, profiler.RULE, compilation.RULE):
            assert claims(case, rule) == []
