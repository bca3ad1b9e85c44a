"""Bytes over time as rows of columns: the more bytes, the higher the column."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from lostflops.core.results import Timeline
from lostflops.core.units import format_bytes, format_ns, pluralise
from lostflops.show.report.printable import printable

SMALLEST: Final = 0.01
"""A row is drawn only if it reaches this part of the largest total."""
_HEIGHTS: Final = " ▁▂▃▄▅▆▇█"
_PLAIN: Final = " .:-=+*%#"


def sparkline(values: tuple[int, ...], largest: int, *, plain: bool = False) -> str:
    """Draw values as heights relative to the largest; a value above zero is always visible.

    >>> sparkline((0, 1, 50, 100), 100), sparkline((0, 1, 50, 100), 100, plain=True)
    (' ▁▄█', ' .=#')
    """
    heights = _PLAIN if plain else _HEIGHTS
    top = len(heights) - 1
    return "".join(heights[max(value * top // largest, 1) if value > 0 else 0] for value in values)


def sparklines(block: Timeline, *, plain: bool = False) -> Iterator[str]:
    """Yield steps, the total, its rows and the place of the peak. Each row is scaled to its own largest value, which is
    written after it; rows that never reach `SMALLEST` of the total are only counted."""
    if not block.at:
        yield "(no data)"
        return
    largest = max(block.total)
    held = [(printable(name), values) for name, values in block.rows if any(values)]
    rows = [("total", block.total), *((name, values) for name, values in held if max(values) >= largest * SMALLEST)]
    widest = max(len(name) for name in (block.marked, *(name for name, _ in rows)))
    indent = " " * (widest + 4)
    if block.marks:
        yield f"  {printable(block.marked):<{widest}}  {_labels(block)}"
    for name, values in rows:
        yield f"  {name:<{widest}}  {sparkline(values, max(*values, 1), plain=plain)}  {format_bytes(max(values)):>7}"
    if block.top is not None:
        yield f"{indent}{' ' * _column(block, block.top)}^ peak"
    length = (block.stop - block.start) // len(block.at)
    left = len(held) + 1 - len(rows)
    small = f"; {pluralise(left, 'row')} below {SMALLEST:.0%} hidden" if left else ""
    yield f"  column = peak in {format_ns(length)}; each row has its own scale{small}"


def _labels(block: Timeline) -> str:
    """Return the numbers of marks at the places where they begin, without those that would overlap the one before."""
    line = ""
    for number, time in block.marks:
        column = _column(block, time)
        if column >= len(line) + bool(line) and column + len(str(number)) < len(block.at):
            line = f"{line:<{column}}|{number}"
    return line


def _column(block: Timeline, time: int) -> int:
    span = max(block.stop - block.start, 1)
    return min(max((time - block.start) * len(block.at) // span, 0), len(block.at) - 1)
