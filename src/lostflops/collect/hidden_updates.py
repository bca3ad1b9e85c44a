"""Updates that call no hook but raise the versions of parameters: by compiled optimizers, or the program's own."""

from __future__ import annotations

import gc
import weakref
from itertools import islice
from typing import Any, Final

import torch

_LOOKS: Final = (3, 10, 100, 1000)
"""Optimizers are searched for after these numbers of backward passes without an observed update."""
_MOST_PARAMETERS: Final = 8


class HiddenUpdates:
    """A detector of updates by the versions of parameters, used only until an optimizer's hook is first called."""

    def __init__(self) -> None:
        self._passes = 0
        self._parameters: list[weakref.ref[Any]] = []
        self._version = 0

    def pass_begins(self) -> list[Any]:
        """Note that a backward pass begins; return the optimizers that were found now."""
        self._passes += 1
        if self._parameters or self._passes not in _LOOKS:
            return []
        things = gc.get_objects()
        optimizers = [thing for thing in things if issubclass(type(thing), torch.optim.Optimizer)]
        self._parameters = [
            weakref.ref(parameter) for parameter in _some_of(optimizers) or _find_trained_parameters(things)
        ]
        self._version = self._versions()
        return optimizers

    def has_updated(self) -> bool:
        """Return whether there was an update since the last call."""
        if not self._parameters:
            return False
        before, self._version = self._version, self._versions()
        return self._version != before

    def _versions(self) -> int:
        known = (reference() for reference in self._parameters)
        return sum(parameter._version for parameter in known if parameter is not None)  # noqa: SLF001


def _some_of(optimizers: list[Any]) -> list[Any]:
    groups = (group for optimizer in optimizers for group in optimizer.param_groups)
    return [parameter for group in groups for parameter in group["params"][:_MOST_PARAMETERS]]


def _find_trained_parameters(things: list[Any]) -> list[Any]:
    """Return a few parameters of a program that updates them itself, without an optimizer of PyTorch."""
    trained = (thing for thing in things if type(thing) is torch.nn.Parameter and thing.requires_grad)
    return list(islice(trained, _MOST_PARAMETERS))
