"""Shares of events against giving out every nanosecond by itself."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from lostflops.account.ledger.shares import by_event, by_priority, split_by_event
from lostflops.store.intervals import Intervals

events = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 15)), max_size=12)
pairs = st.lists(st.tuples(st.integers(-5, 60), st.integers(-5, 60)), max_size=6)
offsets = st.sampled_from([0, 1_700_000_000_000_000_000])


def columns(chosen, shift):
    start = np.array([start for start, _ in chosen], np.int64) + shift
    return start, start + np.array([length for _, length in chosen], np.int64)


def intervals(chosen, shift):
    return Intervals.of([a + shift for a, _ in chosen], [b + shift for _, b in chosen])


def each(chosen, inside):
    """The events that run in each nanosecond that counts, as positions."""
    counted = {t for a, b in inside for t in range(a, b)}
    for time in sorted(counted):
        yield [i for i, (start, length) in enumerate(chosen) if start <= time < start + length]


@settings(max_examples=200, deadline=None)
@given(events, pairs, offsets)
def test_by_event(chosen, inside, shift):
    expected = [0] * len(chosen)
    for running in each(chosen, inside):
        if running:
            expected[min(running, key=lambda i: (chosen[i][0], i))] += 1
    shares = by_event(*columns(chosen, shift), intervals(inside, shift))
    assert shares.tolist() == expected
    assert shares.dtype == np.int64
    assert int(shares.sum()) == (intervals(inside, shift) & Intervals.of(*columns(chosen, shift))).total


@settings(max_examples=200, deadline=None)
@given(events, pairs, offsets)
def test_split_by_event(chosen, inside, shift):
    """Pieces are disjoint, in order, and give each event what `by_event` gives it."""
    row, start, stop = split_by_event(*columns(chosen, shift), intervals(inside, shift))
    counted = {t for a, b in inside for t in range(a, b)}
    expected = {}
    for time, running in zip(sorted(counted), each(chosen, inside), strict=True):
        if running:
            expected[time + shift] = min(running, key=lambda i: (chosen[i][0], i))
    pieces = list(zip(row.tolist(), start.tolist(), stop.tolist(), strict=True))
    assert {time: one for one, begin, end in pieces for time in range(begin, end)} == expected
    assert sum(end - begin for _, begin, end in pieces) == len(expected)
    assert (start[1:] >= stop[:-1]).all()


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 15), st.integers(0, 3)), max_size=12), pairs, offsets)
def test_by_priority(labelled, inside, shift):
    chosen, label = [(start, length) for start, length, _ in labelled], [label for *_, label in labelled]
    expected = [0] * 5
    for running in each(chosen, inside):
        if running:
            expected[min(label[i] for i in running)] += 1
    shares = by_priority(*columns(chosen, shift), np.array(label, np.int64), 5, intervals(inside, shift))
    assert shares.tolist() == expected


def test_by_event_keeps_the_order_of_its_events():
    inside = Intervals.of([0], [100])
    assert by_event(np.array([50, 0]), np.array([60, 55]), inside).tolist() == [5, 55]
    assert by_event(np.array([0, 0]), np.array([5, 9]), inside).tolist() == [5, 4]
    assert by_event(np.array([0, 0]), np.array([9, 5]), inside).tolist() == [9, 0]


def test_an_event_inside_another_has_nothing():
    assert by_event(np.array([0, 2, 12]), np.array([10, 5, 13]), Intervals.of([0], [20])).tolist() == [10, 0, 1]


def test_of_several_at_once_the_smallest_label():
    start, stop = np.array([0, 5, 8]), np.array([20, 10, 9])
    assert by_priority(start, stop, np.array([2, 1, 0]), 3, Intervals.of([0], [20])).tolist() == [1, 4, 15]
