"""A result as a piece of HTML for a page that is made on a server: no script, no style of its own, names as text.

Names in runs are hostile: each text is escaped, its control characters are written out, and long ones are cut. Bars and
pictures are SVG whose sizes are attributes, because the policy of the page allows no style in elements.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any, Final
from urllib.parse import quote

from lostflops.core.results import Block, Field, Pairs, Plot, Result, Table, Value
from lostflops.core.units import format_ns, format_time
from lostflops.show.report.fragment_plot import draw_fragment_plot
from lostflops.show.report.printable import printable
from lostflops.show.report.values import format_value, format_values

MOST_LETTERS: Final = 160
"""Letters of a cell; its title has more."""
MOST_VERDICT: Final = 1200
MOST_LINK: Final = 400
"""Longer names are not links: addresses have limits."""
_BAR: Final = 90
_SPARK: Final = (96, 22)
_PROSE: Final = frozenset({"what", "fix"})
_MINUTE: Final = len("2026-01-31 10:00")
_SENTENCE: Final = re.compile(r"\. (?=[A-Z0-9])")


@dataclass(frozen=True, slots=True)
class Drawing:
    """How a result is drawn."""

    width: int = 1100
    """Of the page, in pixels: pictures are as wide."""
    links: Mapping[tuple[str, str], Callable[[Mapping[str, Any]], str]] = field(default_factory=dict)
    """By name of a table and column: a function from the row to an address; empty for a row without a link."""
    sparks: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """By name of a table: the key of a list beside each row that is drawn as a line, and its heading. The line comes
    after the first column."""
    rest: Mapping[str, str] = field(default_factory=dict)
    """By name of a table: the address of a view with its other rows."""
    after_verdict: str = ""
    """HTML below the verdict."""


def draw_result(result: Result, drawing: Drawing) -> str:
    """Return the verdict, the blocks and the notes."""
    blocks = "".join(_block(block, drawing) for block in result.blocks)
    notes = "".join(f"<li>{clip_text(note, MOST_VERDICT)}</li>" for note in result.notes)
    return (
        f"{draw_verdict(result.verdict)}{drawing.after_verdict}"
        f'<div class="blocks">{blocks}</div>{f"<ul class=notes>{notes}</ul>" if notes else ""}'
    )


def draw_verdict(verdict: str) -> str:
    """Return the first sentence as a headline, and the others below it.

    >>> draw_verdict("Job a is slow. Its step took 1.5 s.")
    '<p class="verdict">Job a is slow.</p><p class="more">Its step took 1.5 s.</p>'
    """
    first = _SENTENCE.search(verdict[:MOST_VERDICT])
    head, rest = (verdict, "") if first is None else (verdict[: first.start() + 1], verdict[first.end() :])
    more = f'<p class="more">{clip_text(rest, MOST_VERDICT)}</p>' if rest else ""
    return f'<p class="verdict">{clip_text(head, MOST_VERDICT)}</p>{more}'


def clip_text(text: str, most: int = MOST_LETTERS) -> str:
    r"""Return text for HTML: escaped, without control characters, and cut.

    >>> clip_text("<b>a\n\u202eb</b>"), clip_text("abcdef", 4)
    ('&lt;b&gt;a\\n\\u202eb&lt;/b&gt;', 'abc…')
    """
    cut = text if len(text) <= most else f"{text[: most - 1]}…"
    return escape(printable(cut))


def quote_name(name: str) -> str:
    """Return a name as a part of an address, or nothing if it is too long for one.

    >>> quote_name("a/b c"), quote_name("x" * 500)
    ('a%2Fb%20c', '')
    """
    return quote(name.encode("utf-8", "surrogatepass"), safe="") if name and len(name) <= MOST_LINK else ""


def _block(block: Block, drawing: Drawing) -> str:
    match block:
        case Table():
            return _table(block, drawing)
        case Plot():
            picture = draw_fragment_plot(block, drawing.width)
            return f'<section class="block"><h3>{clip_text(block.title)}</h3>{picture}</section>'
        case Pairs():
            return _pairs(block)
    raise AssertionError(f"{type(block).__name__} has no drawing here")


def _pairs(block: Pairs) -> str:
    rows = "".join(
        f"<dt>{clip_text(pair.label or pair.name)}</dt><dd>{_pair(pair.value, pair.unit)}</dd>"
        for pair in block.items
        if pair.shown
    )
    return f'<section class="block"><h3>{clip_text(block.title)}</h3><dl class="pairs">{rows}</dl></section>'


def _pair(value: Any, unit: Any) -> str:
    return clip_text(format_values(value, unit) if isinstance(value, tuple) else format_value(value, unit))


def _table(table: Table, drawing: Drawing) -> str:
    shown = [(place, one) for place, one in enumerate(table.fields) if one.shown]
    spark = drawing.sparks.get(table.name)
    heads = [f"<th{_numeric(one)}>{clip_text(one.label or one.name)}</th>" for _, one in shown]
    if spark:
        heads.insert(1, f"<th>{escape(spark[1])}</th>")
    kept = _choose_rows(table)
    largest = {place: _find_largest(kept, place) for place, one in shown if one.has_bars}
    body = []
    for number, row in enumerate(kept):
        cells = list(_cells(table, row, shown, largest, drawing))
        if spark:
            cells.insert(1, _spark_cell(table, number, spark[0]))
        body.append(f"<tr>{''.join(cells)}</tr>")
    return (
        f'<section class="block grid"><h3>{clip_text(table.title)}</h3><div class="scroll" tabindex="0">'
        f"<table><thead><tr>{''.join(heads)}</tr></thead><tbody>{''.join(body)}</tbody></table></div>"
        f"{_describe_rest(table, len(kept), drawing)}</section>"
    )


def _choose_rows(table: Table) -> Sequence[tuple[Value, ...]]:
    """Return the first rows, or all if the rest is shorter than they are."""
    if table.most_shown is None or len(table.rows) <= 2 * table.most_shown:
        return table.rows
    return table.rows[: table.most_shown]


def _find_largest(rows: Sequence[tuple[Value, ...]], place: int) -> float:
    return max((abs(value) for row in rows if isinstance(value := row[place], int | float)), default=0.0)


def _describe_rest(table: Table, shown: int, drawing: Drawing) -> str:
    more = len(table.rows) - shown + table.left_out
    if not more:
        return ""
    link = drawing.rest.get(table.name)
    text = f"{more:,} more"
    return f'<p class="rest">{f"""<a href="{escape(link)}">{text}</a>""" if link else f"{text} are not shown."}</p>'


def _cells(
    table: Table,
    row: tuple[Value, ...],
    shown: Sequence[tuple[int, Field]],
    largest: Mapping[int, float],
    drawing: Drawing,
) -> Iterator[str]:
    for place, one in shown:
        value = row[place]
        text = _cell_text(value, one)
        link = drawing.links.get((table.name, one.name))
        if link is not None and value is not None:
            named = {known.name: other for known, other in zip(table.fields, row, strict=True)}
            if address := link(named):
                text = f'<a href="{escape(address)}">{text}</a>'
        if place in largest and isinstance(value, int | float) and largest[place]:
            width = max(0.0, _BAR * value / largest[place])
            bar = f'<rect class="bar" width="{width:.1f}" height="9" rx="1"/>'
            text += f'<svg class="bars" width="{_BAR}" height="9" aria-hidden="true">{bar}</svg>'
        kind = " class=prose" if one.name in _PROSE else _numeric(one)
        yield f"<td{kind}{_title(value)}>{text}</td>"


def _cell_text(value: Value, one: Field) -> str:
    if one.unit == "time" and isinstance(value, int):
        return escape(format_time(value)[:_MINUTE])
    return clip_text(format_value(value, one.unit))


def _title(value: Value) -> str:
    """Return the whole of a text that is cut, up to a limit."""
    if isinstance(value, str) and len(value) > MOST_LETTERS:
        return f' title="{clip_text(value, MOST_VERDICT)}"'
    return ""


def _numeric(one: Field) -> str:
    return ' class="number"' if one.unit and one.unit != "time" else ""


def _spark_cell(table: Table, number: int, key: str) -> str:
    values = table.more[number].get(key, ()) if table.more else ()
    return f"<td>{draw_spark([float(value) for value in values if value > 0])}</td>"


def draw_spark(values: Sequence[float]) -> str:
    """Return a line of values with a point at the last; its scale is its own, and at least 10% of the middle value."""
    if len(values) < 2:
        return ""
    width, height = _SPARK
    low, high = min(values), max(values)
    pad = max(0.0, (0.1 * (low + high) / 2 - (high - low)) / 2)
    low, high = low - pad, high + pad
    places = [
        (2 + (width - 6) * number / (len(values) - 1), height - 3 - (height - 6) * (value - low) / (high - low))
        for number, value in enumerate(values)
    ]
    way = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    x, y = places[-1]
    said = f"{len(values)} runs: from {format_ns(round(min(values)))} to {format_ns(round(max(values)))}"
    said = f"{said}, now {format_ns(round(values[-1]))}"
    return (
        f'<svg class="spark" width="{width}" height="{height}" role="img" aria-label="{said}"><title>{said}</title>'
        f'<polyline points="{way}"/><circle cx="{x:.1f}" cy="{y:.1f}" r="2.2"/></svg>'
    )
