"""How much of each span is in a set of time, against counting nanoseconds."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from lostflops.store.intervals import Intervals

LATEST = np.iinfo(np.int64).max
pairs = st.lists(st.tuples(st.integers(-10, 50), st.integers(-10, 50)), max_size=10)
spans = st.lists(st.tuples(st.integers(-15, 55), st.integers(0, 40)), max_size=8)
offsets = st.sampled_from([0, -(10**18), 1_700_000_000_000_000_000, (1 << 62) - 200])


def columns(chosen, shift):
    start = np.array([start for start, _ in chosen], np.int64) + shift
    return start, start + np.array([length for _, length in chosen], np.int64)


@settings(max_examples=200, deadline=None)
@given(pairs, spans, offsets)
def test_within_counts(chosen, asked, shift):
    instants = {t for a, b in chosen for t in range(a, b)}
    held = Intervals.of([a + shift for a, _ in chosen], [b + shift for _, b in chosen])
    expected = [sum(start <= t < start + length for t in instants) for start, length in asked]
    found = held.within(*columns(asked, shift))
    assert found.tolist() == expected
    assert found.dtype == np.int64


@settings(deadline=None)
@given(pairs, spans)
def test_within_is_the_length_of_the_intersection(chosen, asked):
    held = Intervals.of([a for a, _ in chosen], [b for _, b in chosen])
    for start, stop in zip(*columns(asked, 0), strict=True):
        assert held.within(np.array([start]), np.array([stop])).tolist() == [held.clip(int(start), int(stop)).total]


@settings(deadline=None)
@given(pairs, st.lists(st.integers(-15, 60), min_size=2, max_size=8))
def test_spans_that_touch_add_up(chosen, edges):
    held, times = Intervals.of([a for a, _ in chosen], [b for _, b in chosen]), np.array(sorted(edges))
    assert held.within(times[:-1], times[1:]).sum() == held.within(times[:1], times[-1:])[0]


def test_edges_are_half_open():
    held = Intervals.of([10, 20], [15, 30])
    starts, stops = np.array([9, 9, 10, 14, 15, 15, 19, 29, 30]), np.array([10, 11, 11, 15, 16, 20, 21, 30, 31])
    assert held.within(starts, stops).tolist() == [0, 1, 1, 1, 0, 0, 1, 1, 0]


def test_all_of_time():
    now = 1_700_000_000_000_000_000
    held = Intervals.of([now, now + 50], [now + 10, now + 51])
    assert held.within(np.array([0, 0, now + 5]), np.array([LATEST, now, LATEST])).tolist() == [11, 0, 6]


def test_nothing():
    none = np.zeros(0, np.int64)
    assert Intervals.empty().within(np.array([0, 5]), np.array([9, 5])).tolist() == [0, 0]
    assert Intervals.of([0], [5]).within(none, none).tolist() == []
