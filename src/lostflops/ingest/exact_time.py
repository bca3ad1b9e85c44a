"""Decimal microseconds, as a trace writes them, to integer nanoseconds, exactly.

A binary float holds a Unix time in microseconds only to a quarter of a microsecond, so the
text of the number is read instead: digits to integers, half-even where there are more than
three decimals. Whole columns are converted at once; unusual spellings (exponents, more
decimals, quoted numbers) go one by one through `decimal`.

>>> to_ns([b"6322354273271.390", b"12", b"1e3", b"0.0005", b"null"]).tolist()[:4]
[6322354273271390, 12000, 1000000, 0]
"""

from collections.abc import Sequence
from decimal import ROUND_HALF_EVEN, Context, Decimal, InvalidOperation
from typing import Final

import numpy as np
import numpy.typing as npt

UNREADABLE: Final = np.iinfo(np.int64).min
"""Stands for a number that is absent, not a number, or outside of ±146 years around 1970."""

_LIMIT = 1 << 62
_SEPARATOR, _DOT, _ZERO = 10, 46, 48
_MOST_DIGITS = 18
_DECIMAL = Context(prec=60, rounding=ROUND_HALF_EVEN)
_SHAPE_BASE = 64


def to_ns(tokens: Sequence[bytes]) -> npt.NDArray[np.int64]:
    """One integer per token; `UNREADABLE` where the token is no number in range."""
    if not tokens:
        return np.empty(0, np.int64)
    text = np.frombuffer(b"\n".join(tokens) + b"\n", np.uint8)
    ends = np.flatnonzero(text == _SEPARATOR)
    if ends.size != len(tokens):
        return np.array([_one(bytes(token)) for token in tokens], np.int64)
    starts = np.concatenate(([0], ends[:-1] + 1))
    result = np.full(ends.size, UNREADABLE, np.int64)
    shapes, plain = _shapes(text, starts, ends)
    for shape in np.unique(shapes[plain]).tolist():
        rows = np.flatnonzero(plain & (shapes == shape))
        result[rows] = _convert(text, starts[rows], shape // _SHAPE_BASE, shape % _SHAPE_BASE)
    for row in np.flatnonzero(~plain).tolist():
        result[row] = _one(bytes(tokens[row]))
    return result


def _shapes(
    text: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Digits before the dot and decimals of each token, as one number; and which tokens are only that."""
    odd = (text != _SEPARATOR) & ((text < _ZERO) | (text > _ZERO + 9))
    odd_at = np.flatnonzero(odd)
    owner = np.searchsorted(ends, odd_at)
    lengths = ends - starts
    decimals = np.zeros(ends.size, np.int64)
    dotted = np.zeros(ends.size, np.bool_)
    is_dot = text[odd_at] == _DOT
    dotted[owner[is_dot]] = True
    decimals[owner[is_dot]] = ends[owner[is_dot]] - odd_at[is_dot] - 1
    odd_count = np.bincount(owner, minlength=ends.size)
    whole = lengths - decimals - dotted
    plain = (odd_count == dotted) & (whole >= 1) & (decimals <= 3) & (whole + 3 <= _MOST_DIGITS)
    plain &= ~dotted | (decimals > 0)
    return whole * _SHAPE_BASE + decimals, plain


def _convert(
    text: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64], whole: int, decimals: int
) -> npt.NDArray[np.int64]:
    width = whole + decimals + (2 if decimals else 1)
    is_grid = bool(starts[-1] - starts[0] == width * (starts.size - 1))
    if is_grid:  # tokens of one shape behind each other: columns of a matrix, no gathering
        grid = text[starts[0] : starts[0] + width * starts.size].reshape(-1, width)
    value = np.zeros(starts.size, np.int64)
    for position in (*range(whole), *range(whole + 1, whole + 1 + decimals)):
        value *= 10
        value += grid[:, position] if is_grid else text[starts + position]
    ones = sum(10**place for place in range(whole + decimals))
    value -= _ZERO * ones
    return value * np.int64(10 ** (3 - decimals))


def _one(token: bytes) -> int:
    try:
        number = Decimal(token.decode("ascii").strip('"'))
    except (UnicodeDecodeError, InvalidOperation):
        return UNREADABLE
    if not number.is_finite() or number.adjusted() > _MOST_DIGITS:
        return UNREADABLE
    scaled = number.scaleb(3, _DECIMAL).to_integral_value(ROUND_HALF_EVEN, _DECIMAL)
    return int(scaled) if abs(scaled) < _LIMIT else UNREADABLE
