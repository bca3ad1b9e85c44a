"""A plot in a page that is made on a server: as wide as the page, in the colours of its theme."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape
from typing import Final

from lostflops.core.results import Field, Plot, Unit
from lostflops.core.units import format_time
from lostflops.show.report.axes import Axis, axes, drawable
from lostflops.show.report.printable import printable
from lostflops.show.report.values import format_value

_HEIGHT: Final = 220
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 14, 20, 26
_COLOURS: Final = 8
"""Colours of series in the style sheet."""
_MOST_NAMED: Final = 12
"""Series in the legend."""
_LETTERS: Final = 60
_DAY: Final = 86_400 * 10**9
_DAY_STEPS: Final = (1, 2, 7, 14, 28, 56, 91, 182, 364)
_NEAR_END: Final = 0.9
"""From here on, the label of a tick ends at the tick."""
_TICK: Final = 110
"""Pixels between dates, at least."""
_DATE: Final = len("2026-01-31")


def draw_fragment_plot(plot: Plot, width: int) -> str:
    """Return the plot with its legend; names are escaped."""
    scales = axes(plot)
    if scales is None:
        return '<p class="muted">There is nothing to draw.</p>'
    across, up = scales
    inner = max(width - _LEFT - _RIGHT, 100)
    body = "".join((
        *_grid(across, up, inner),
        *_marks(plot, across, inner),
        *_points(plot, across, up, inner),
    ))  # fmt: skip
    label = escape(printable(f"{plot.title}: {plot.y.label or plot.y.name}"))
    return (
        f'<svg class="plot" width="{width}" height="{_HEIGHT}" viewBox="0 0 {width} {_HEIGHT}" role="img" '
        f'aria-label="{label}">{body}</svg>{_legend(plot)}'
    )


def _grid(across: Axis, up: Axis, inner: int) -> Iterator[str]:
    for value, label in up.ticks(5):
        y = _y(up, value)
        yield f'<path class="rule" d="M{_LEFT} {y:.1f}H{_LEFT + inner}"/>'
        yield f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{escape(label)}</text>'
    bottom = _HEIGHT - _BOTTOM
    for value, label in _ticks(across, max(2, inner // _TICK)):
        place = across.place(value)
        x, anchor = _LEFT + place * inner, "end" if place > _NEAR_END else "middle"
        yield f'<path class="rule" d="M{x:.1f} {_TOP}V{bottom}"/>'
        yield f'<text x="{x:.1f}" y="{bottom + 18}" text-anchor="{anchor}">{escape(label)}</text>'


def _ticks(across: Axis, most: int) -> Sequence[tuple[float, str]]:
    """Return round values; days for times."""
    if across.unit != "time":
        return across.ticks(most)
    days = (across.high - across.low) / _DAY
    step = next((step for step in _DAY_STEPS if days / step <= most), math.ceil(days / most)) * _DAY
    first = math.ceil(across.low / _DAY) * _DAY
    found = [first + number * step for number in range(most + 1) if first + number * step <= across.high]
    return [(at, format_time(at)[:_DATE]) for at in found] or [
        ((across.low + across.high) / 2, format_time(round((across.low + across.high) / 2))[:_DATE])
    ]


def _marks(plot: Plot, across: Axis, inner: int) -> Iterator[str]:
    for mark in plot.marks:
        place = min(max(across.place(mark.at), 0.0), 1.0)
        x, anchor = _LEFT + place * inner, "end" if place > 0.8 else "start"
        yield f'<path class="mark" d="M{x:.1f} {_TOP}V{_HEIGHT - _BOTTOM}"/>'
        side = -4 if anchor == "end" else 4
        yield f'<text class="named" x="{x + side:.1f}" y="{_TOP - 6}" text-anchor="{anchor}">{_text(mark.name)}</text>'


def _points(plot: Plot, across: Axis, up: Axis, inner: int) -> Iterator[str]:
    for number, series in enumerate(plot.series):
        kind = number % _COLOURS
        for point in series.points:
            if drawable(plot, point):
                x = _LEFT + across.place(point[0]) * inner
                said = f"{_value(point[0], plot.x)}: {_value(point[1], plot.y)}"
                yield (
                    f'<circle class="series-{kind}" cx="{x:.1f}" cy="{_y(up, point[1]):.1f}" r="3">'
                    f"<title>{said}</title></circle>"
                )


def _legend(plot: Plot) -> str:
    if len(plot.series) < 2:
        return ""
    names = "".join(
        f'<li><svg width="12" height="12" aria-hidden="true"><circle class="series-{number % _COLOURS}" cx="6" cy="6" '
        f'r="4"/></svg> {_text(series.name)}</li>'
        for number, series in enumerate(plot.series[:_MOST_NAMED])
    )
    more = len(plot.series) - _MOST_NAMED
    return f'<ul class="plot-legend">{names}{f"<li>and {more:,} more</li>" if more > 0 else ""}</ul>'


def _value(value: float, one: Field) -> str:
    unit: Unit = one.unit
    return escape(format_value(round(value) if unit in {"ns", "time", "count"} else value, unit))


def _y(up: Axis, value: float) -> float:
    return _HEIGHT - _BOTTOM - up.place(value) * (_HEIGHT - _TOP - _BOTTOM)


def _text(text: str) -> str:
    return escape(printable(text if len(text) <= _LETTERS else f"{text[: _LETTERS - 1]}…"))
