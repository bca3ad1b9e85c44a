"""Values of changes as users write them."""

from __future__ import annotations

from typing import Final

from lostflops.core.errors import UsageError

_MOST: Final = 1_000_000


def number(text: str, what: str) -> float:
    """Parse a positive number.

    >>> number("25", "bucket_mb")
    25.0
    """
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not 0 < value < float("inf"):
        raise UsageError(f"{what}={text}: give a positive number")
    return value


def count(text: str, what: str) -> int:
    """Parse a positive whole number.

    >>> count("4", "accumulate")
    4
    """
    value = number(text, what)
    if value != int(value) or value > _MOST:
        raise UsageError(f"{what}={text}: give a whole number" + (f" up to {_MOST:,}" if value > _MOST else ""))
    return int(value)


def times(text: str, what: str) -> float:
    """Parse a factor, written `2x` or `0.5x`.

    >>> times("2x", "network.bandwidth")
    2.0
    """
    if not text.endswith("x"):
        raise UsageError(f"{what}={text}: give a factor such as 2x or 0.5x")
    factor = number(text[:-1], what)
    if not 1 / _MOST <= factor <= _MOST:
        raise UsageError(f"{what}={text}: give a factor from {1 / _MOST:g}x to {_MOST:,}x")
    return factor


def one_of(text: str, choices: tuple[str, ...], what: str) -> str:
    """Return the text if it is one of the choices.

    >>> one_of("removed", ("removed",), "straggler")
    'removed'
    """
    if text not in choices:
        raise UsageError(f"{what}={text}: give {' or '.join(choices)}")
    return text
