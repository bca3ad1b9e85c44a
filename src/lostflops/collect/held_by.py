"""Holders of tensors: the name by which the training thread can reach a tensor, and the line that adds to it.

The search starts at variables of running functions and globals of their modules, and continues in what these hold: a
few levels deep, for a bounded time. Only objects that can be read without running code of the program are opened.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from inspect import CO_OPTIMIZED
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any, Final

import torch

from lostflops.collect.adding_lines import ATTRIBUTE, GLOBAL, LOCAL, adding_line

_LONGEST: Final = 50_000_000
_DEEPEST: Final = 6
_MOST_MEMBERS: Final = 10_000
_NOT_THE_PROGRAM: Final = ("lostflops", "torch", "threading", "runpy", "importlib")
_LEAVES: Final = (str, bytes, int, float, type(None), type, ModuleType, CodeType, FrameType, torch.Tensor, torch.Size)
_SEQUENCES: Final = (list, tuple, deque, set, frozenset)
_OWN_REFERENCES: Final = 3
"""References to the dict of a frame's variables that are not the program's: the frame's, ours, and the argument of
`sys.getrefcount`."""
Holder = tuple[str, str | None]
"""Name that keeps a tensor, and the line that adds to it (None: no such line was found)."""


@dataclass(frozen=True, slots=True)
class _ObjectPlace:
    value: Any
    name: str
    """Name as the program writes it, e.g. `self.kept`; members of a list have the name of the list."""
    loads: tuple[str, ...]
    scope: tuple[CodeType, ...]
    """Code that may contain lines which use the name."""


def held_by(tensors: list[Any], frame: FrameType | None) -> dict[int, Holder]:
    """Search from this frame of the training thread; return the holders that were found, by identity of the tensor."""
    search = _Search({id(tensor) for tensor in tensors}, time.thread_time_ns() + _LONGEST)
    for level in _variables(frame):
        search.descend(level)
        if len(search.found) == len(search.wanted):
            break
    return _choose_holders(search.found)


@dataclass(frozen=True, slots=True)
class _Search:
    wanted: set[int]
    end: int
    found: dict[int, list[_ObjectPlace]] = field(default_factory=dict)
    seen: set[int] = field(default_factory=set)

    def descend(self, level: list[_ObjectPlace], depth: int = 1) -> None:
        """Search level by level, so that the shortest name comes first."""
        following: list[_ObjectPlace] = []
        for place in level:
            if time.thread_time_ns() > self.end:
                return
            key = id(place.value)
            if key in self.wanted:
                self.found.setdefault(key, []).append(place)
            elif key not in self.seen and not isinstance(place.value, _LEAVES):
                self.seen.add(key)
                following += _members(place)
        if following and depth < _DEEPEST:
            self.descend(following, depth + 1)


def _choose_holders(found: dict[int, list[_ObjectPlace]]) -> dict[int, Holder]:
    """Choose the first holder that a line adds to, or else the first.

    A variable is set again in the next step, a list is not.
    """
    lines: dict[str, str | None] = {}
    for place in (place for places in found.values() for place in places):
        if place.name not in lines:
            lines[place.name] = adding_line(place.name.rpartition(".")[2], place.loads, place.scope)
    chosen = {key: min(places, key=lambda place: lines[place.name] is None) for key, places in found.items()}
    return {key: (place.name, lines[place.name]) for key, place in chosen.items()}


def _variables(frame: FrameType | None) -> Iterator[list[_ObjectPlace]]:
    """Yield variables of running functions, innermost first, and their modules' globals; then the script's globals."""
    codes: dict[int, list[CodeType]] = {}
    frames = [one for one in _chain(frame) if _is_of_the_program(one)]
    for one in frames:
        codes.setdefault(id(one.f_globals), []).append(one.f_code)
    script = getattr(sys.modules.get("__main__"), "__dict__", {})
    for one in frames:
        is_function = one.f_code.co_flags & CO_OPTIMIZED
        found = [_ObjectPlace(value, name, LOCAL, (one.f_code,)) for name, value in _locals(one)] if is_function else []
        yield found + _globals(one.f_globals, codes.pop(id(one.f_globals), None))
    yield _globals(script, codes.pop(id(script), []))


def _chain(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _is_of_the_program(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__")).partition(".")[0] not in _NOT_THE_PROGRAM


def _globals(space: dict[str, Any], codes: list[CodeType] | None) -> list[_ObjectPlace]:
    """Return the globals of a module; nothing if `codes` is None, which means that they were searched before."""
    if codes is None:
        return []
    scope = (*codes, *_functions(space))
    return [
        _ObjectPlace(value, name, GLOBAL, scope) for name, value in list(space.items()) if not name.startswith("__")
    ]


def _locals(frame: FrameType) -> list[tuple[str, Any]]:
    """Return the variables of a frame without keeping their values alive.

    Before Python 3.13 a frame keeps the dict that shows its variables, and with it all their values. The dict is
    emptied, unless the program has called `locals()` and holds it as well.
    """
    shown: Any = frame.f_locals
    found = list(shown.items())
    if type(shown) is dict and sys.getrefcount(shown) <= _OWN_REFERENCES:
        shown.clear()
    return found


def _functions(space: dict[str, Any]) -> Iterator[CodeType]:
    """Yield the code of a module's functions and methods."""
    for value in list(space.values()):
        members = list(vars(value).values()) if type(value) is type else [value]
        yield from (one.__code__ for one in members if type(one) is FunctionType and one.__globals__ is space)


def _members(place: _ObjectPlace) -> Iterator[_ObjectPlace]:
    value, kind = place.value, type(place.value)
    if kind in _SEQUENCES:
        # The newest of those that have an order.
        members = value[-_MOST_MEMBERS:] if kind in (list, tuple) else list(value)[:_MOST_MEMBERS]
        yield from (replace(place, value=member) for member in members)
    elif issubclass(kind, dict):
        yield from (replace(place, value=member) for member in list(dict.values(value))[-_MOST_MEMBERS:])
    elif kind is FunctionType:
        yield from _list_closure_cells(value)
    else:
        yield from _attributes(place)


def _list_closure_cells(function: FunctionType) -> Iterator[_ObjectPlace]:
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield _ObjectPlace(cell.cell_contents, name, LOCAL, (function.__code__,))
        except ValueError:  # not filled yet
            continue


def _attributes(place: _ObjectPlace) -> Iterator[_ObjectPlace]:
    try:
        held = object.__getattribute__(place.value, "__dict__")
    except AttributeError:
        return
    if type(held) is dict:
        scope = (*_methods(type(place.value)), *place.scope)
        for name, member in list(held.items()):
            yield _ObjectPlace(member, f"{place.name}.{name}", ATTRIBUTE, scope)


def _methods(kind: type) -> Iterator[CodeType]:
    for base in kind.__mro__:
        if not base.__module__.startswith("torch."):
            yield from (one.__code__ for one in list(vars(base).values()) if type(one) is FunctionType)
