"""Stacks as a tree to draw, whose branches are as wide as their time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from lostflops.core.results import Stacks

SMALLEST: Final = 0.003
"""Branches with a smaller share of the time are not drawn."""
MOST_LEVELS: Final = 80


@dataclass(slots=True)
class Branch:
    """Stacks that begin with the same frames."""

    frame: str
    samples: int = 0
    ns: int = 0
    children: dict[str, Branch] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FlameBar:
    """A branch in its place."""

    branch: Branch
    level: int
    """Level, counted from the outermost."""
    first: int
    """Time of all that is drawn before it, in ns."""


def tree(stacks: Stacks) -> Branch:
    root = Branch("")
    for frames, samples, ns in stacks.items:
        branch = root
        branch.ns += ns
        for frame in frames:
            branch = branch.children.setdefault(frame, Branch(frame))
            branch.samples += samples
            branch.ns += ns
    return root


def bars(root: Branch) -> tuple[list[FlameBar], int, int]:
    """Return the bars to draw, then how many branches are too small, and how many are too deep."""
    drawn: list[FlameBar] = []
    small = deep = 0
    waiting = [(root, -1, 0)]
    while waiting:
        branch, level, first = waiting.pop()
        if level >= 0:
            drawn.append(FlameBar(branch, level, first))
        for child in _sort_children(branch):
            if not child.ns or child.ns < SMALLEST * root.ns:
                small += 1
            elif level + 1 >= MOST_LEVELS:
                deep += 1
            else:
                waiting.append((child, level + 1, first))
            first += child.ns
    return drawn, small, deep


def _sort_children(branch: Branch) -> Iterator[Branch]:
    """Yield the children, the largest first, so that the eye starts with it."""
    yield from sorted(branch.children.values(), key=lambda child: (-child.ns, child.frame))
