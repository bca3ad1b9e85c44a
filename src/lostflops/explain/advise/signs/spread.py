"""Time that most ranks lose on lines of the ledger: causes on all ranks, not on one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from lostflops.explain.advise.case import Case
    from lostflops.explain.advise.claim import Place

_AT_MOST: Final = 2.0
"""At most this many times the typical time is attributed on a rank: the rest has a cause of its own."""


def typical(shares: Iterable[float]) -> float:
    """Return the value that at least half of them reach.

    >>> typical([0.9, 0.1]), typical([0.3, 0.1, 0.2]), typical([])
    (0.1, 0.2, 0.0)
    """
    ordered = sorted(shares, reverse=True)
    return ordered[len(ordered) // 2] if ordered else 0.0


def share(case: Case, *lines: str) -> float:
    """Return the share of its time that a typical rank spends on these lines."""
    return typical(sum(one.lines[line] for line in lines) / one.wall for one in case.total.ranks if one.wall)


def attribute_line(case: Case, line: str, parts: float | Mapping[int, float] = 1.0) -> dict[Place, int]:
    """Attribute this part of each rank's line, or the part given for the rank; on ranks far above the typical one at
    most twice as much as on that."""
    most = _AT_MOST * share(case, line)
    found = {}
    for one in case.total.ranks:
        part = parts if isinstance(parts, float) else parts.get(one.rank, 0.0)
        ns = int(min(one.lines[line], most * one.wall) * min(max(part, 0.0), 1.0))
        if ns:
            found[one.rank, line] = ns
    return found
