"""The frontier is what trying every choice finds, and the peak of a choice what its edited memory has."""

from __future__ import annotations

from itertools import combinations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.predict.whatif.recomputation.made import Layer, trained

from lostflops.predict.whatif.recomputation.choose import cheapest, frontier
from lostflops.predict.whatif.recomputation.edit import recompute_modules
from lostflops.predict.whatif.recomputation.kept import find_kept_blocks
from lostflops.predict.whatif.recomputation.options import Options, options

SIZES = st.integers(1, 60)


@st.composite
def layers(draw, name="l", depth=1, most=4):
    made = []
    for place in range(draw(st.integers(1, most))):
        own = f"{name}{place}"
        parts = draw(layers(name=f"{own}.p", depth=depth - 1, most=2)) if depth and draw(st.booleans()) else ()
        inner = draw(st.lists(SIZES, max_size=3))
        other = [draw(st.integers(0, 30)) for _ in range(3)]
        until = draw(st.sampled_from(("what follows", "itself", "nobody")))
        made.append(Layer(own, inner, draw(SIZES), *other, draw(st.integers(1, 50)), parts, until))
    return made


def choices(found: Options):
    """Every set of modules of which none lies in another."""
    every = range(len(found.modules))
    for count in range(len(found.modules) + 1):
        for chosen in combinations(every, count):
            if all(found.end[one] <= other for one, other in combinations(chosen, 2)):
                yield chosen


@settings(max_examples=60, deadline=None)
@given(layers(), st.integers(1, 2))
def test_peaks_add_up_as_the_edited_memory_has_them(model, steps):
    memory, calls = trained(model, steps)
    parts = find_kept_blocks(memory, calls)
    found = options(memory, calls)
    for chosen in list(choices(found))[:40]:
        edited = recompute_modules(memory, parts, chosen)
        edited.self_check()
        assert edited.peak_bytes == found.peak(chosen)
        assert edited.total[-1] == memory.total[-1]


@settings(max_examples=100, deadline=None)
@given(layers(), st.integers(1, 2), st.floats(0, 1))
def test_the_cheapest_is_what_trying_all_finds(model, steps, part):
    found = options(*trained(model, steps))
    tried = [(found.takes(chosen), found.peak(chosen)) for chosen in choices(found)]
    lowest, highest = min(peak for _, peak in tried), found.peak(())
    limit = round(lowest - 1 + part * (highest - lowest + 1))
    fits = [cost for cost, peak in tried if peak <= limit]
    best = cheapest(found, limit)
    assert (best.ns if best else None) == (min(fits) if fits else None)
    assert best is None or (best.peak <= limit and best.exact)


@settings(max_examples=60, deadline=None)
@given(layers())
def test_no_choice_beats_the_frontier(model):
    found = options(*trained(model))
    line = frontier(found)
    assert [one.peak for one in line] == sorted((one.peak for one in line), reverse=True)
    assert [one.ns for one in line] == sorted(one.ns for one in line)
    every = [(found.peak(chosen), found.takes(chosen)) for chosen in choices(found)]
    assert line[-1].peak == min(peak for peak, _ in every)  # a thousandth is less than a byte here
    for point, after in zip(line, [*line[1:], None], strict=True):
        assert point.ns == min(ns for peak, ns in every if peak <= point.peak)
        if after is not None:
            assert after.ns == min(ns for peak, ns in every if peak <= after.peak)


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_any_moves_not_only_those_of_chains(data):
    count, points = data.draw(st.integers(1, 7)), data.draw(st.integers(1, 6))
    end = [data.draw(st.integers(at + 1, count)) for at in range(count)]
    for at in reversed(range(count)):  # inner ones end where outer ones do, at the latest
        end[at + 1 : end[at]] = [min(inner, end[at]) for inner in end[at + 1 : end[at]]]
    number = st.integers(-20, 5)
    moved = np.array([[data.draw(number) for _ in range(points)] for _ in range(count)])
    cost = np.array([data.draw(st.integers(0, 9)) for _ in range(count)])
    total = np.array([data.draw(st.integers(50, 100)) for _ in range(points)])
    found = Options(tuple(map(str, range(count))), np.array(end), cost, total, moved)
    tried = [(found.takes(chosen), found.peak(chosen)) for chosen in choices(found)]
    limit = data.draw(st.integers(min(peak for _, peak in tried) - 1, int(total.max())))
    fits = [ns for ns, peak in tried if peak <= limit]
    best = cheapest(found, limit)
    assert (best.ns if best else None) == (min(fits) if fits else None)
