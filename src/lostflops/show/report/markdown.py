"""Renders any Result as Markdown, for pull requests and chat: the verdict, tables and lists, notes.

Text from traces is data: it cannot become markup.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import TextIO

from lostflops.core.results import (
    Block,
    Finding,
    Findings,
    Lines,
    Pairs,
    Portion,
    Portions,
    Result,
    Section,
    Table,
    Value,
    Waterfall,
)
from lostflops.core.units import format_bytes, format_ns, format_share, pluralise
from lostflops.show.report.printable import printable
from lostflops.show.report.values import (
    format_doubt,
    format_heading,
    format_saving,
    format_value,
    format_values,
    label_saving,
)

MOST_PARTS = 3
_SPECIAL = str.maketrans({mark: f"\\{mark}" for mark in "\\`*_[]<>|#~&$"})


def write(result: Result, stream: TextIO) -> None:
    stream.write(f"## {_text(result.title)}\n\n{_text(result.verdict)}\n")
    for block in result.first_blocks:
        stream.writelines(line + "\n" for line in _block(block, result.run))
    if result.notes:
        stream.write("\n" + "\n".join(f"- Note: {_text(note)}" for note in result.notes) + "\n")
    if result.next_command:
        other = f", or {_code(result.other_command)}" if result.other_command else ""
        stream.write(f"\nNext: {_code(result.next_command)}{other}\n")


def _text(words: str) -> str:
    r"""Escape text, so that it cannot become markup.

    >>> _text("a|b <script> *x*")
    'a\\|b \\<script\\> \\*x\\*'
    """
    return printable(words).translate(_SPECIAL)


def _code(words: str) -> str:
    """Format code in as many backticks as it needs.

    >>> _code("a `b` c")
    '`` a `b` c ``'
    """
    clean = printable(words)
    return f"`` {clean} ``" if "`" in clean else f"`{clean}`"


def _block(block: Block, run: str) -> Iterator[str]:
    """Yield the lines of a block; charts are only named, because a page draws them."""
    match block:
        case Table():
            yield from _table(block)
        case Pairs():
            yield from _render_title(block.title)
            yield from _pairs(block)
        case Section():
            yield from _render_title(block.title)
            yield from _pairs(Pairs(block.name, "", block.items))
            yield from _table(block.table)
        case Lines():
            yield from _render_title(block.title)
            yield from _lines(block)
        case Portions():
            yield from _render_title(block.title)
            told = [
                (item.name, format_bytes(item.bytes), format_share(block.share(item)), _made_of(item))
                for item in block.items
                if item.bytes
            ]
            yield from _grid((block.key, "bytes", "share", "largest parts"), told, (False, True, True, False))
        case Waterfall():
            yield from _render_title(block.title)
            bars = [(bar.name, format_share(bar.points / 100)) for bar in block.bars]
            yield from _grid(("line", "share of peak"), bars, (False, True))
            yield from (line for said in (block.reason, block.convention) if said for line in ("", _text(said)))
        case Findings():
            shown = block.items[: block.most_shown]
            for number, finding in enumerate(shown, 1):
                yield from _finding(number, finding, is_brief=block.is_brief)
            if len(block.items) > len(shown):
                yield from ("", f"{len(block.items) - len(shown):,} more: {_code(f'lostflops diagnose {run}')}")
        case _:
            yield from (
                "",
                f"*{_text(block.title or block.name)}* is a chart. To see it: {_code(f'lostflops open {run}')}",
            )


def _lines(block: Lines) -> Iterator[str]:
    time = f"time per {block.unit}" if block.unit else "time"
    rows = [
        (line.name, format_ns(round(line.ns / block.per)), format_share(line.share)) for line in block.items if line.ns
    ]
    whole = ("total", format_ns(round(block.total_ns / block.per)), format_share(1.0 if block.total_ns else 0.0))
    yield from _grid(("line", time, "share"), [*rows, whole], (False, True, True))


def _made_of(item: Portion) -> str:
    return ", ".join(f"{part.name} {format_bytes(part.bytes)}" for part in item.parts[:MOST_PARTS])


def _render_title(title: str) -> Iterator[str]:
    if title:
        yield from ("", f"### {_text(title)}")


def _pairs(block: Pairs) -> Iterator[str]:
    yield ""
    for pair in block.items:
        if pair.shown:
            value = pair.value
            shown = format_values(value, pair.unit) if isinstance(value, tuple) else format_value(value, pair.unit)
            yield f"- {_text(pair.label or pair.name)}: {_text(shown)}"


def _table(block: Table) -> Iterator[str]:
    kept = [at for at, field in enumerate(block.fields) if field.shown]
    if not block.rows:
        return
    yield from _render_title(block.title)
    heads = [block.fields[at].label or block.fields[at].name for at in kept]
    shown = block.rows[: block.most_shown]
    rows = [[format_value(row[at], block.fields[at].unit) for at in kept] for row in shown]
    yield from _grid(heads, rows, [all(map(_is_number, (row[at] for row in shown))) for at in kept])
    if left := block.left_out + len(block.rows) - len(shown):
        yield from ("", f"{pluralise(left, 'more row')}.")


def _is_number(value: Value) -> bool:
    return isinstance(value, int | float | None) and not isinstance(value, bool)


def _grid(heads: Sequence[str], rows: Iterable[Sequence[str]], numeric: Sequence[bool]) -> Iterator[str]:
    """Yield a table; columns of numbers are aligned right."""
    yield ""
    yield "| " + " | ".join(map(_text, heads)) + " |"
    yield "|" + "".join("---:|" if right else "---|" for right in numeric)
    for row in rows:
        yield "| " + " | ".join(map(_text, row)) + " |"


def _finding(number: int, finding: Finding, *, is_brief: bool) -> Iterator[str]:
    yield from ("", f"### {number}. {_text(format_heading(finding))}", "")
    yield f"- **{label_saving(finding).capitalize()}:** {_text(finding.saves if is_brief else format_saving(finding))}"
    if doubt := format_doubt(finding):
        yield f"- **But:** {_text(doubt)}"
    yield f"- **Fix:** {_code(finding.fix)}"
    if is_brief:
        return
    if finding.odds:
        yield f"- **Sure:** {finding.odds}"
    for evidence in finding.evidence:
        places = f" ({', '.join(map(_code, evidence.sources))})" if evidence.sources else ""
        yield f"- **Evidence:** {_text(evidence.what)}{places}"
    yield f"- **To confirm:** {_text(finding.certain_if)}"
    yield f"- **Cause:** {_code(finding.cause)}"
