"""Series whose truth is known: what changes, and when."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lostflops.account.facts.changes import ChangeFinder, ComparedStep, JobChange

SECOND = 1_000_000_000


def find(times: Iterable[float], **columns: Any) -> list[JobChange]:
    """Return the changes of a job with these step times in seconds; columns are functions of the step's number."""
    finder, found = ChangeFinder(), []
    for number, seconds in enumerate(times):
        more = {name: column(number) for name, column in columns.items()}
        change = finder.take(ComparedStep(step=number, time=round(seconds * SECOND), **more))
        if change is not None:
            found.append(change)
    return found


def noisy(count: int, usual: float = 1.0, noise: float = 0.02, seed: int = 0) -> list[float]:
    chance = random.Random(seed)
    return [usual * chance.gauss(1, noise) for _ in range(count)]


def test_a_job_that_becomes_slower_is_found_once_with_its_step_and_its_rise() -> None:
    (change,) = find(noisy(200) + noisy(200, 1.3))
    assert change.kind == "slower"
    assert abs(change.step - 200) <= 3
    assert change.rise == pytest.approx(0.3, abs=0.03)


@pytest.mark.parametrize("seed", range(20))
def test_a_healthy_job_raises_nothing_in_a_thousand_steps_however_noisy(seed: int) -> None:
    assert find(noisy(1000, noise=(0.002, 0.02, 0.1, 0.3)[seed % 4], seed=seed)) == []


def test_checkpoints_and_hiccups_are_no_change() -> None:
    times = [1 + 20 * (number % 25 == 24) + 3 * (number % 60 == 7) for number in range(1000)]
    assert find(times) == []


def test_a_slow_minute_that_ends_is_not_reported_before_it_has_lasted_two_blocks() -> None:
    assert find(noisy(104) + noisy(8, 2) + noisy(300)) == []
    assert len(find(noisy(104) + noisy(16, 2) + noisy(300))) == 1


def test_rises_below_a_tenth_are_left_alone() -> None:
    assert find(noisy(200, noise=0.001) + noisy(400, 1.09, noise=0.001)) == []
    assert len(find(noisy(200, noise=0.001) + noisy(400, 1.12, noise=0.001))) == 1


def test_a_second_rise_is_found_too() -> None:
    first, second = find(noisy(200) + noisy(200, 1.3) + noisy(200, 2.0))
    assert (round(first.before / SECOND, 1), round(second.before / SECOND, 1)) == (1.0, 1.3)


def test_a_job_that_became_faster_is_compared_with_its_new_time() -> None:
    (change,) = find(noisy(200, 2.0) + noisy(200, 1.0) + noisy(100, 1.5))
    assert change.before / SECOND == pytest.approx(1.0, abs=0.02)


def test_steps_of_milliseconds_are_judged_over_seconds() -> None:
    """A machine that is busy for ten seconds is not a change."""
    assert find(noisy(4000, 0.01) + noisy(330, 0.03) + noisy(4000, 0.01)) == []
    assert len(find(noisy(4000, 0.01) + noisy(2000, 0.03))) == 1


def test_a_loader_that_starves_is_named() -> None:
    (change,) = find(noisy(200) + noisy(200, 1.5), data=lambda number: round(SECOND * (0.01 + 0.5 * (number >= 200))))
    assert change.kind == "data"


def test_the_rank_that_alone_waits_for_data_is_named() -> None:
    """A loader with two workers starves every second step."""
    times = noisy(200) + [1 + 0.8 * (number % 2) for number in range(200)]

    def alone(number: int) -> tuple[int, int]:
        return 2, round(SECOND * (0.01 + 0.8 * (number >= 200) * (number % 2)))

    (change,) = find(times, data=lambda number: alone(number | 1)[1], starved=alone)
    assert (change.kind, change.rank) == ("data", 2)


def test_no_rank_is_named_if_several_wait_for_data_or_it_waited_as_long_before() -> None:
    times = noisy(200) + noisy(200, 1.5)

    def waits(number: int) -> int:
        return round(SECOND * (0.01 + 0.5 * (number >= 200)))

    (change,) = find(times, data=waits, starved=lambda number: (number % 4, SECOND // 50))
    assert (change.kind, change.rank) == ("data", None)
    (change,) = find(times, data=waits, starved=lambda _: (1, SECOND // 2))
    assert (change.kind, change.rank) == ("data", None)


def test_a_wait_for_data_that_explains_little_of_the_rise_is_not_the_cause() -> None:
    (change,) = find(noisy(200) + noisy(200, 1.5), data=lambda number: round(SECOND * (0.01 + 0.1 * (number >= 200))))
    assert change.kind == "slower"


def test_the_rank_that_is_late_is_named_if_its_lateness_explains_the_rise() -> None:
    times = noisy(200) + noisy(200, 1.5)
    (change,) = find(times, late=lambda number: (3, SECOND // 2) if number > 204 else (1, 1000))
    assert (change.kind, change.rank) == ("late_rank", 3)
    (change,) = find(times, late=lambda _: (3, SECOND // 100))
    assert (change.kind, change.rank) == ("slower", None)


def test_a_rank_that_was_as_late_before_is_not_named_for_the_rise() -> None:
    """Everything becomes slower; rank 3 was the straggler all along."""
    times = noisy(200) + noisy(200, 1.3)
    (change,) = find(times, late=lambda _: (3, SECOND // 2))
    assert (change.kind, change.rank) == ("slower", None)
    (change,) = find(times, late=lambda number: (3, SECOND // 10 if number < 200 else SECOND // 2))
    assert (change.kind, change.rank) == ("late_rank", 3)


def test_longer_steps_that_do_more_work_are_no_change() -> None:
    times = noisy(200) + noisy(200, 2.0)
    assert find(times, work=lambda number: 1024 if number < 200 else 2048) == []
    assert len(find(times, work=lambda _: 1024)) == 1
    assert len(find(times, work=lambda number: 1024 if number < 200 else 0)) == 1


def test_memory_that_grows_without_end_is_found() -> None:
    (first, *_) = find(noisy(400), memory=lambda number: 1_000_000_000 + 3_000_000 * number)
    assert first.kind == "memory"
    assert first.after >= 1.2 * first.before


def test_memory_that_is_full_after_the_first_steps_is_no_change() -> None:
    assert find(noisy(1000), memory=lambda number: 1_000_000_000 + 50_000_000 * min(number, 30)) == []
    assert find(noisy(1000), memory=lambda number: 1_000_000_000 + 400_000_000 * (number > 300)) == []


@given(st.lists(st.floats(0, 1e6), max_size=400), st.booleans())
def test_any_series_gives_changes_that_are_rises_at_steps_of_the_series(times: list[float], is_known: bool) -> None:
    work = (lambda number: number % 3) if is_known else (lambda _: None)
    for change in find(times, work=work, memory=lambda number: number * number, data=lambda number: number % 5):
        assert change.after >= 1.1 * change.before or change.before == 0
        assert 0 <= change.step < len(times)


def test_a_job_that_creeps_is_reported() -> None:
    """Each block is a quarter of a percent slower than the one before: after 1,000 blocks, twelve times as slow."""
    finder = ChangeFinder()
    found = [
        change
        for number in range(8000)
        if (change := finder.take(ComparedStep(step=number, time=round(1e9 * 1.0025 ** (number // 8)))))
    ]
    assert found[0].kind == "slower"
    assert found[0].step < 100 * 8
    assert found[0].rise == pytest.approx(0.1, abs=0.01)
    assert found[-1].after > 10e9
