"""A rule: one cause, and the function that finds it in a case."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lostflops.explain.advise.case import Case
    from lostflops.explain.advise.claim import Claim


@dataclass(frozen=True, slots=True)
class Rule:
    """A cause of lost time, and how to find it."""

    cause: str
    about: str
    """Explanation of the cause for a reader who sees it for the first time."""
    find: Callable[[Case], Iterable[Claim]]
    """Yield claims; raise `UnknownCost` or `UsageError` if the run lacks the data."""
