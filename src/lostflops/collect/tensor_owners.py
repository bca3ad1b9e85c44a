"""Tensors whose owner is known: parameters and buffers of modules, and the state of optimizers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from lostflops.collect.model_facts import plain_name
from lostflops.collect.storages import tensors_in

PARAMETERS: Final = "parameters"
GRADIENTS: Final = "gradients"
OPTIMIZER: Final = "optimizer_state"
BUFFERS: Final = "buffers"
BATCHES: Final = "batches"

Owned = tuple[str, str | None, Any]
"""Owner, name of the parameter or buffer, the tensor."""


def of_modules(roots: list[Any], others: Iterable[Any]) -> Iterator[Owned]:
    """Yield tensors of `roots` first, then of all other modules that are inside no module; each module once."""
    held = list(others)
    inside = {id(child) for module in held for child in module.__dict__.get("_modules", {}).values()}
    seen: set[int] = set()
    for top in [*roots, *(module for module in held if id(module) not in inside)]:
        yield from _of_module(top, "", seen)


def of_optimizer(optimizer: Any, names: dict[int, str | None]) -> Iterator[Owned]:
    """Yield the state of an optimizer, with the name of the parameter that it belongs to."""
    for key, value in _state(optimizer):
        for tensor in tensors_in(value):
            yield OPTIMIZER, names.get(id(key)), tensor


def size_of_state(optimizer: Any) -> int:
    """Return the number of entries in an optimizer's state, which it may hold for each parameter or once."""
    return sum(len(value) if type(value) is dict else 1 for _, value in _state(optimizer))


def _state(optimizer: Any) -> list[tuple[Any, Any]]:
    state = getattr(optimizer, "__dict__", {}).get("state")
    return list(dict.items(state)) if isinstance(state, dict) else []


def parameters_of(optimizer: Any) -> Iterator[Any]:
    groups = getattr(optimizer, "__dict__", {}).get("param_groups")
    for group in groups if isinstance(groups, list) else ():
        yield from tensors_in(group.get("params") if isinstance(group, dict) else None)


def _of_module(module: Any, prefix: str, seen: set[int]) -> Iterator[Owned]:
    if module is None or id(module) in seen:
        return
    seen.add(id(module))
    for owner, held in ((PARAMETERS, "_parameters"), (BUFFERS, "_buffers")):
        for name, tensor in list(module.__dict__.get(held, {}).items()):
            if tensor is not None:
                yield owner, plain_name(prefix + name), tensor
    for name, child in list(module.__dict__.get("_modules", {}).items()):
        yield from _of_module(child, f"{prefix}{name}.", seen)
