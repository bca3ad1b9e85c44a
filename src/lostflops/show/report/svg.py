"""Flame graphs and plots of any Result as one self-contained SVG, without JavaScript.

In a flame graph the outermost frame is on top and widths are time. Text that does not fit is in the title that a
browser shows on hover.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath
from textwrap import wrap
from typing import Final, TextIO

from lostflops.core.results import Plot, Result, Stacks
from lostflops.core.units import format_ns, format_share, pluralise
from lostflops.show.report.colours import CODES
from lostflops.show.report.flame import SMALLEST, FlameBar, bars, tree
from lostflops.show.report.svg_plot import draw_plot
from lostflops.show.report.svg_text import clean, escape_text, text_at

WIDTH: Final = 1200
MARGIN: Final = 12
ROW: Final = 18
FONT: Final = 11
LETTER: Final = 6.7
"""Width of a letter in a monospaced font of that size; the widest common fonts take 0.602 of it."""
FEWEST_LETTERS: Final = 3
WIDEST_TEXT: Final = 165
"""A line of text above the graph has at most this many letters."""
_INK: Final = "#1a1a1a"
_COLOURS: Final = {"line": ("#37474f", "#ffffff")} | {code: (fill, _INK) for code, fill in CODES.items()}
_UNKNOWN: Final = ("#eeeeee", _INK)


def write(result: Result, stream: TextIO) -> None:
    found = [block for block in (*result.blocks, *result.more) if isinstance(block, Stacks | Plot)]
    body: list[str] = []
    top = MARGIN
    for size, weight, text in _heading(result):
        top += size + 6
        body.append(text_at(MARGIN, top, text, _INK, f'font-size="{size}" font-weight="{weight}"'))
    for block in found:
        top += 10
        top = draw_plot(block, top, body) if isinstance(block, Plot) else _draw(block, top, body)
    height = top + MARGIN
    stream.write(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        f'font-family="DejaVu Sans Mono, Menlo, Consolas, monospace" font-size="{FONT}">\n'
        f'<rect width="100%" height="100%" fill="#ffffff"/>\n' + "\n".join(body) + "\n</svg>\n"
    )


def _heading(result: Result) -> Iterator[tuple[int, str, str]]:
    yield 16, "bold", result.title
    for text in (result.verdict, *(f"Note: {note}" for note in result.notes)):
        for line in wrap(clean(text), WIDEST_TEXT):
            yield FONT, "normal", line


def _draw(block: Stacks, top: int, body: list[str]) -> int:
    """Add the graph below `top`; return where it ends."""
    root = tree(block)
    drawn, small, deep = bars(root)
    left: float = MARGIN
    for kind in sorted({block.kinds.get(bar.branch.frame, "") for bar in drawn} - {""}, key=[*_COLOURS].index):
        fill, _ = _COLOURS[kind]
        body.append(f'<rect x="{left:.1f}" y="{top}" width="12" height="12" fill="{fill}"/>')
        body.append(text_at(left + 17, top + 10, kind, _INK))
        left += 17 + LETTER * len(kind) + 18
    top += 12 + 10
    body += [_bar(bar, block, root.ns, top) for bar in drawn]
    top += ROW * (1 + max((bar.level for bar in drawn), default=-1))
    for note in _left_out(small, deep):
        top += ROW
        body.append(text_at(MARGIN, top, note, "#555555"))
    return top


def _left_out(small: int, deep: int) -> Iterator[str]:
    if small:
        yield f"Not drawn: {pluralise(small, 'frame')} with less than {format_share(SMALLEST)} of the time."
    if deep:
        yield f"Not drawn: {pluralise(deep, 'frame')} below the deepest level that is drawn."


def _bar(bar: FlameBar, block: Stacks, whole: int, top: int) -> str:
    branch, scale = bar.branch, (WIDTH - 2 * MARGIN) / whole
    fill, ink = _COLOURS.get(block.kinds.get(branch.frame, ""), _UNKNOWN)
    x, y, width = MARGIN + bar.first * scale, top + bar.level * ROW, branch.ns * scale
    share = format_share(branch.ns / whole)
    seen = f"{format_ns(branch.ns)}, {share}, {pluralise(branch.samples, 'sample')}"
    return (
        f"<g><title>{escape_text(branch.frame)}\n{seen}</title>"
        f'<rect x="{x:.2f}" y="{y}" width="{max(width - 1, 0.5):.2f}" height="{ROW - 1}" rx="1" fill="{fill}"/>'
        f"{_label(branch.frame, share, x, y, width, ink)}</g>"
    )


def _label(frame: str, share: str, x: float, y: int, width: float, ink: str) -> str:  # noqa: PLR0917
    """Return function, share and file as far as they fit, the function first."""
    room = int((width - 8) / LETTER)
    function, _, place = frame.partition(" ") if ":" in frame else (frame, "", "")
    file = PurePosixPath(place).name
    texts = (f"{function} {share}  {file}", f"{function} {share}", function)
    text = next((text for text in texts if len(text) <= room), function[: room - 1] + "…")
    if room < FEWEST_LETTERS:
        return ""
    return text_at(x + 4, y + ROW - 6, text, ink)
