"""Long columns of a page hold what `to_json` gives: packed and unpacked, nothing is lost."""

import math
from struct import unpack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lostflops.core.results import HeatMap, Stacks
from lostflops.show.report.columns import NO_VALUE, cells, forest

WHOLE = st.integers(-(10**7), 10**7)
FRAMES = st.lists(st.sampled_from("abc"), min_size=1, max_size=4).map(tuple)


def _unpacked(block: HeatMap) -> list[list[float | None]]:
    found = cells(block)
    letter, size = {"u4": ("I", 4), "f8": ("d", 8)}[found.kind]
    numbers = unpack(f"<{len(found.packed) // size}{letter}", found.packed)
    none = (lambda one: one == NO_VALUE) if found.kind == "u4" else math.isnan
    values = [None if none(one) else one + found.least for one in numbers]
    rows = [values[row * found.places :][: found.places] for row in range(len(block.rows))]
    return [row[: len(told)] for row, (_, told) in zip(rows, block.rows, strict=True)]


@given(st.lists(st.lists(st.none() | WHOLE, max_size=5), max_size=4))
def test_cells_of_whole_numbers_are_kept(rows: list[list[int | None]]) -> None:
    block = HeatMap("map", "", tuple((str(place), tuple(row)) for place, row in enumerate(rows)), "ns", "")
    assert cells(block).kind == "u4"
    assert _unpacked(block) == [row["values"] for row in block.to_json()]


@pytest.mark.parametrize("values", [(0.25, None, 0.5), (-1.5, 2.0), (0, 2**33), (None, None)])
def test_cells_of_any_size_are_kept(values: tuple[float | None, ...]) -> None:
    block = HeatMap("map", "", (("row", values),), "share", "")
    assert _unpacked(block) == [list(values)]


def test_parts_of_a_nanosecond_are_not_sent() -> None:
    assert _unpacked(HeatMap("map", "", (("row", (1.4, 1000.6)),), "ns", "")) == [[1, 1001]]


def test_what_no_number_is_has_no_value() -> None:
    assert _unpacked(HeatMap("map", "", (("row", (math.inf, math.nan, 3.0)),), "ns", "")) == [[None, None, 3]]


@given(st.dictionaries(FRAMES, st.tuples(st.integers(0, 9), st.integers(1, 2**40)), max_size=12))
def test_a_forest_holds_all_stacks(made: dict[tuple[str, ...], tuple[int, int]]) -> None:
    found = forest(Stacks("stacks", "", tuple((frames, *sums) for frames, sums in made.items()), {}))
    count = len(found.ns) // 8
    parents, frames, samples = (unpack(f"<{count}I", one) for one in (found.parents, found.frames, found.samples))
    ns = unpack(f"<{count}d", found.ns)
    paths: list[tuple[str, ...]] = []
    for place, parent in enumerate(parents):
        assert parent <= place, "a branch stands before its parent"
        paths.append((*(paths[parent - 1] if parent else ()), found.names[frames[place]]))
    assert len(set(paths)) == len(paths) == len({one[:end] for one in made for end in range(1, len(one) + 1)})
    for path, seen, time in zip(paths, samples, ns, strict=True):
        under = [sums for one, sums in made.items() if one[: len(path)] == path]
        assert (seen, time) == (sum(one for one, _ in under), sum(one for _, one in under))
    siblings = [[ns[place] for place in range(count) if parents[place] == parent] for parent in range(count + 1)]
    assert all(times == sorted(times, reverse=True) for times in siblings)
