"""Small pictures for notebooks, as SVG inside the HTML: shares of a whole, heat maps, plots."""

from __future__ import annotations

from dataclasses import replace
from html import escape
from typing import Final

from lostflops.core.results import HeatMap, Plot
from lostflops.core.units import pluralise
from lostflops.show.report.printable import printable
from lostflops.show.report.svg_plot import draw_plot
from lostflops.show.report.values import format_value

_BAR: Final = 180
_CELL: Final = 14
_WIDEST: Final = 640
_MOST_ROWS: Final = 64
_PALEST: Final = 0.06
_PLOT_WIDTH: Final = 1200


def bar(start: float, share: float) -> str:
    """Draw a part of a whole in the colour of the text around it.

    >>> bar(0, 0.5).count('width="90.0"')
    1
    """
    x, width = (f"{_BAR * max(0.0, min(1.0, each)):.1f}" for each in (start, share))
    return (
        f'<svg width="{_BAR}" height="10" role="img" aria-label="{100 * share:.1f}%">'
        f'<rect width="{_BAR}" height="10" fill="currentColor" opacity="0.1"></rect>'
        f'<rect x="{x}" width="{width}" height="10" fill="currentColor" opacity="0.6"></rect></svg>'
    )


def heat_map(block: HeatMap) -> str:
    """Draw a heat map; the larger a value, the fuller its cell. Hovering shows it."""
    largest = max((value for _, values in block.rows for value in values if value is not None), default=0.0)
    shown = block.rows[:_MOST_ROWS]
    rows = "".join(
        f"<tr><td>{escape(printable(name))}</td><td>{_cells(block, values, largest)}</td></tr>"
        for name, values in shown
    )
    most = largest if block.unit == "share" else round(largest)
    left = f" {pluralise(len(block.rows) - len(shown), 'more row')}." if len(block.rows) > len(shown) else ""
    legend = f"{printable(block.legend)}; full colour is {format_value(most, block.unit)}.{left}"
    titles = "".join(f"<th>{escape(printable(title))}</th>" for title in (block.down, block.across))
    head = f"<thead><tr>{titles}</tr></thead>" if block.down or block.across else ""
    return f"<table>{head}<tbody>{rows}</tbody></table><p>{escape(legend)}</p>"


def _cells(block: HeatMap, values: tuple[float | None, ...], largest: float) -> str:
    width = min(float(_CELL), _WIDEST / max(1, len(values)))
    drawn = "".join(
        f'<rect x="{at * width:.2f}" width="{width:.2f}" height="{_CELL}" fill="currentColor" '
        f'opacity="{_full(value, largest):.3f}"><title>{_format_tooltip(block, at, value)}</title></rect>'
        for at, value in enumerate(values)
        if value is not None
    )
    return f'<svg width="{width * len(values):.0f}" height="{_CELL}">{drawn}</svg>'


def _full(value: float, largest: float) -> float:
    """Return the opacity of a cell; an empty cell is still visible."""
    return _PALEST + (1 - _PALEST) * (max(0.0, value) / largest if largest > 0 else 0.0)


def _format_tooltip(block: HeatMap, at: int, value: float) -> str:
    told = format_value(value if block.unit == "share" else round(value), block.unit)
    return escape(printable(f"{block.columns[at]}: {told}" if block.columns else told))


def plot(block: Plot) -> str:
    """Draw a plot on white, because its colours are made for that."""
    body: list[str] = []
    height = draw_plot(replace(block, title=""), 0, body) + 12
    return (
        f'<svg viewBox="0 0 {_PLOT_WIDTH} {height}" width="{_PLOT_WIDTH * 2 // 3}" font-family="monospace" '
        f'font-size="11"><rect width="100%" height="100%" fill="#ffffff"></rect>{"".join(body)}</svg>'
    )
