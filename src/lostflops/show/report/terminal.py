"""Renders any Result as text for a terminal, readable in 80 columns.

Colour appears only on a terminal and never when NO_COLOR is set. Text from traces is data: it can
neither style the output nor send control codes. This module knows no analysis by name.
"""

import os
from collections.abc import Sequence
from typing import Final, TextIO

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.padding import Padding
from rich.table import Table as Grid
from rich.text import Text

from lostflops.core.pictures import Knobs, Spans, Strips
from lostflops.core.results import (
    Block,
    Field,
    Finding,
    Findings,
    HeatMap,
    Line,
    Lines,
    Pairs,
    Plot,
    Portions,
    Result,
    Section,
    Stacks,
    Table,
    Timeline,
    Waterfall,
)
from lostflops.core.units import format_ns, format_share
from lostflops.show.report.plot import draw_text_plot
from lostflops.show.report.portions import draw_portions
from lostflops.show.report.printable import printable as _clean
from lostflops.show.report.sparkline import sparklines
from lostflops.show.report.values import (
    format_doubt,
    format_heading,
    format_saving,
    format_value,
    format_values,
    label_saving,
)

WIDTH = 80
_NARROWEST = 40
NARROWEST_TEXT = 12
"""A text column may be folded down to this width; a wider table is shown as one record after the other."""

NARROWEST_BARS = 20
MOST_PARTS = 4
"""At most this many parts are shown below a line of the ledger; the rest is summed."""
MOST_STACKS = 5
MOST_HEAT_ROWS = 64
MOST_NAMED = 8
"""All columns of a heat map are named if there are at most this many."""


_EIGHTHS: Final = "▏▎▍▌▋▊▉█"
_SHADES: Final = "·░▒▓█"
_PLAIN_SHADES: Final = ".-+*#"


def write(result: Result, stream: TextIO) -> None:
    console = Console(file=stream, width=_width(stream), highlight=False, markup=False, emoji=False)
    console.print(Text(_clean(result.title), style="bold"))
    console.print(Text(_clean(result.verdict)))
    for block in result.first_blocks:
        _write_block(block, console, result.run)
    if result.notes:
        console.print()
    for note in result.notes:
        console.print(Text(f"Note: {_clean(note)}", style="yellow"))
    if result.next_command:
        console.print()
        console.print(Text(f"Next: {_clean(result.next_command)}", style="cyan"), soft_wrap=True)
    if result.other_command:
        console.print(Text(f"Or: {_clean(result.other_command)}", style="cyan"), soft_wrap=True)


def _width(stream: TextIO) -> int | None:
    """Return the columns to use: COLUMNS if it is set, else those of the terminal, else 80."""
    asked = os.environ.get("COLUMNS", "")
    if asked.isdigit() and int(asked):
        return max(int(asked), _NARROWEST)
    return None if stream.isatty() else WIDTH


def _write_pairs(block: Pairs, console: Console) -> None:
    cells = [
        [
            pair.label or pair.name,
            format_values(pair.value, pair.unit)
            if isinstance(pair.value, tuple)
            else format_value(pair.value, pair.unit),
        ]
        for pair in block.items
        if pair.shown
    ]
    console.print(_pairs(cells))


def _as_table(block: Table | Stacks) -> Table:
    """Return a table of the largest stacks, or the table itself; a drawing shows all stacks."""
    if isinstance(block, Table):
        return block
    ordered = sorted(block.items, key=lambda item: -item[-1])[:MOST_STACKS]
    rows = tuple((" > ".join(frames), samples, ns) for frames, samples, ns in ordered)
    fields = (Field("stack"), Field("samples", "count"), Field("ns", "ns", "time"))
    return Table(block.name, "", fields, rows, len(block.items) - len(rows))


def _write_block(block: Block, console: Console, run: str) -> None:
    if isinstance(block, Findings) and not block.items:
        return  # the verdict says that nothing was found
    console.print()
    if block.title:
        console.print(Text(_clean(block.title), style="bold"))
    match block:
        case Table() | Stacks():
            _write_table(_as_table(block), console)
        case Pairs():
            _write_pairs(block, console)
        case Section():
            _write_block(Pairs(block.name, "", block.items), console, run)
            _write_table(block.table, console)
        case Lines():
            console.print(_ledger(block))
        case Findings():
            _write_findings(block, console, run)
        case Strips() | Spans() | Knobs():
            console.print(Text(f"A page draws this: lostflops open {run}", style="dim"))
        case _:
            _draw(block, console)


