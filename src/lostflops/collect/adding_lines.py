"""The line of a program that adds to a container of a given name, from its compiled code."""

from __future__ import annotations

import dis
from collections.abc import Iterable, Iterator
from dis import Instruction
from types import CodeType
from typing import Final

from lostflops.collect.sampler import place

LOCAL: Final = ("LOAD_FAST", "LOAD_DEREF")
GLOBAL: Final = ("LOAD_GLOBAL", "LOAD_NAME")
ATTRIBUTE: Final = ("LOAD_ATTR",)
"""Names of the instructions that read a local variable, a global variable or an attribute."""
_ADDING: Final = frozenset({"append", "appendleft", "extend", "insert", "add", "update", "setdefault"})
_MOST_CODES: Final = 1000


def adding_line(name: str, loads: tuple[str, ...], scope: Iterable[CodeType]) -> str | None:
    """Return the first line that adds to the container called `name`, as `train.py:12`; None if no line does.

    >>> code = compile("kept = []\\nfor x in y:\\n    kept.append(x)\\n", "/home/me/train.py", "exec")
    >>> adding_line("kept", GLOBAL, [code]), adding_line("y", GLOBAL, [code])
    ('train.py:3', None)
    """
    for _, code in zip(range(_MOST_CODES), _with_inner(scope, set()), strict=False):
        if name in (*code.co_names, *code.co_varnames, *code.co_freevars, *code.co_cellvars):
            line = _line(name, loads, code)
            if line is not None:
                return f"{place(code.co_filename)}:{line}"
    return None


def _with_inner(scope: Iterable[CodeType], seen: set[CodeType]) -> Iterator[CodeType]:
    """Yield each code object once, followed by the functions defined in it."""
    for code in scope:
        if code not in seen:
            seen.add(code)
            yield code
            yield from _with_inner((inner for inner in code.co_consts if isinstance(inner, CodeType)), seen)


def _line(name: str, loads: tuple[str, ...], code: CodeType) -> int | None:
    """Return the number of the first line that adds to `name`; None if no line does.

    A method that adds is read right after the name; setting an item and `+=` start at the same place as the name.
    """
    begins: set[tuple[int, int]] = set()
    is_last = False
    for instruction in dis.get_instructions(code):
        at = _begin(instruction)
        is_method = instruction.opname in ("LOAD_METHOD", "LOAD_ATTR") and instruction.argval in _ADDING
        is_change = instruction.opname == "STORE_SUBSCR" or instruction.argrepr in ("+=", "|=")
        if at is not None and ((is_method and is_last) or (is_change and at in begins)):
            return at[0]
        is_last = instruction.opname.startswith(loads) and _reads(instruction) == name
        if is_last and at is not None:
            begins.add(at)
    return None


def _reads(instruction: Instruction) -> object:
    """Return the name that an instruction reads; the last one if it reads two variables."""
    return instruction.argval[-1] if isinstance(instruction.argval, tuple) else instruction.argval


def _begin(instruction: Instruction) -> tuple[int, int] | None:
    """Return line and column of the expression that an instruction belongs to; None if unknown."""
    at = instruction.positions
    return None if at is None or at.lineno is None or at.col_offset is None else (at.lineno, at.col_offset)
