"""Limits of a live page: on questions that a user writes, and on connections."""

from __future__ import annotations

from dataclasses import dataclass

from lostflops.core.units import format_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeLimits:
    """Each limit with its reason; tests use smaller ones."""

    sql_seconds: float = 30.0
    """A page is for quick answers; `lostflops sql` has no limit."""
    sql_bytes: int = 1_000_000_000
    """Memory of a process that runs SQL, with Python and DuckDB: a login node is shared."""
    sql_processes: int = 2
    """A long query does not make a short query wait."""
    whatif_seconds: float = 900.0
    """The first what-if about a large run builds its task graph."""
    whatif_bytes: int = 4_000_000_000
    """A graph of 3 million events takes about 1 GB, and some changes repeat it."""
    request_seconds: float = 10.0
    """A request of a page is a few kB and arrives at once; a slower client only keeps a connection."""
    idle_seconds: int = 5
    """A page asks in bursts, and opening another connection to this machine takes less than 1 ms."""
    stall_seconds: float = 10.0
    """A reader that takes less than a piece of an answer (64 kB) in this time is gone or hostile."""
    connections: int = 256
    """A browser opens 6. Each connection may keep an answer of some MB in memory."""

    @classmethod
    def within(cls, memory: int) -> ServeLimits:
        """Return the limits of a server that may use this much memory: a quarter is left for itself.

        >>> ServeLimits.within(16_000_000_000) == ServeLimits(), ServeLimits.within(1_600_000_000).sql_bytes
        (True, 200000000)
        """
        usual = cls()
        return cls(sql_bytes=min(usual.sql_bytes, memory // 8), whatif_bytes=min(usual.whatif_bytes, memory // 2))


def explain_memory_limit(most: int) -> str:
    """Return why a question with this memory limit was stopped, and what to do."""
    return (
        f"the question was stopped because it needs more than {format_bytes(most)} of memory. "
        "Ask for less, or ask it with lostflops sql or lostflops whatif, which may use more"
    )
