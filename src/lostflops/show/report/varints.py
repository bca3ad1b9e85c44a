"""Columns of whole numbers as varints: seven bits per byte, and only the last byte of a number is below 128."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

_BITS: Final = 7


def varints(values: Sequence[int]) -> bytes:
    """Encode numbers that are not negative.

    >>> varints([1, 300]).hex(" ")
    '01 ac 02'
    """
    return _encode_varints(np.asarray(values, np.uint64))


def deltas(values: Sequence[int]) -> bytes:
    """Encode each number minus the one before it; negative differences become odd numbers: 0, -1, 1, -2 are 0, 1, 2, 3.

    >>> deltas([5, 4, 4]).hex(" ")
    '0a 01 00'
    """
    numbers = np.asarray(values, np.int64)
    steps = numbers - np.concatenate(([0], numbers[:-1]))
    return _encode_varints(((steps << 1) ^ (steps >> 63)).astype(np.uint64))


def _encode_varints(values: npt.NDArray[np.uint64]) -> bytes:
    length = np.ones(values.size, np.int64)
    rest = values >> np.uint64(_BITS)
    while rest.any():
        length += rest > 0
        rest >>= np.uint64(_BITS)
    packed = np.zeros(int(length.sum()), np.uint8)
    first = np.cumsum(length) - length
    for place in range(int(length.max(initial=0))):
        own = length > place
        bits = (values[own] >> np.uint64(_BITS * place)) & np.uint64(127)
        packed[first[own] + place] = bits | np.where(length[own] > place + 1, 128, 0).astype(np.uint64)
    return packed.tobytes()
