"""A plot in an SVG: axes, marks and lines, and a legend.

People with any colour vision can distinguish the colours. Shapes of marks and dashes of lines differ too, so a print in
grey is still readable.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise
from typing import Final

from lostflops.core.results import Plot, Series
from lostflops.core.units import pluralise
from lostflops.show.report.axes import Axis, axes, drawable, format_axis_value, left_out, numbers
from lostflops.show.report.colours import SERIES
from lostflops.show.report.svg_text import escape_text, text_at

LEFT: Final = 96
WIDTH: Final = 760
HEIGHT: Final = 340
LEGEND: Final = LEFT + WIDTH + 24
LEGEND_LETTERS: Final = 40
MOST_SERIES: Final = 18
"""The legend has at most this many series; all are drawn."""
LETTER: Final = 6.7
"""Width of a letter."""
INK: Final = "#1a1a1a"
PALE: Final = "#555555"
_SHADE: Final = "#ececec"
_APART: Final = 6
_Box = tuple[float, float, float, float]
"""Left, top, right and bottom."""
_DASHES: Final = ("", "7 3", "2 3", "9 3 2 3")
_SHAPES: Final = (
    "M-3.5 0A3.5 3.5 0 1 0 3.5 0A3.5 3.5 0 1 0 -3.5 0Z",
    "M-3 -3H3V3H-3Z",
    "M0 -4L4 3H-4Z",
    "M0 -4.5L4.5 0L0 4.5L-4.5 0Z",
    "M0 4L4 -3H-4Z",
)
"""Circle, square, triangle, diamond, triangle upside down."""


def draw_plot(plot: Plot, top: int, body: list[str]) -> int:
    """Add the plot below `top`; return where it ends."""
    if plot.title:
        top += 16
        body.append(text_at(12, top, plot.title, INK, 'font-size="13" font-weight="bold"'))
    scales = axes(plot)
    if scales is None:
        body.append(text_at(12, top + 20, "(no data to plot)", PALE))
        return top + 24
    across, up = scales
    body.append(text_at(LEFT, top + 18, up.title, PALE))
    top += 28
    body += _bands(plot, across, top)
    body += _grid(across, up, top)
    body += _marks(plot, across, top)
    looks = tuple(zip(numbers(plot), plot.series, strict=True))
    for number, series in sorted(looks, key=lambda look: look[1].drawn == "marks"):
        body += _series(plot, series, number, scales, top)
    body += _names(plot, scales, top)
    body += _legend(looks, top)
    bottom = top + HEIGHT + 40
    if missing := left_out(plot):
        body.append(
            text_at(LEFT, bottom, f"Not drawn: {pluralise(missing, 'point')} that these axes cannot show.", PALE)
        )
        bottom += 18
    return bottom


def _grid(across: Axis, up: Axis, top: int) -> Iterator[str]:
    bottom = top + HEIGHT
    for value, label in up.ticks(7):
        y = bottom - up.place(value) * HEIGHT
        yield f'<path d="M{LEFT} {y:.1f}H{LEFT + WIDTH}" stroke="{"#e4e4e4" if value else "#a0a0a0"}"/>'
        yield text_at(LEFT - 8, round(y + 4, 1), label, PALE, 'text-anchor="end"')
    for value, label in across.ticks(9):
        x = LEFT + across.place(value) * WIDTH
        yield f'<path d="M{x:.1f} {top}V{bottom}" stroke="#f0f0f0"/><path d="M{x:.1f} {bottom}v5" stroke="{PALE}"/>'
        yield text_at(x, bottom + 18, label, PALE, 'text-anchor="middle"')
    yield text_at(LEFT + WIDTH, bottom + 34, across.title, PALE, 'text-anchor="end"')
    yield f'<path d="M{LEFT} {top}V{bottom}H{LEFT + WIDTH}" fill="none" stroke="{PALE}"/>'


def _bands(plot: Plot, across: Axis, top: int) -> Iterator[str]:
    for band in plot.bands:
        start, stop = (min(max(across.place(x), 0.0), 1.0) * WIDTH for x in (band.start, band.stop))
        place = f'x="{LEFT + start:.1f}" y="{top}" width="{stop - start:.1f}" height="{HEIGHT}"'
        yield f'<rect {place} fill="{_SHADE}"><title>{escape_text(band.name)}</title></rect>'


def _marks(plot: Plot, across: Axis, top: int) -> Iterator[str]:
    for mark in plot.marks:
        x = LEFT + across.place(mark.at) * WIDTH
        yield f'<path d="M{x:.1f} {top}V{top + HEIGHT}" stroke="{PALE}" stroke-dasharray="4 3"/>'
        yield text_at(round(x + 4, 1), top + 12, mark.name, PALE)


def _series(plot: Plot, series: Series, number: int, scales: tuple[Axis, Axis], top: int) -> Iterator[str]:
    across, up = scales
    pen = False
    way: list[str] = []
    for point in series.points:
        if not drawable(plot, point):
            pen = False
            continue
        x, y = LEFT + across.place(point[0]) * WIDTH, top + HEIGHT - up.place(point[1]) * HEIGHT
        if series.drawn == "marks":
            said = (
                f"{series.name}\n{format_axis_value(point[0], plot.x.unit)}: {format_axis_value(point[1], plot.y.unit)}"
            )
            title = "<title>" + "\n".join(map(escape_text, said.split("\n"))) + "</title>"
            yield f'<g transform="translate({x:.1f} {y:.1f})">{title}{_mark(number)}</g>'
        way.append(f"{'L' if pen else 'M'}{x:.1f} {y:.1f}")
        pen = True
    if series.drawn == "line" and way:
        yield f"<g><title>{escape_text(series.name)}</title>{_line(' '.join(way), number)}</g>"


def _names(plot: Plot, scales: tuple[Axis, Axis], top: int) -> Iterator[str]:
    """Write the names of marks beside them where there is space, if the series are single marks, except at most one."""
    across, up = scales
    marks = [series for series in plot.series if series.drawn == "marks" and series.points]
    single = [series for series in marks if len(series.points) == 1 and drawable(plot, series.points[0])]
    if len(single) < max(2, len(marks) - 1):
        return
    places = {
        point: (LEFT + across.place(point[0]) * WIDTH, top + HEIGHT - up.place(point[1]) * HEIGHT)
        for series in plot.series
        for point in series.points
        if drawable(plot, point)
    }
    lines = [[places[at] for at in one.points if at in places] for one in plot.series if one.drawn == "line"]
    taken = [(x - 5, y - 5, x + 5, y + 5) for x, y in places.values()]
    taken += [(x, y, x, y) for line in lines for one, other in pairwise(line) for x, y in _along(one, other)]
    for series in single:
        x, y = places[series.points[0]]
        width = LETTER * len(series.name)
        for left, line in ((x + 8, y + 4), (x - 8 - width, y + 4), (x - width / 2, y - 9), (x - width / 2, y + 17)):
            box = left, line - 9, left + width, line + 3
            is_inside = box[0] > LEFT and box[2] < LEFT + WIDTH and box[1] > top and box[3] < top + HEIGHT
            if is_inside and not any(_overlap(box, other) for other in taken):
                taken.append(box)
                yield text_at(round(left, 1), round(line, 1), series.name, INK)
                break


def _along(one: tuple[float, float], other: tuple[float, float]) -> Iterator[tuple[float, float]]:
    """Yield places between two, so close that no text fits between them."""
    steps = math.ceil(math.dist(one, other) / _APART) or 1
    yield from (
        (one[0] + (other[0] - one[0]) * step / steps, one[1] + (other[1] - one[1]) * step / steps)
        for step in range(steps + 1)
    )


def _overlap(one: _Box, other: _Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def _mark(number: int) -> str:
    shape, colour = _SHAPES[number % len(_SHAPES)], SERIES[number % len(SERIES)]
    return f'<path d="{shape}" fill="{colour}" fill-opacity="0.75" stroke="#ffffff" stroke-width="0.6"/>'


def _line(way: str, number: int) -> str:
    dashes = _DASHES[number // len(SERIES) % len(_DASHES)]
    dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
    colour = SERIES[number % len(SERIES)]
    return f'<path d="{way}" fill="none" stroke="{colour}" stroke-width="1.8" stroke-linecap="round"{dashed}/>'


def _legend(looks: tuple[tuple[int, Series], ...], top: int) -> Iterator[str]:
    y = top + 6
    for number, series in looks[:MOST_SERIES]:
        sample = _mark(number) if series.drawn == "marks" else _line("M-10 0H10", number)
        name = series.name if len(series.name) <= LEGEND_LETTERS else series.name[: LEGEND_LETTERS - 1] + "…"
        yield f'<g transform="translate({LEGEND + 10} {y})"><title>{escape_text(series.name)}</title>{sample}</g>'
        yield text_at(LEGEND + 28, y + 4, name, INK)
        y += 18
    if len(looks) > MOST_SERIES:
        yield text_at(LEGEND + 28, y + 4, f"... and {len(looks) - MOST_SERIES:,} more", PALE)
