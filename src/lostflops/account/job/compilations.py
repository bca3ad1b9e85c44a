"""What torch.compile compiled in a job, when, and why."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from lostflops.collect.capture import COMPILATION

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from lostflops.store.run import Run

_COMPILED: Final = f"select rank, attempt, value from job where key = '{COMPILATION}' order by rank, attempt"


@dataclass(frozen=True, slots=True, kw_only=True)
class Compilation:
    """One compilation on one rank."""

    rank: int
    attempt: int
    step: int | None
    """The step in which it was seen; the first step for all that came before."""
    stack: str
    is_forward: bool
    start: int | None
    ns: int
    is_cached: bool
    """Whether some of its code came from the cache on disk."""
    reason: str | None
    """The guard that failed; None for what was compiled for the first time."""


def compilations(run: Run) -> Iterator[Compilation]:
    """Yield all compilations of a job, by rank."""
    for rank, attempt, value in run.rows(_COMPILED):
        told = json.loads(value)
        if isinstance(told, dict):
            yield Compilation(
                rank=rank,
                attempt=attempt,
                step=_number(told, "step"),
                stack=str(told.get("stack") or ""),
                is_forward=told.get("is_forward") is not False,
                start=_number(told, "start"),
                ns=max(_number(told, "ns") or 0, 0),
                is_cached=told.get("cached") is True,
                reason=str(told["reason"]) if told.get("reason") else None,
            )


def time_within(found: Iterable[Compilation], start: int, stop: int) -> int:
    """Return how much of a stretch was spent compiling, in ns; compilations may be nested in each other.

    >>> made = [Compilation(rank=0, attempt=0, step=0, stack="", is_forward=True, start=start, ns=ns, is_cached=False,
    ...                     reason=None) for start, ns in ((10, 20), (15, 5), (40, 100))]
    >>> time_within(made, 12, 50)
    28
    """
    whole, reached = 0, start
    for one in sorted((one for one in found if one.start is not None), key=lambda one: one.start or 0):
        begins, ends = max(one.start or 0, reached), min((one.start or 0) + one.ns, stop)
        if ends > begins:
            whole, reached = whole + ends - begins, ends
    return whole


def _number(value: dict[str, Any], name: str) -> int | None:
    found = value.get(name)
    return found if type(found) is int else None
