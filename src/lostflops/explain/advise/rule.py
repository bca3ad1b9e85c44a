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
    """One cause. `find` raises `UnknownCost` or `UsageError` where the run does not tell; `about` says what the cause
    is, in words for somebody who meets it for the first time."""

    cause: str
    about: str
    find: Callable[[Case], Iterable[Claim]]
