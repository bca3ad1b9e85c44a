"""The plan against made-up costs: time = alpha + beta * size, and a clock that goes by them."""

from collections import Counter
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lostflops.collect.calibrate.plan import Item, TrialOutcome, cost, plan, sizes_up_to

MB = 1 << 20
SIZES = sizes_up_to(1 << 30)
FAST, SLOW = (20e-6, 1e-11), (100e-6, 2e-8)


@dataclass
class Walk:
    """What was done, and when it ended."""

    items: list[Item] = field(default_factory=list)
    seconds: float = 0.0

    def largest(self, case: int) -> int:
        return max(item.size for item in self.items if item.case == case)

    def samples(self) -> Counter[tuple[int, int]]:
        found: Counter[tuple[int, int]] = Counter()
        for item in self.items:
            found[item.case, item.size] += item.batches
        return found


def walk(costs: list[tuple[float, float] | None], seconds: float, sizes: list[int] = SIZES, slower: float = 1) -> Walk:
    """`slower`: by what everything takes longer than a call tells."""
    done = Walk()
    items = plan(len(costs), sizes, 0.0, seconds)
    item = next(items)
    while True:
        found = costs[item.case]
        call = None if found is None else found[0] + found[1] * item.size
        done.seconds += slower * cost(item, call or 0)
        if item.is_kept:
            done.items.append(item)
        try:
            item = items.send(TrialOutcome(call, done.seconds))
        except StopIteration:
            return done


def test_every_case_gets_a_size_before_any_gets_the_next() -> None:
    done = walk([FAST, SLOW, FAST], 120)
    first = {}
    for number, item in enumerate(done.items):
        first.setdefault((item.case, item.size), number)
    small = max(number for (_, size), number in first.items() if size <= MB)
    assert small < min(number for (_, size), number in first.items() if size >= 64 * MB)
    assert all((case, size) in first for case in range(3) for size in SIZES if size <= MB)


def test_a_slow_case_stops_where_a_fast_one_goes_on() -> None:
    done = walk([FAST, SLOW], 60)
    assert done.largest(0) == SIZES[-1]
    assert 64 * MB <= done.largest(1) < SIZES[-1]


def test_samples() -> None:
    done = walk([FAST, SLOW], 60)
    found = done.samples()
    assert all(count >= 7 for (_, size), count in found.items() if size <= MB)
    assert min(found.values()) >= 3


def test_a_batch_lasts_about_a_millisecond_or_is_one_call() -> None:
    for item in walk([FAST, SLOW], 120).items:
        alpha, beta = (FAST, SLOW)[item.case]
        batch = item.calls * (alpha + beta * item.size)
        assert item.calls == 1 or 0.4e-3 < batch < 4e-3


def test_what_cannot_be_measured_is_not_tried_again() -> None:
    done = walk([None, FAST], 10)
    assert {item.case for item in done.items} == {1}


def test_nothing_is_begun_that_does_not_fit() -> None:
    done = walk([(30.0, 0.0), FAST], 150)
    assert {item.case for item in done.items} == {1}
    assert done.seconds < 150


def test_sizes_can_be_given() -> None:
    done = walk([FAST], 10, [3000, 48000])
    assert {item.size for item in done.items} == {3000, 48000}


def test_it_ends_early_when_all_is_measured() -> None:
    assert walk([FAST], 600, [1024]).seconds < 5


@pytest.mark.parametrize("seconds", [8, 30, 120])
@pytest.mark.parametrize("slower", [1, 2])
def test_the_time_is_kept(seconds: float, slower: float) -> None:
    done = walk([FAST, SLOW, (1e-3, 1e-9)] * 6, seconds, slower=slower)
    assert done.seconds <= 1.1 * seconds


@settings(deadline=None, derandomize=True, max_examples=150)
@given(
    st.lists(st.tuples(st.floats(1e-6, 1e-2), st.floats(1e-12, 1e-6)), min_size=1, max_size=20),
    st.floats(5, 200),
)
def test_the_time_is_kept_whatever_it_costs(costs: list[tuple[float, float]], seconds: float) -> None:
    done = walk(list(costs), seconds)
    looks = sum(cost(Item(case, SIZES[0], 1, 3), a + b * SIZES[0]) for case, (a, b) in enumerate(costs))
    assert done.seconds <= max(seconds, looks) + 1e-6
