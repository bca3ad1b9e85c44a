"""Renders any Result as HTML for a notebook: static, without scripts, in the colours of the notebook.

All text goes through `_text`, so that names from traces stay names. Styles are those of the tags and a few constant
attributes: no part of a result appears in a style or an address.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from typing import Any, Final

from lostflops.core.pictures import Knobs, Spans, Strips
from lostflops.core.results import (
    Block,
    Finding,
    Findings,
    HeatMap,
    Lines,
    Pair,
    Plot,
    Portions,
    Result,
    Section,
    Stacks,
    Table,
    Timeline,
    Waterfall,
)
from lostflops.core.units import format_bytes, format_ns, format_share, pluralise
from lostflops.show.report.notebook_pictures import bar, heat_map, plot
from lostflops.show.report.printable import printable
from lostflops.show.report.values import (
    format_doubt,
    format_heading,
    format_saving,
    format_value,
    format_values,
    label_saving,
)

MOST_ROWS: Final = 60
"""A table shows at most this many rows: a notebook is read from top to bottom, and JSON has all rows."""
_NUMBER: Final = ' style="text-align:right"'
_TEXT: Final = ' style="text-align:left"'


def html(part: Any) -> str:
    """Return the HTML of an answer, or of a block of one."""
    return f"<div>{''.join(_result(part) if isinstance(part, Result) else _block(part))}</div>"


def _result(result: Result) -> list[str]:
    parts = [f"<h3>{_text(result.title)}</h3>", f"<p>{_text(result.verdict)}</p>"]
    for block in result.first_blocks:
        parts += _block(block, result.run)
    parts += [f"<p><em>Note:</em> {_text(note)}</p>" for note in result.notes]
    if result.next_command:
        commands = filter(None, (result.next_command, result.other_command))
        parts.append(f"<p>Next: {', or '.join(f'<code>{_text(one)}</code>' for one in commands)}</p>")
    return parts


def _text(words: str) -> str:
    """Escape text, so that it cannot become HTML.

    >>> _text("<script>")
    '&lt;script&gt;'
    """
    return escape(printable(words))


def _block(block: Block, run: str = "RUN") -> Iterator[str]:
    if block.title:
        yield f"<h4>{_text(block.title)}</h4>"
    match block:
        case Table():
            yield from _table(block)
        case Section():
            yield from _pairs(block.items)
            yield from _table(block.table)
        case Findings():
            for number, finding in enumerate(block.items[: block.most_shown], 1):
                yield from _finding(number, finding, is_brief=block.is_brief)
            yield from _render_left_out(
                len(block.items) - len(block.items[: block.most_shown]), "finding", " in the diagnosis"
            )
        case HeatMap():
            yield heat_map(block)
        case Plot():
            yield plot(block)
        case Lines() | Portions() | Waterfall():
            yield from _parts(block)
        case Strips() | Spans() | Knobs() | Stacks() | Timeline():
            yield f"<p>To see this chart: <code>lostflops open {_text(run)}</code></p>"
        case _:
            yield from _pairs(block.items)


def _parts(block: Lines | Portions | Waterfall) -> Iterator[str]:
    """Yield the parts of a whole, each with a bar for its share."""
    match block:
        case Lines():
            time = f"time per {block.unit}" if block.unit else "time"
            told = [(line.name, format_ns(round(line.ns / block.per)), line.share) for line in block.items if line.ns]
            yield from _shares(("line", time), told)
        case Portions():
            held = [(item.name, format_bytes(item.bytes), block.share(item)) for item in block.items if item.bytes]
            yield from _shares((block.key, "bytes"), held)
        case Waterfall():
            left, rows = 1.0, []
            for step in block.bars:
                share = step.points / 100
                left -= share
                rows.append(([_text(step.name), format_share(share), bar(left, share)], (False, True, False)))
            yield from _grid(("line", "share of peak", ""), rows)
            yield from (f"<p>{_text(said)}</p>" for said in (block.reason, block.convention) if said)


def _shares(heads: tuple[str, str], items: Iterable[tuple[str, str, float]]) -> Iterator[str]:
    rows = [
        ([_text(name), _text(value), format_share(share), bar(0, share)], (False, True, True, False))
        for name, value, share in items
    ]
    yield from _grid((*heads, "share", ""), rows)


def _pairs(items: Sequence[Pair]) -> Iterator[str]:
    rows = []
    for pair in items:
        if pair.shown:
            value = pair.value
            shown = format_values(value, pair.unit) if isinstance(value, tuple) else format_value(value, pair.unit)
            rows.append(([_text(pair.label or pair.name), _text(shown)], (False, False)))
    yield from _grid((), rows)


def _table(block: Table) -> Iterator[str]:
    kept = [at for at, field in enumerate(block.fields) if field.shown]
    shown = block.rows[: min(MOST_ROWS, block.most_shown if block.most_shown is not None else MOST_ROWS)]
    rows = [
        (
            [_text(format_value(row[at], block.fields[at].unit)) for at in kept],
            [isinstance(row[at], int | float) and not isinstance(row[at], bool) for at in kept],
        )
        for row in shown
    ]
    yield from _grid([block.fields[at].label or block.fields[at].name for at in kept], rows)
    yield from _render_left_out(block.left_out + len(block.rows) - len(shown), "row")


def _grid(heads: Sequence[str], rows: Sequence[tuple[Sequence[str], Sequence[bool]]]) -> Iterator[str]:
    """Yield a table. Each row is its cells, which are HTML already, and whether each is a number."""
    if not rows:
        yield "<p>(no rows)</p>"
        return
    yield "<table>"
    if heads:
        placed = zip(heads, rows[0][1], strict=True)
        named = (f"<th{_NUMBER if right else _TEXT}>{_text(head)}</th>" for head, right in placed)
        yield f"<thead><tr>{''.join(named)}</tr></thead>"
    yield "<tbody>"
    for cells, numeric in rows:
        told = zip(cells, numeric, strict=True)
        yield f"<tr>{''.join(f'<td{_NUMBER if right else _TEXT}>{cell}</td>' for cell, right in told)}</tr>"
    yield "</tbody></table>"


def _render_left_out(count: int, noun: str, where: str = "") -> Iterator[str]:
    if count:
        yield f"<p>{pluralise(count, f'more {noun}')}{where}.</p>"


def _finding(number: int, finding: Finding, *, is_brief: bool) -> Iterator[str]:
    yield f"<p><strong>{number}. {_text(format_heading(finding))}</strong></p>"
    doubt = format_doubt(finding)
    brief = [
        (label_saving(finding), finding.saves if is_brief else format_saving(finding)),
        *([("but", doubt)] if doubt else []),
        ("fix", finding.fix),
    ]
    full = [
        *([("sure", finding.odds)] if finding.odds else []),
        *(("evidence", ", ".join((evidence.what, *evidence.sources))) for evidence in finding.evidence),
        ("to confirm", finding.certain_if),
        ("cause", finding.cause),
    ]
    told = brief if is_brief else brief + full
    yield from _grid((), [([_text(name), _text(value)], (False, False)) for name, value in told])