def _draw(block: HeatMap | Plot | Portions | Timeline | Waterfall, console: Console) -> None:
    match block:
        case HeatMap():
            _write_heat_map(block, console)
        case Plot():
            _write_plot(block, console)
        case Portions():
            for line, is_part in draw_portions(block, console.width, plain=_is_plain(console)):
                console.print(Text(line, style="dim" if is_part else ""), no_wrap=True, overflow="crop")
        case Timeline():
            for line in sparklines(block, plain=_is_plain(console)):
                console.print(Text(line), no_wrap=True, overflow="crop")
        case Waterfall():
            _write_waterfall(block, console)


def _is_plain(console: Console) -> bool:
    return not console.encoding.startswith("utf")


def _write_plot(block: Plot, console: Console) -> None:
    for line in draw_text_plot(block, console.width, plain=_is_plain(console)):
        console.print(line, no_wrap=True, overflow="crop")


def _write_heat_map(block: HeatMap, console: Console) -> None:
    """Write a shade for each cell, from nothing to the largest value."""
    plain = _is_plain(console)
    largest = max((value for _, values in block.rows for value in values if value is not None), default=0.0)
    widest = max((cell_len(_clean(name)) for name, _ in block.rows), default=0)
    for name, values in block.rows[:MOST_HEAT_ROWS]:
        cells = "".join(_shade(value, largest, plain=plain) for value in values)
        console.print(Text(f"  {_clean(name):<{widest}}  {cells}"), no_wrap=True, overflow="crop")
    if (left := len(block.rows) - MOST_HEAT_ROWS) > 0:
        console.print(Text(f"  ... and {left:,} more", style="dim"))
    if block.columns:
        named = (
            ", ".join(block.columns)
            if len(block.columns) <= MOST_NAMED
            else f"{block.columns[0]} to {block.columns[-1]}"
        )
        console.print(Padding(Text(f"columns: {_clean(named)}", style="dim"), (0, 0, 0, 2)))
    most = largest if block.unit == "share" else round(largest)
    scale = f"{_shade(largest, largest, plain=plain)} is {format_value(most, block.unit)}"
    if any(value is None for _, values in block.rows[:MOST_HEAT_ROWS] for value in values):
        scale += f", {_shade(None, largest, plain=plain)} is no value"
    console.print(Padding(Text(f"{_clean(block.legend)}; {scale}", style="dim"), (0, 0, 0, 2)))


def _write_waterfall(block: Waterfall, console: Console) -> None:
    names = [_clean(bar.name) for bar in block.bars]
    widest = max(map(cell_len, names), default=0)
    room = max(console.width - widest - 14, NARROWEST_BARS)
    left = 100.0
    for name, bar in zip(names, block.bars, strict=True):
        drawn = _floating_bar(left - bar.points, left, room, plain=_is_plain(console))
        points = format_share(bar.points / 100)
        console.print(Text(f"  {name:<{widest}}  {points:>6}  {drawn}".rstrip()), no_wrap=True, overflow="crop")
        left -= bar.points
    for text in (block.reason, block.convention):
        if text:
            console.print(Padding(Text(_clean(text), style="dim"), (0, 0, 0, 2)))


def _write_table(table: Table, console: Console) -> None:
    shown = [i for i, field in enumerate(table.fields) if field.shown]
    heads = [_clean(table.fields[i].label or table.fields[i].name) for i in shown]
    told = table.rows[: table.most_shown]
    rows = [[format_value(row[i], table.fields[i].unit) for i in shown] for row in told]
    numeric = [
        all(isinstance(row[i], int | float | None) and not isinstance(row[i], bool) for row in table.rows)
        for i in shown
    ]
    if not rows:
        console.print(Text("(no rows)"))
    elif _fits(heads, rows, numeric, console.width):
        console.print(_grid(heads, rows, numeric))
    else:
        for number, row in enumerate(rows, 1):
            console.print(Text(f"[{number}]", style="dim"))
            console.print(_pairs([[head, cell] for head, cell in zip(heads, row, strict=True)]))
    if left := table.left_out + len(table.rows) - len(told):
        console.print(Text(f"... and {left:,} more", style="dim"))


def _fits(heads: Sequence[str], rows: Sequence[Sequence[str]], numeric: Sequence[bool], width: int) -> bool:
    needed = 0
    for i, head in enumerate(heads):
        widest = max(cell_len(cell) for cell in [head, *(row[i] for row in rows)])
        narrowest = widest if numeric[i] else min(widest, max(NARROWEST_TEXT, cell_len(head)))
        needed += narrowest + 2
    return needed <= width


