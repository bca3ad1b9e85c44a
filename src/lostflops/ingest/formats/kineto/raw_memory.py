"""Compiled functions over raw memory, for loops over every byte of a trace.

numba counts references to each array that a function is passed, which costs more than the work of a small function. So
the functions that it compiles here take addresses: plain integers. Without numba the same functions run as plain
Python, slowly, which is how tests check them.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, Final, TypeVar

try:
    from llvmlite import ir
    from numba import config, njit, types
    from numba.extending import intrinsic
except ImportError:
    njit = None

Function = TypeVar("Function", bound=Callable[..., Any])

IS_COMPILED: Final = njit is not None and not config.DISABLE_JIT
WORD: Final = 8
"""Bytes of an integer in memory."""


def can_keep_compiled() -> bool:
    """Return whether a later process finds what this one compiles, which takes several seconds."""
    try:
        njit(cache=True)(can_keep_compiled)
    except RuntimeError:  # neither this folder nor the user's cache can be written to
        return False
    return True


def compile_function(function: Function) -> Function:
    compiled: Function = njit(cache=IS_KEPT, nogil=True)(function) if IS_COMPILED else function
    return compiled


def byte_at(address: int) -> int:
    return ctypes.c_uint8.from_address(address).value


def word_at(address: int) -> int:
    """Return the integer of 64 bits at any address."""
    return ctypes.c_int64.from_address(address).value


def put_byte(address: int, value: int) -> None:
    ctypes.c_uint8.from_address(address).value = value


def put_word(address: int, value: int) -> None:
    ctypes.c_int64.from_address(address).value = value


def _loader(bits: int) -> Any:
    def load(_context: Any, address: Any) -> Any:  # noqa: ARG001  numba passes arguments by name
        def generate(_target: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            found = builder.load(builder.inttoptr(arguments[0], ir.IntType(bits).as_pointer()))
            found.align = 1
            return builder.zext(found, ir.IntType(64)) if bits < 64 else found

        return types.int64(types.int64), generate

    return intrinsic(load)


def _storer(bits: int) -> Any:
    def store(_context: Any, address: Any, value: Any) -> Any:  # noqa: ARG001
        def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            value = builder.trunc(arguments[1], ir.IntType(bits)) if bits < 64 else arguments[1]
            stored = builder.store(value, builder.inttoptr(arguments[0], ir.IntType(bits).as_pointer()))
            stored.align = 1
            return context.get_dummy_value()

        return types.void(types.int64, types.int64), generate

    return intrinsic(store)


if IS_COMPILED:
    byte_at, word_at = _loader(8), _loader(64)
    put_byte, put_word = _storer(8), _storer(64)
IS_KEPT: Final = IS_COMPILED and can_keep_compiled()
"""Whether the next process finds what this one compiles."""
