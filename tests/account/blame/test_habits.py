"""Who is late, by the order in all timed steps: on orders whose truth is known, and on healthy noise."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.account.blame.hand_made import Found, compared, profile

from lostflops.account.blame.habits import Habit
from lostflops.account.blame.stragglers import LastArrivals, chance, find

BASE = {"compute": 700, "comm.transfer": 100, "comm.wait": 200}


def habit(last: np.ndarray, lateness: float, ranks: int = 2) -> Habit:
    """Of a rank that was the last in these steps."""
    steps, times = last.size, int(last.sum())
    halves = (float(last[: steps // 2].mean()), float(last[steps // 2 :].mean()))
    return Habit(steps, times, halves, lateness, chance(LastArrivals(times, steps, 1 / ranks), ranks))


def window(*excess: int) -> Any:
    """Profiled steps of two ranks, of which rank 1 computes so much longer in each."""
    slow = [{**BASE, "compute": 700 + more, "comm.wait": 0} for more in excess]
    waits = {1: sum(max(more, 0) for more in excess)}
    return [profile(0, [BASE] * len(excess), waits), profile(1, slow)]


def late(profiles: Any, habits: dict[int, Habit]) -> list[tuple[int, str, float]]:
    found = find(compared(profiles), profiles, {}, Found(), habits)
    return [(one.rank, one.line, one.confidence) for one in found if one.confidence]


ALWAYS = habit(np.arange(33) != 7, 0.2)
NEVER = habit(np.zeros(33), 0.0)
UNSTEADY, STEADY = window(400, -150, 20), window(200, 210, 190)


def test_a_habit_needs_no_steady_window() -> None:
    assert late(UNSTEADY, {}) == []
    assert late(UNSTEADY, {0: NEVER, 1: ALWAYS}) == [(1, "compute", 0.95)]


def test_a_rank_that_waits_for_data_now_and_then_is_late_if_it_also_waits_next_to_the_window() -> None:
    """Two workers of a loader starve it every second step; in the job as a whole it is hardly ever last."""
    starved = [{**BASE, "idle.data": 400 * (at % 2), "comm.wait": 0} for at in range(8)]
    profiles = [profile(0, [BASE] * 8, {1: 1600}), profile(1, starved)]
    last = habit(np.arange(300) > 250, 0.0)
    assert late(profiles, {0: NEVER, 1: last}) == []
    assert late(profiles, {0: NEVER, 1: replace(last, data_excess=0.2)}) == [(1, "idle.data", 0.95)]
    computes = [{**BASE, "compute": 700 + 400 * (at % 2), "comm.wait": 0} for at in range(8)]
    profiles = [profile(0, [BASE] * 8, {1: 1600}), profile(1, computes)]
    assert late(profiles, {0: NEVER, 1: replace(last, data_excess=0.2)}) == [], "it was late for another reason"


def test_a_window_that_the_whole_job_contradicts_accuses_nobody() -> None:
    assert [rank for rank, *_ in late(STEADY, {})] == [1]
    assert late(STEADY, {0: habit(np.arange(33) % 2 == 0, 0.01), 1: habit(np.arange(33) % 2, 0.01)}) == []


def test_a_long_window_that_contradicts_few_timed_steps() -> None:
    """Last in 16 of 18 timed steps, but in 39 of 76 collectives of 40 profiled steps: a disturbance, not a habit."""
    few = habit(np.arange(18) > 1, 0.2)
    profiles = window(*([400, -330] * 20))
    last = {0: LastArrivals(37, 76, 0.5), 1: LastArrivals(39, 76, 0.5)}
    (found,) = find(compared(profiles), profiles, last, Found(), {0: NEVER, 1: few})
    assert found.confidence < 0.5
    often = {0: LastArrivals(6, 76, 0.5), 1: LastArrivals(70, 76, 0.5)}
    (found,) = find(compared(profiles), profiles, often, Found(), {0: NEVER, 1: few})
    assert found.confidence == 0.95


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(habit(np.arange(400) % 5 < 3, 0.02), id="in 60% of the steps, by 2%"),
        pytest.param(habit(np.arange(400) % 5 < 3, 0.1), id="in 60% of the steps, by 10%"),
        pytest.param(habit(np.ones(40), 0.02), id="always, by 2%"),
        pytest.param(habit(np.arange(40) >= 12, 0.2), id="for a while"),
        pytest.param(habit(np.ones(8) > 1, 0.2), id="never"),
    ],
)
def test_what_is_no_habit_is_not_enough(other: Habit) -> None:
    assert late(UNSTEADY, {0: NEVER, 1: other}) == []


def test_healthy_ranks_of_a_loaded_machine_are_silent() -> None:
    """What disturbs a rank lasts for some steps (each follows the one before with 70%), and is large: 10% of a step."""
    alarms = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        state = np.empty((3, 36))
        state[:, 0] = rng.normal(size=3)
        for at in range(1, 36):
            state[:, at] = 0.7 * state[:, at - 1] + rng.normal(0, np.sqrt(1 - 0.49), 3)
        came = 0.1 * np.exp(state)
        lateness = np.median(came - came.min(axis=0), axis=1)
        order = came.argmax(axis=0)
        alarms += any(habit(order == rank, lateness[rank], 3).is_certain for rank in range(3))
    assert alarms <= 2
