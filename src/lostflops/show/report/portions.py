"""Portions of a whole as nested bars: each begins where the last ends, and parts fill the bar of their whole."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from rich.cells import cell_len, set_cell_size

from lostflops.core.results import Portion, Portions
from lostflops.core.units import format_bytes, format_share
from lostflops.show.report.printable import printable

MOST_PARTS: Final = 4
"""At most this many parts of a portion are shown; the rest is summed."""
SMALLEST: Final = 0.02
"""A part smaller than this share of the whole is included in the rest."""
WIDEST_NAME: Final = 32
NARROWEST_BARS: Final = 20
_BESIDE_BARS: Final = 21
"""Cells for indent, bytes and share, with the spaces between them."""


def draw_portions(block: Portions, width: int, *, plain: bool = False) -> Iterator[tuple[str, bool]]:
    """Yield a line for each portion that is not empty and for its largest parts, and whether the line is such a part.

    >>> whole = Portions("p", "", "owner", (Portion("a", 6, 2, (Portion("x", 6, 2),)), Portion("b", 2, 1)), 8)
    >>> for line, _ in draw_portions(whole, 43, plain=True): print(line)
      a        6 B   75.0%  ###############
        x      6 B   75.0%  ---------------
      b        2 B   25.0%                 #####
    """
    if not block.total:
        yield "  (no memory in use)", False
        return
    bars = _bars(block)
    names = ["  " * depth + printable(portion.name) for depth, portion, _ in bars]
    widest = min(max(map(cell_len, names)), WIDEST_NAME)
    room = max(width - widest - _BESIDE_BARS, NARROWEST_BARS)
    for name, (depth, portion, start) in zip(names, bars, strict=True):
        mark = ("#-" if plain else "█▒")[depth]
        drawn = _bar(start, portion.bytes, block.total, room, mark)
        figures = f"{format_bytes(portion.bytes):>7}  {format_share(block.share(portion)):>6}"
        yield f"  {set_cell_size(_shorten_name(name, widest), widest)}  {figures}  {drawn}", depth > 0


def _bars(block: Portions) -> list[tuple[int, Portion, int]]:
    """Return depth, portion and the byte at which its bar starts."""
    found, at = [], 0
    for item in block.items:
        if item.bytes:
            found.append((0, item, at))
            inside = at
            for part in _select_largest_parts(item.parts, block.total):
                found.append((1, part, inside))
                inside += part.bytes
        at += item.bytes
    return found


def _select_largest_parts(parts: Sequence[Portion], whole: int) -> Iterator[Portion]:
    """Yield the largest parts, and the rest as one; nothing if all are small."""
    kept = sum(part.bytes >= SMALLEST * whole for part in parts)
    kept = min(kept, MOST_PARTS) if len(parts) > MOST_PARTS + 1 else kept
    yield from parts[:kept]
    if kept and (left := parts[kept:]):
        yield Portion(f"{len(left):,} more", sum(part.bytes for part in left), sum(part.count for part in left))


def _shorten_name(name: str, width: int) -> str:
    """Shorten a name at its beginning: the end says more about modules and source lines.

    >>> _shorten_name("  model.layers.11.attention.query", 20)
    '  ...attention.query'
    """
    if cell_len(name) <= width:
        return name
    lead = len(name) - len(name.lstrip())
    return name[:lead] + ".." + name[len(name) - (width - lead - 2) :]


def _bar(start: int, size: int, whole: int, width: int, mark: str) -> str:
    """Draw a bar from edge to edge, so that widths sum to that of the whole; a bar thinner than a cell is a stroke.

    >>> _bar(0, 1, 3, 10, "#"), _bar(1, 2, 3, 10, "#"), _bar(999, 1, 1000, 10, "#")
    ('###', '   #######', '         |')
    """
    first, last = _edge(start, whole, width), _edge(start + size, whole, width)
    return " " * first + mark * (last - first) if last > first else " " * min(first, width - 1) + "|"


def _edge(at: int, whole: int, width: int) -> int:
    return (2 * at * width + whole) // (2 * whole)
