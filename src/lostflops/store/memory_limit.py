"""How much memory a command may use, with DuckDB, arrays and workers, and the error if it needs more."""

from __future__ import annotations

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


def limit_memory() -> int:
    """Return the bytes that this command and its workers may use together; they do not change while it runs."""
    return _limit(os.environ.get(MEMORY, ""))


def limit_database() -> str:
    """Return DuckDB's share of the limit, as its setting `memory_limit`."""
    return f"{int(_DATABASE_SHARE * limit_memory())}B"


def limit_workers() -> int:
    """Return how many workers the limit allows, at least one."""
    return max(1, limit_memory() // _WORKER_BYTES)


def not_enough_memory() -> NotEnoughMemory:
    limit = format_bytes(limit_memory())
    why = f"as {MEMORY} says" if os.environ.get(MEMORY) else f"{_SHARE:.0%} of what was free when it began"
    return NotEnoughMemory(
        f"stopped, because it needs more memory than its limit of {limit} ({why}). "
        "Ask about fewer steps or ranks, use fewer workers (LOSTFLOPS_WORKERS=1), "
        f"or set a higher limit, such as {MEMORY}=32GB."
    )


@cache
def _limit(stated: str) -> int:
    if not stated:
        free = free_memory()
        return int(_SHARE * (_UNKNOWN if free is None else free))
    try:
        return parse_bytes(stated)
    except UsageError as error:
        raise UsageError(f"{MEMORY}: {error}") from None
