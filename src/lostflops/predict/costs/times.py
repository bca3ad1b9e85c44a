"""Time of a collective: the question, the answer, and the interface of its sources.

Sizes follow NCCL: the tensor for all-reduce, broadcast, reduce and send/recv, the gathered tensor for all-gather, the
whole input for reduce-scatter and all-to-all, and the tensor of one rank for gather and scatter. Times are transfers,
from the last arrival on; they never include waits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, Protocol, get_args

Op = Literal[
    "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce", "gather", "scatter", "send_recv"
]
OPS: Final[tuple[Op, ...]] = get_args(Op)


@dataclass(frozen=True, slots=True, order=True)
class CommGroup:
    """A number of ranks, spread evenly over a number of hosts.

    >>> CommGroup(16, 2).per_host, CommGroup(8, 8).level, CommGroup(8, 1).level, CommGroup(16, 2).level
    (8, 'across', 'host', 'world')
    """

    ranks: int
    hosts: int = 1

    def __post_init__(self) -> None:
        assert 1 <= self.hosts <= self.ranks, f"{self.ranks} ranks on {self.hosts} hosts"

    @property
    def per_host(self) -> int:
        return -(-self.ranks // self.hosts)

    @property
    def level(self) -> str:
        """`host` inside one host, `across` with one rank on each of several, `world` with several on each of
        several."""
        if self.hosts == 1:
            return "host"
        return "across" if self.hosts == self.ranks else "world"


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveTime:
    """A time in ns with its interval, and what it is based on."""

    ns: float
    low: float
    high: float
    algorithm: str
    source: str
    reach: str = ""
    """Text on what was extrapolated; empty inside the measured range."""

    def __post_init__(self) -> None:
        assert 0 <= self.low <= self.ns <= self.high, f"{self.source}: {self.low}, {self.ns}, {self.high}"


class CommTimes(Protocol):
    def time(self, op: Op, size: int, group: CommGroup, algorithm: str | None = None) -> CollectiveTime:
        """Return the time of one collective of `size` bytes; raise `UnknownCost` if nothing is known to compute it
        from."""
        ...