def _grid(heads: Sequence[str], rows: Sequence[Sequence[str]], numeric: Sequence[bool]) -> Grid:
    grid = Grid(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1), header_style="bold")
    for head, is_number in zip(heads, numeric, strict=True):
        if is_number:
            grid.add_column(Text(head), justify="right", no_wrap=True)
        else:
            grid.add_column(Text(head), overflow="fold", min_width=min(NARROWEST_TEXT, cell_len(head)))
    for row in rows:
        grid.add_row(*map(Text, row))
    return grid


def _pairs(cells: Sequence[Sequence[str]]) -> Padding:
    grid = Grid.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for head, cell in cells:
        grid.add_row(Text(_clean(head)), Text(cell))
    return Padding(grid, (0, 0, 0, 2))


def _ledger(block: Lines) -> Grid:
    """Tabulate the lines that have any time, each with its largest parts."""
    grid = Grid.grid(padding=(0, 2))
    grid.add_column(overflow="fold")
    grid.add_column(justify="right", no_wrap=True)
    grid.add_column(justify="right", no_wrap=True)
    if block.unit:
        grid.add_row("", Text(f"per {block.unit}", style="bold"), Text("share", style="bold"))

    def add(line: Line, depth: int) -> None:
        name = "  " * (depth + 1) + _clean(line.name)
        style = "dim" if depth else ""
        grid.add_row(
            Text(name, style), Text(format_ns(round(line.ns / block.per)), style), Text(format_share(line.share), style)
        )
        for part in line.parts[:MOST_PARTS]:
            add(part, depth + 1)
        if len(line.parts) > MOST_PARTS:
            left = line.parts[MOST_PARTS:]
            rest = Line(f"{len(left):,} more", sum(part.ns for part in left), sum(part.share for part in left))
            add(rest, depth + 1)

    for line in block.items:
        if line.ns:
            add(line, 0)
    add(Line("total", block.total_ns, 1.0 if block.total_ns else 0.0), 0)
    return grid


def _write_findings(block: Findings, console: Console, run: str) -> None:
    for number, finding in enumerate(block.items[: block.most_shown], 1):
        console.print(Text(f"{number}. {format_heading(finding)}", style="bold"))
        console.print(_pairs(_brief(finding) if block.is_brief else _in_full(finding)))
    if block.most_shown is not None and len(block.items) > block.most_shown:
        console.print(Text(f"{len(block.items) - block.most_shown:,} more: lostflops diagnose {run}"))


def _brief(finding: Finding) -> list[list[str]]:
    doubt = format_doubt(finding)
    return [
        [label_saving(finding), _clean(finding.saves)],
        ["fix", _clean(finding.fix)],
        *([["but", doubt]] if doubt else []),
    ]


def _in_full(finding: Finding) -> list[list[str]]:
    doubt = format_doubt(finding)
    return [
        [label_saving(finding), format_saving(finding)],
        *([["sure", finding.odds]] if finding.odds else []),
        *([["but", doubt]] if doubt else []),
        ["fix", _clean(finding.fix)],
        *(["evidence", _clean(evidence.what)] for evidence in finding.evidence),
        ["to confirm", _clean(finding.certain_if)],
        ["cause", finding.cause],
    ]


def _floating_bar(start: float, stop: float, width: int, *, plain: bool = False) -> str:
    """Draw a bar from `start` to `stop`, in percent of the width; a bar that is not empty is always visible.

    >>> _floating_bar(50, 100, 8), _floating_bar(0, 25, 8), _floating_bar(99.9, 100, 8), _floating_bar(30, 30, 8)
    ('    ████', '██', '       ▏', '')
    >>> _floating_bar(50, 100, 8, plain=True)
    '    ####'
    """
    if stop <= start:
        return ""
    first = min(int(start * width / 100 + 0.5), width - 1)
    eighths = min(max(round((stop - start) * width * 8 / 100), 1), 8 * (width - first))
    if plain:
        return " " * first + "#" * max(round(eighths / 8), 1)
    full, part = divmod(eighths, 8)
    return " " * first + "█" * full + (_EIGHTHS[part - 1] if part else "")


def _shade(value: float | None, largest: float, *, plain: bool = False) -> str:
    """Return a character that is darker the larger the value; an unknown value is a question mark.

    >>> "".join(_shade(value, 4) for value in (0, 1, 2, 3, 4, None, -1))
    '·░▒▓█?·'
    >>> "".join(_shade(value, 4, plain=True) for value in (0, 1, 2, 3, 4, None))
    '.-+*#?'
    """
    shades = _PLAIN_SHADES if plain else _SHADES
    if value is None:
        return "?"
    return shades[0 if largest <= 0 else max(0, min(round(value / largest * 4), 4))]
