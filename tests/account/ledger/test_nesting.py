"""Nested spans against looking at every span for every time."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from lostflops.account.ledger.nesting import Nest

spans = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 12)), max_size=14)
offsets = st.sampled_from([0, 1_700_000_000_000_000_000])


def columns(chosen, shift=0):
    start = np.array([start for start, _ in chosen], np.int64) + shift
    return start, start + np.array([length for _, length in chosen], np.int64)


def properly_nested(chosen):
    """Cut each span to end where the ones that it starts in do."""
    found = []
    for start, length in sorted(chosen, key=lambda span: (span[0], -span[1])):
        ends = [a + b for a, b in found if a <= start < a + b]
        found.append((start, min([start + length, *ends]) - start))
    return found


def innermost(chosen, time):
    """Of the spans that hold a time the one that started last, of these the one that ends first, of these the last."""
    held = [(start, -length, i) for i, (start, length) in enumerate(chosen) if start <= time < start + length]
    return max(held)[2] if held else -1


def around(chosen, i):
    """Of the spans that hold all of this one the smallest; of equal spans each lies in the one given before it.

    What takes no time is held by what holds its start, and holds nothing.
    """
    start, stop = chosen[i][0], sum(chosen[i])
    outer = [
        (a, -b, j)
        for j, (a, b) in enumerate(chosen)
        if a + b >= stop and start < a + b and (a, -b, j) < (start, start - stop, i)
    ]
    return max(outer)[2] if outer else -1


@settings(deadline=None)
@given(spans, offsets)
def test_innermost_of_any_spans(chosen, shift):
    """Spans may even cross."""
    times = range(-1, 45)
    found = Nest(*columns(chosen, shift)).innermost(np.array(times) + shift)
    assert found.tolist() == [innermost(chosen, time) for time in times]


@settings(deadline=None)
@given(spans.map(properly_nested), st.randoms(use_true_random=False))
def test_innermost_is_the_last_of_the_chain_of_parents(chosen, random):
    random.shuffle(chosen)
    nest = Nest(*columns(chosen))
    parents = nest.parents().tolist()
    for time in range(45):
        found = int(nest.innermost(np.array([time]))[0])
        chain = set()
        while found >= 0:
            chain.add(found)
            found = parents[found]
        assert chain >= {i for i, (start, length) in enumerate(chosen) if start <= time < start + length}


@settings(deadline=None)
@given(spans.map(properly_nested), st.randoms(use_true_random=False), offsets)
def test_parents(chosen, random, shift):
    random.shuffle(chosen)
    found = Nest(*columns(chosen, shift)).parents()
    assert found.tolist() == [around(chosen, i) for i in range(len(chosen))]


def test_what_starts_at_the_end_of_a_span_is_not_in_it():
    nest = Nest(np.array([0, 5]), np.array([5, 5]))
    assert nest.innermost(np.array([5])).tolist() == [-1]
    assert nest.parents().tolist() == [-1, -1]


def test_long_chains():
    """As deep and as wide as recorded ones: many siblings under one parent, and a deep stack."""
    wide = [(0, 10_000), *((i, 1) for i in range(10_000))]
    assert Nest(*columns(wide)).parents().tolist() == [-1] + [0] * 10_000
    deep = [(i, 4_000 - 2 * i) for i in range(2_000)]
    assert Nest(*columns(deep)).parents().tolist() == [*range(-1, 1_999)]
    assert Nest(*columns(deep)).innermost(np.array([1_999, 2_000, 2_001, 3_999, 4_000])).tolist() == [
        *(1_999, 1_999, 1_998, 0, -1)
    ]
    stairs = [(i, i + 1) for i in range(2_000)]
    assert Nest(*columns(stairs)).parents().tolist() == [-1] * 2_000


def test_nothing():
    none = np.zeros(0, np.int64)
    assert Nest(none, none).parents().tolist() == []
    assert Nest(none, none).innermost(np.array([3])).tolist() == [-1]
    assert Nest(np.array([1]), np.array([2])).innermost(none).tolist() == []
