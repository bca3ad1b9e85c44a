"""What the collector gives up, and when."""

from __future__ import annotations

from typing import Any

import pytest

from lostflops.collect.budget import ALL, NO_RING, OFF, Budget

STEP = 150_000_000


def run(budget: Budget, steps: int, own: int, background: int = 0) -> list[dict[str, Any]]:
    told = [budget.account(i, STEP, own, background * i) for i in range(steps)]
    return [record for record in told if record is not None]


def test_within_the_budget_everything_stays() -> None:
    budget = Budget(0.01)
    told = run(budget, 100, STEP // 200)
    assert budget.level == ALL
    assert [round(record["own_share"], 6) for record in told] == [0.005] * 5
    assert {record["reason"] for record in told} == {None}


def test_each_stretch_past_it_gives_up_one_thing_more_until_nothing_is_left() -> None:
    budget = Budget(0.01)
    told = run(budget, 100, STEP // 50)
    assert [record["level"] for record in told] == [1, 2, 3, 3, 3]
    assert budget.level == OFF
    assert "overhead was 2.00% over 20 steps, more than 1.00%" in told[0]["reason"]


def test_threads_of_ours_count_as_well() -> None:
    budget = Budget(0.01)
    run(budget, 20, STEP // 200, background=STEP // 100)
    assert budget.level == NO_RING


def test_short_steps_are_measured_over_seconds_not_over_twenty() -> None:
    budget = Budget(0.01)
    told = [budget.account(i, 1_000_000, 50_000, 0) for i in range(1999)]
    assert told == [None] * 1999
    assert budget.account(1999, 1_000_000, 50_000, 0) is not None


def test_a_step_in_which_the_thread_lost_its_core_is_not_held_against_it() -> None:
    budget = Budget(0.01)
    told = [budget.account(i, STEP, STEP if i % 10 == 3 else STEP // 1000, 0) for i in range(20)]
    assert budget.level == ALL
    assert told[-1] is not None
    assert told[-1]["own_share"] == pytest.approx(0.001)


def test_what_threads_do_in_steps_that_do_not_count_does_not_count() -> None:
    """A minute of compiling, or a window, between the steps of a stretch."""
    budget = Budget(0.01)
    for step in range(40):
        if step == 10:
            budget.skip(STEP)
        told = budget.account(step, STEP, STEP // 1000, STEP if step >= 10 else 0)
    assert told is not None
    assert told["own_share"] == pytest.approx(0.001)
    assert budget.level == ALL
