"""Kinds of steps: a job may train several models in turn, and a step of one is no measure for a step of another.

A step's kind is the set of optimizers that stepped in it, by numbers in the order in which they first stepped.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection
from typing import Any, Final

from lostflops.collect.capture import OPTIMIZER

_MOST: Final = 32
"""Optimizers that are told apart; a program that makes new ones all the time has no kinds."""


class StepKinds:
    """Numbers the optimizers of a process."""

    def __init__(self, put: Callable[[dict[str, Any]], None]) -> None:
        self._put = put
        self._numbers: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._count = 0

    def add(self, optimizer: Any) -> None:
        """Number an optimizer that has not stepped before."""
        if optimizer in self._numbers or self._count >= _MOST:
            return
        number = self._numbers[optimizer] = self._count
        self._count += 1
        groups = getattr(optimizer, "param_groups", ())
        parameters = sum(one.numel() for group in groups for one in group["params"])
        value = {"number": number, "type": type(optimizer).__name__, "parameters": parameters}
        self._put({"kind": "job", "key": OPTIMIZER, "value": value})

    def kind_of(self, stepped: Collection[int]) -> str | None:
        """Return the kind of a step by the identities of the optimizers that stepped; None if one is not known."""
        numbers = {id(optimizer): number for optimizer, number in self._numbers.items()}
        found = sorted({numbers.get(one, -1) for one in stepped})
        return "+".join(map(str, found)) if found and found[0] >= 0 else None
