"""Bars of portions fill the width without overlap, and those of parts the bar of what they are parts of."""

from hypothesis import given, settings
from hypothesis import strategies as st

from lostflops.core.results import Portion, Portions
from lostflops.show.report.portions import MOST_PARTS, NARROWEST_BARS, draw_portions

SIZES = st.lists(st.lists(st.integers(1, 10**13), min_size=1, max_size=8), min_size=1, max_size=9)


def made(sizes: list[list[int]]) -> Portions:
    items = tuple(
        Portion(f"o{at}", sum(parts), len(parts), tuple(Portion("p", size, 1) for size in sorted(parts, reverse=True)))
        for at, parts in enumerate(sizes)
    )
    return Portions("p", "", "owner", items, sum(map(sum, sizes)))


def cells(line: str, mark: str) -> set[int]:
    """Places that the bar covers; none where it is thinner than one."""
    return {at for at, letter in enumerate(line) if letter == mark}


@settings(max_examples=50)
@given(SIZES)
def test_bars_tile_the_width(sizes: list[list[int]]) -> None:
    lines = list(draw_portions(made(sizes), 80, plain=True))
    covered = [cells(line, "#") for line, is_part in lines if not is_part]
    assert len(covered) == len(sizes)
    every = sorted(at for one in covered for at in one)
    assert every == list(range(every[0], 80))
    assert len(every) >= NARROWEST_BARS


@settings(max_examples=50)
@given(SIZES)
def test_parts_fill_the_bar_of_their_owner(sizes: list[list[int]]) -> None:
    owner: set[int] = set()
    found: list[tuple[set[int], list[set[int]]]] = []
    for line, is_part in draw_portions(made(sizes), 80, plain=True):
        if is_part:
            found[-1][1].append(cells(line, "-"))
        else:
            owner = cells(line, "#")
            found.append((owner, []))
    for owner, parts in found:
        assert len(parts) <= MOST_PARTS + 1
        assert not parts or sorted(at for part in parts for at in part) == sorted(owner)


def test_what_is_left_is_summed() -> None:
    lines = [line for line, _ in draw_portions(made([[100] * 8, [1]]), 80)]
    assert any(line.split()[:4] == ["4", "more", "400", "B"] for line in lines)
    assert not any(line.split()[:1] == ["p"] and "1 B" in line for line in lines)


def test_a_long_name_loses_its_beginning() -> None:
    block = Portions("p", "", "owner", (Portion("a" * 30 + ".attention.query", 1, 1),), 1)
    ((line, _),) = draw_portions(block, 80)
    assert line.startswith("  ..aaaa")
    assert ".attention.query " in line
