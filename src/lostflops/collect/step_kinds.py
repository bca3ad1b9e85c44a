"""Kinds of steps: a job may train several models in turn, and a step of one is no measure for a step of another.

A step's kind is the set of optimizers that stepped in it, by numbers in the order in which they first stepped. Those
of one type and size have one number: a program may make a new optimizer for each epoch.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection
from typing import Any, Final

from lostflops.collect.capture import OPTIMIZER

_MOST: Final = 32
"""Types and sizes of optimizers that get a number; steps of further ones have no kind."""


class StepKinds:
    """Numbers the optimizers of a process."""

    def __init__(self, put: Callable[[dict[str, Any]], None]) -> None:
        self._put = put
        self._numbers: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._known: dict[tuple[str, int], int] = {}

    def add(self, optimizer: Any) -> None:
        """Number an optimizer that has not stepped before."""
        if optimizer in self._numbers:
            return
        groups = getattr(optimizer, "param_groups", ())
        one = type(optimizer).__name__, sum(one.numel() for group in groups for one in group["params"])
        if one not in self._known and len(self._known) < _MOST:
            self._known[one] = len(self._known)
            value = {"number": self._known[one], "type": one[0], "parameters": one[1]}
            self._put({"kind": "job", "key": OPTIMIZER, "value": value})
        if one in self._known:
            self._numbers[optimizer] = self._known[one]

    def kind_of(self, stepped: Collection[int]) -> str | None:
        """Return the kind of a step by the identities of the optimizers that stepped; None if one is not known."""
        numbers = {id(optimizer): number for optimizer, number in self._numbers.items()}
        found = sorted({numbers.get(one, -1) for one in stepped})
        return "+".join(map(str, found)) if found and found[0] >= 0 else None
