"""Plots as text: lines are made of dots, and measured points have marks."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from lostflops.core.results import Plot, Series
from lostflops.core.units import pluralise
from lostflops.show.report.axes import Axis, axes, drawable, left_out, numbers
from lostflops.show.report.printable import printable

ROWS: Final = 16
WIDEST: Final = 100
NARROWEST: Final = 20
MOST_MARKS: Final = 8
MOST_SERIES: Final = 24
"""The legend has at most this many series; all are drawn."""
_SIGNS: Final = "ox+*#@%&abcdefghijklmnpqrstuvwyz"
_COLOURS: Final = ("cyan", "yellow", "magenta", "green", "blue", "red")
_DOTS: Final = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
"""Bits of the dots of a braille character, by row and column."""
_BRAILLE: Final = 0x2800


@dataclass(slots=True)
class _Canvas:
    """Cells by row and column; a cell has a sign, or dots of the last series that was drawn there."""

    columns: int
    signs: dict[tuple[int, int], tuple[str, int]] = field(default_factory=dict)
    dots: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)

    def dot(self, x: float, y: float, series: int) -> None:
        """Draw a dot at a place from 0 to 1, with y upwards."""
        column, row = round(x * (2 * self.columns - 1)), _dot_row(y)
        cell = row // 4, column // 2
        held, _ = self.dots.get(cell, (0, series))
        self.dots[cell] = held | _DOTS[row % 4][column % 2], series

    def sign(self, x: float, y: float, series: int) -> bool:
        cell = _dot_row(y) // 4, round(x * (2 * self.columns - 1)) // 2
        free = cell not in self.signs
        self.signs.setdefault(cell, (_SIGNS[series % len(_SIGNS)], series))
        return free

    def row(self, row: int, *, plain: bool) -> Text:
        text = Text()
        for column in range(self.columns):
            if (row, column) in self.signs:
                sign, series = self.signs[row, column]
                text.append(sign, f"bold {_COLOURS[series % len(_COLOURS)]}")
            elif (row, column) in self.dots:
                bits, series = self.dots[row, column]
                text.append("." if plain else chr(_BRAILLE + bits), _COLOURS[series % len(_COLOURS)])
            else:
                text.append(" ")
        text.rstrip()
        return text


def draw_text_plot(plot: Plot, width: int, *, plain: bool = False) -> Iterator[Text]:
    """Yield the plot line by line, each at most `width` wide."""
    scales = axes(plot)
    if scales is None:
        yield Text("(no data to plot)")
        return
    across, up = scales
    ticks = {_dot_row(up.place(value)) // 4: text for value, text in up.ticks(6)}
    margin = max(map(cell_len, ticks.values()), default=0) + 2
    canvas = _Canvas(max(min(width, WIDEST) - margin - 2, NARROWEST))
    looks = numbers(plot)
    for number, series in zip(looks, plot.series, strict=True):
        _draw(plot, series, number, scales, canvas, alone=looks.count(number) == 1)
    yield Text(f"  {_shorten_text(up.title, width - 2)}", style="dim")
    for row in range(ROWS):
        edge = ("+" if plain else "┤") if row in ticks else ("|" if plain else "│")
        yield Text(f"{ticks.get(row, ''):>{margin}} ", style="dim").append(edge).append(canvas.row(row, plain=plain))
    yield from _foot(across, canvas.columns, margin, plain=plain)
    yield Text(f"{_shorten_text(across.title, width):>{min(margin + 2 + canvas.columns, width)}}", style="dim")
    yield from _legend(plot, width)
    if plot.marks:
        named = ", ".join(f"{mark.name} from {math.ceil(mark.at)}" for mark in plot.marks[:MOST_MARKS])
        more = f", and {len(plot.marks) - MOST_MARKS:,} more" if len(plot.marks) > MOST_MARKS else ""
        yield Text(f"  {_shorten_text(named + more, width - 2)}", style="dim")


def _dot_row(y: float) -> int:
    return round((1 - y) * (4 * ROWS - 1))


def _draw(plot: Plot, series: Series, number: int, scales: tuple[Axis, Axis], canvas: _Canvas, *, alone: bool) -> None:
    """Draw a series; a line without marks has its sign at its end."""
    places: list[tuple[float, float] | None] = [
        (scales[0].place(point[0]), scales[1].place(point[1])) if drawable(plot, point) else None
        for point in series.points
    ]
    if series.drawn == "marks":
        for place in filter(None, places):
            canvas.sign(*place, number)
        return
    for one, other in pairwise(places):
        if one and other:
            for x, y in _between(one, other, canvas.columns):
                canvas.dot(x, y, number)
    for place in filter(None, reversed(places)):
        if len(places) > 1 and not alone:
            return
        if canvas.sign(*place, number):
            return


def _between(one: tuple[float, float], other: tuple[float, float], columns: int) -> Iterator[tuple[float, float]]:
    steps = max(round(abs(other[0] - one[0]) * 2 * columns), round(abs(other[1] - one[1]) * 4 * ROWS), 1)
    for step in range(steps + 1):
        part = step / steps
        yield one[0] + part * (other[0] - one[0]), one[1] + part * (other[1] - one[1])


def _foot(across: Axis, columns: int, margin: int, *, plain: bool) -> Iterator[Text]:
    """Yield the x axis, with as many of its values as fit."""
    line = ["-" if plain else "─"] * columns
    labels = [" "] * (margin + 2 + columns)
    free = 0
    for value, text in across.ticks(max(columns // 10, 2)):
        column = round(across.place(value) * (columns - 1))
        first = min(max(margin + 2 + column - len(text) // 2, 0), len(labels) - len(text))
        if first < free:
            continue
        labels[first : first + len(text)] = text
        free = first + len(text) + 1
        line[column] = "+" if plain else "┬"
    yield Text(" " * (margin + 1) + ("+" if plain else "└") + "".join(line))
    yield Text("".join(labels).rstrip(), style="dim")


def _legend(plot: Plot, width: int) -> Iterator[Text]:
    """Yield the legend, with names side by side if they fit."""
    shown: Sequence[Series] = plot.series[:MOST_SERIES]
    line, looks = Text("  "), numbers(plot)
    for number, series in zip(looks, shown, strict=False):
        kind = "" if series.drawn == "marks" else " (line)"
        bare = series.drawn == "line" and looks.count(number) > 1
        entry = f"{'.' if bare else _SIGNS[number % len(_SIGNS)]} {_shorten_text(series.name, width - 12)}{kind}"
        if line.cell_len > 2 and line.cell_len + cell_len(entry) + 3 > width:
            yield line
            line = Text("  ")
        line.append("   " if line.cell_len > 2 else "").append(entry, _COLOURS[number % len(_COLOURS)])
    yield line
    if len(plot.series) > len(shown):
        yield Text(f"  ... and {len(plot.series) - len(shown):,} more", style="dim")
    if missing := left_out(plot):
        yield Text(f"  not drawn: {pluralise(missing, 'point')} that these axes cannot show", style="dim")


def _shorten_text(text: str, width: int) -> str:
    text = printable(text)
    return text if cell_len(text) <= width else set_cell_size(text, width - 3) + "..."
