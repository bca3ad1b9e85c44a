"""No nanosecond is claimed twice: claims are served one after the other from what the ledger still holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lostflops.explain.advise.claim import Claim, Place


def share_out_time(claims: Sequence[Claim], ledger: Mapping[int, Mapping[str, int]]) -> list[dict[Place, int]]:
    """What each claim gets, in the order in which they are given: the surest is served first, of equals the largest.
    Lines of a rank never give more than they hold."""
    left = {(rank, line): ns for rank, lines in ledger.items() for line, ns in lines.items()}
    got: list[dict[Place, int]] = [{} for _ in claims]
    for number in sorted(range(len(claims)), key=lambda at: _first(claims[at])):
        for place, ns in claims[number].taken.items():
            taken = min(ns, left.get(place, 0))
            if taken:
                left[place] -= taken
                got[number][place] = taken
    return got


def _first(claim: Claim) -> tuple[bool, float, int]:
    return bool(claim.suspected), -claim.confidence, -sum(claim.taken.values())
