"""Decimal microseconds, as a trace writes them, to integer nanoseconds, exactly.

A binary float holds a Unix time in microseconds only to a quarter of a microsecond, so the
text of the number is read instead: digits to integers, half-even where there are more than
three decimals. Whole columns are converted at once, up to the 16 digits of Unix times; unusual
spellings (exponents, more decimals, quoted numbers) go one by one through `decimal`.

>>> to_ns([b"6322354273271.390", b"12", b"1e3", b"0.0005", b"null"]).tolist()[:4]
[6322354273271390, 12000, 1000000, 0]
"""

import re
from collections.abc import Sequence
from decimal import ROUND_HALF_EVEN, Context, Decimal
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt

UNREADABLE: Final = np.iinfo(np.int64).min
"""A number that is absent, not a number, or outside of ±146 years around 1970."""

_LIMIT = 1 << 62
_SEPARATOR, _DOT, _ZERO = 10, 46, 48
_MOST_DIGITS = 18
_MOST_WHOLE = 16
"""Digits before the dot that are converted at once: nanoseconds of 19 digits fit into 64 bits without a sign."""
_DECIMAL = Context(prec=900)
_SHAPE_BASE = 64
_NUMBER = re.compile(rb"-?[0-9]{1,400}(?:\.[0-9]{1,400})?(?:[eE][+-]?[0-9]{1,18})?")


def to_ns(tokens: Sequence[bytes]) -> npt.NDArray[np.int64]:
    """Return one integer per token; `UNREADABLE` if the token is not a number in range."""
    if not tokens:
        return np.empty(0, np.int64)
    text = np.frombuffer(b"\n".join(tokens) + b"\n", np.uint8)
    ends = np.flatnonzero(text == _SEPARATOR)
    if ends.size != len(tokens):
        return np.array([_one(bytes(token)) for token in tokens], np.int64)
    starts = np.concatenate(([0], ends[:-1] + 1))
    result = np.full(ends.size, UNREADABLE, np.int64)
    shapes = _shapes(text, starts, ends)
    order = np.argsort(shapes, kind="stable")
    edges = np.concatenate(([0], np.flatnonzero(np.diff(shapes[order])) + 1, [order.size]))
    for first, last in pairwise(edges.tolist()):
        rows = order[first:last]
        whole, decimals = divmod(int(shapes[rows[0]]), _SHAPE_BASE)
        if whole:
            result[rows] = _convert(text, starts[rows], whole, decimals)
        else:
            result[rows] = [_one(bytes(tokens[row])) for row in rows.tolist()]
    return result


def _shapes(
    text: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """Return digits before the dot and decimals of each token, as one number; 0 for any other kind of token."""
    odd_at = np.flatnonzero((text - np.uint8(_ZERO) > 9) & (text != _SEPARATOR))
    owner = np.searchsorted(ends, odd_at)
    is_dot = text[odd_at] == _DOT
    decimals = np.zeros(ends.size, np.int64)
    decimals[owner[is_dot]] = (ends[owner] - odd_at - 1)[is_dot]
    odd_count = np.bincount(owner, minlength=ends.size)
    whole = ends - starts - decimals - odd_count
    plain = (odd_count == (decimals > 0)) & (whole >= 1) & (decimals <= 3) & (whole <= _MOST_WHOLE)
    shapes: npt.NDArray[np.int64] = np.where(plain, whole * _SHAPE_BASE + decimals, 0)
    return shapes


def _convert(
    text: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64], whole: int, decimals: int
) -> npt.NDArray[np.int64]:
    places = np.array([*range(whole), *range(whole + 1, whole + 1 + decimals)])
    weights = np.uint64(10) ** np.arange(whole + 2, 2 - decimals, -1).astype(np.uint64)
    width = whole + decimals + (2 if decimals else 1)
    if starts[-1] - starts[0] == width * (starts.size - 1):  # one behind the other: a matrix as it stands
        digits = text[starts[0] : starts[0] + width * starts.size].reshape(-1, width)[:, places]
    else:
        digits = text[starts[:, None] + places]
    values = (digits - np.uint8(_ZERO)).astype(np.uint64) @ weights
    return np.where(values < _LIMIT, values.view(np.int64), UNREADABLE)


def _one(token: bytes) -> int:
    text = token.removeprefix(b'"').removesuffix(b'"')
    if not _NUMBER.fullmatch(text):
        return UNREADABLE
    number = Decimal(text.decode())
    if number.adjusted() > _MOST_DIGITS:
        return UNREADABLE
    scaled = number.scaleb(3, _DECIMAL).to_integral_value(ROUND_HALF_EVEN)
    return int(scaled) if abs(scaled) < _LIMIT else UNREADABLE
