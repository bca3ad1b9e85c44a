"""How much memory a command may use, with DuckDB, arrays and workers, and the error if it needs more."""

from __future__ import annotations

import math
import os
from functools import cache
from typing import Final

from lostflops.core.errors import NotEnoughMemory, UsageError
from lostflops.core.resources import free_memory
from lostflops.core.units import format_bytes, parse_bytes

MEMORY: Final = "LOSTFLOPS_MEMORY"
"""Environment variable with the limit."""
_SHARE: Final = 0.8
"""Share of the free memory: a login node, or the host of a job, has other users."""
_DATABASE_SHARE: Final = 0.5
"""Share of the limit for DuckDB, which writes what it has no room for to disk. Arrays take the rest."""
_WORKER_BYTES: Final = 512 << 20
"""A worker that reads a trace takes 0.2 to 0.5 GB."""
_UNKNOWN: Final = 8 << 30
"""Assumed to be free if the system does not say."""
_LEAST: Final = 512 << 20
"""A small run needs 0.1 GB. If less is free, the kernel can often make room, and commands are tried."""


def limit_memory() -> int:
    """Return the bytes that this command and its workers may use together; they do not change while it runs."""
    return _limit(os.environ.get(MEMORY, ""))


def limit_database(most: int | None = None) -> str:
    """Return DuckDB's share of the limit, or `most` if that is less, as its setting `memory_limit`."""
    share = int(_DATABASE_SHARE * limit_memory())
    return f"{share if most is None else min(share, most)}B"


def limit_workers() -> int:
    """Return how many workers the limit allows, at least one."""
    return max(1, limit_memory() // _WORKER_BYTES)


def not_enough_memory() -> NotEnoughMemory:
    limit, free = limit_memory(), free_memory()
    why = f"set by {MEMORY}" if os.environ.get(MEMORY) else f"{_SHARE:.0%} of the memory that was free at its start"
    now = f"; {format_bytes(free)} are free now" if free is not None else ""
    return NotEnoughMemory(
        f"stopped, because this command needs more than its memory limit of {format_bytes(limit)} ({why}{now}). "
        f"Set a higher limit, such as {MEMORY}={math.ceil(2 * limit / 1e9)}GB, use one worker (LOSTFLOPS_WORKERS=1), "
        "or read fewer ranks or steps."
    )


@cache
def _limit(stated: str) -> int:
    if not stated:
        free = free_memory()
        return max(int(_SHARE * (_UNKNOWN if free is None else free)), _LEAST)
    try:
        limit = parse_bytes(f"{stated}B" if stated[-1] in "kMGT" else stated)
    except UsageError:
        limit = 0
    if limit <= 0:
        raise UsageError(f"{MEMORY}={stated!r} is not a size. Write a number and a unit without a space: {MEMORY}=8GB")
    return limit
