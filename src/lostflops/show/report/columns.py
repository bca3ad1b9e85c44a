"""Long columns of a page as bytes: cells of heat maps and trees of stacks, little-endian and compact.

JSON of a million cells would be three times as large, and slow to read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from struct import pack
from typing import Final

from lostflops.core.results import HeatMap, Stacks
from lostflops.show.report.flame import Branch, tree

NO_VALUE: Final = 2**32 - 1
_WHOLE: Final = ("ns", "bytes", "flop", "flops")
"""Units that are shown only as whole numbers."""


@dataclass(frozen=True, slots=True)
class Cells:
    """Values of all rows, one row after the other."""

    places: int
    """Number of values per row."""
    kind: str
    """`u4` or `f8`."""
    least: float
    """Number that values of kind `u4` are counted from."""
    packed: bytes


def cells(block: HeatMap) -> Cells:
    """Pack the cells of a heat map; rows shorter than the longest are filled up."""
    places = max((len(values) for _, values in block.rows), default=0)
    flat: list[float | None] = []
    for _, values in block.rows:
        flat += [value if value is not None and isfinite(value) else None for value in values]
        flat += [None] * (places - len(values))
    known = [value for value in flat if value is not None]
    least = min(known, default=0)
    whole = block.unit in _WHOLE or all(float(value).is_integer() for value in known)
    if whole and max(known, default=0) - least < NO_VALUE - 1:
        least = round(least)
        numbers = [NO_VALUE if value is None else round(value) - least for value in flat]
        return Cells(places, "u4", least, pack(f"<{len(numbers)}I", *numbers))
    floats = [float("nan") if value is None else float(value) for value in flat]
    return Cells(places, "f8", 0, pack(f"<{len(floats)}d", *floats))


@dataclass(frozen=True, slots=True)
class Forest:
    """Stacks as a tree: branches in drawing order, each after its parent and the largest first."""

    names: list[str]
    frames: bytes
    """Places in `names`."""
    parents: bytes
    """Places of branches, counted from 1; 0 for the outermost."""
    samples: bytes
    ns: bytes


def forest(stacks: Stacks) -> Forest:
    names: dict[str, int] = {}
    frames: list[int] = []
    parents: list[int] = []
    samples: list[int] = []
    times: list[int] = []
    waiting = _largest_last(tree(stacks), 0)
    while waiting:
        branch, parent = waiting.pop()
        frames.append(names.setdefault(branch.frame, len(names)))
        parents.append(parent)
        samples.append(branch.samples)
        times.append(branch.ns)
        waiting += _largest_last(branch, len(frames))
    return Forest(list(names), _u4(frames), _u4(parents), _u4(samples), pack(f"<{len(times)}d", *times))


def _largest_last(branch: Branch, parent: int) -> list[tuple[Branch, int]]:
    ordered = sorted(branch.children.values(), key=lambda child: (child.ns, child.frame))
    return [(child, parent) for child in ordered]


def _u4(values: Sequence[int]) -> bytes:
    return pack(f"<{len(values)}I", *values)
