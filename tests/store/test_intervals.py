"""Interval algebra against sets of single nanoseconds."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lostflops.store.intervals import Intervals

FAR = 1 << 62
pairs = st.lists(st.tuples(st.integers(-12, 40), st.integers(-12, 40)), max_size=12)
offsets = st.sampled_from([0, -(10**18), 1_700_000_000_000_000_000, FAR - 100, -FAR + 100])


def intervals(chosen, shift=0):
    return Intervals.of([a + shift for a, _ in chosen], [b + shift for _, b in chosen])


def instants(chosen, shift=0):
    """The set that the pairs mean, one element per nanosecond."""
    return {ns + shift for a, b in chosen for ns in range(a, b)}


def as_set(found):
    return {ns for a, b in zip(found.start.tolist(), found.stop.tolist(), strict=True) for ns in range(a, b)}


def check_canonical(found):
    assert found.start.dtype == found.stop.dtype == np.int64
    assert (found.start < found.stop).all(), "no empty intervals"
    assert (found.stop[:-1] < found.start[1:]).all(), "sorted, disjoint, not touching"


def check(found, expected):
    check_canonical(found)
    assert as_set(found) == expected
    assert found.total == len(expected)
    assert len(found) == sum(ns - 1 not in expected for ns in expected)


@given(pairs, offsets)
def test_of_is_the_union_of_its_pairs(a, shift):
    check(intervals(a, shift), instants(a, shift))


@given(pairs, pairs, offsets)
def test_operators_are_those_of_sets(a, b, shift):
    x, y = intervals(a, shift), intervals(b, shift)
    p, q = instants(a, shift), instants(b, shift)
    check(x | y, p | q)
    check(x & y, p & q)
    check(x - y, p - q)
    check(y - x, q - p)


@given(pairs, st.integers(-15, 45), st.integers(-15, 45), offsets)
def test_gaps_and_clip_split_a_window(a, low, high, shift):
    x, p = intervals(a, shift), instants(a, shift)
    window = set(range(low + shift, high + shift))
    inside, outside = x.clip(low + shift, high + shift), x.gaps(low + shift, high + shift)
    check(inside, p & window)
    check(outside, window - p)
    assert inside.total + outside.total == len(window)


@given(pairs, pairs, pairs)
def test_laws_of_sets(a, b, c):
    x, y, z = intervals(a), intervals(b), intervals(c)
    assert x | y == y | x
    assert x & y == y & x
    assert (x | y) | z == x | (y | z)
    assert (x & y) & z == x & (y & z)
    assert x & (y | z) == (x & y) | (x & z)
    assert x - (y | z) == (x - y) - z == (x - y) & (x - z)
    assert x - (y & z) == (x - y) | (x - z)
    assert (x - y) | (x & y) == x
    assert x | x == x & x == x
    assert x - x == Intervals.empty() == x & Intervals.empty()
    assert x | Intervals.empty() == x - Intervals.empty() == x
    assert x.total + y.total == (x | y).total + (x & y).total


@given(pairs, pairs)
def test_operations_leave_their_operands_alone(a, b):
    x, y = intervals(a), intervals(b)
    before = x.start.tolist(), x.stop.tolist(), y.start.tolist(), y.stop.tolist()
    _ = x | y, x & y, x - y, x.gaps(-5, 5), x.clip(-5, 5)
    assert before == (x.start.tolist(), x.stop.tolist(), y.start.tolist(), y.stop.tolist())


@given(st.lists(st.tuples(st.integers(-FAR, FAR - 1), st.integers(0, FAR)), max_size=8), st.data())
def test_huge_intervals_with_edges_as_the_only_points(chosen, data):
    """Too long to count nanoseconds: compare on the pieces between all edges."""
    half = data.draw(st.integers(0, len(chosen)))
    a, b = ([(s, min(s + d, FAR - 1)) for s, d in part] for part in (chosen[:half], chosen[half:]))
    edges = sorted({edge for pair in a + b for edge in pair})
    pieces = list(pairwise(edges))

    def held(pairs):
        return {(low, high) for low, high in pieces if any(s <= low and high <= e for s, e in pairs)}

    x, y = intervals(a), intervals(b)
    for found, expected in ((x | y, held(a) | held(b)), (x & y, held(a) & held(b)), (x - y, held(a) - held(b))):
        check_canonical(found)
        assert held(list(zip(found.start.tolist(), found.stop.tolist(), strict=True))) == expected
        assert found.total == sum(high - low for low, high in expected)


def test_touching_pairs_become_one():
    assert repr(Intervals.of([5, 0], [9, 5])) == "Intervals([0, 9))"


def test_empty_and_reversed_pairs_hold_no_time():
    assert Intervals.of([5, 9, 3], [5, 2, 3]) == Intervals.empty()
    assert Intervals.of([9, 0], [2, 1]) == Intervals.of([0], [1])
    assert Intervals.empty().total == 0
    assert Intervals.empty().gaps(3, 1) == Intervals.empty()
    assert Intervals.empty().gaps(1, 3) == Intervals.of([1], [3])
    assert Intervals.of([0], [9]).clip(5, 2) == Intervals.empty()


def test_results_are_plain_integers():
    assert type(Intervals.of([0], [3]).total) is int
    assert type(len(Intervals.of([0], [3]))) is int


@pytest.mark.parametrize(("start", "stop"), [([1], [2, 3]), ([[1]], [[2]]), (1, 2)])
def test_lists_that_do_not_pair_up_are_refused(start, stop):
    with pytest.raises(ValueError, match="two lists of one length"):
        Intervals.of(start, stop)


def test_comparison():
    one = Intervals.of([0], [3])
    assert one == Intervals.of([0, 1], [2, 3])
    assert one != Intervals.of([0], [4])
    assert one != "[0, 3)"
    with pytest.raises(TypeError):
        hash(one)


def test_repr_of_many_is_short():
    many = Intervals.of(range(0, 200, 2), range(1, 201, 2))
    assert repr(many).endswith("[14, 15), ... 100 in all)")
