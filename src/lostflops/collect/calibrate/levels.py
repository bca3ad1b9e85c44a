"""Groups of ranks that are measured separately: inside a host, across hosts, neighbours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

COLLECTIVES: Final = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast")
OPS: Final = (*COLLECTIVES, "send_recv")
DEVICE: Final = "device"
"""Name of what is measured in addition to ops: the device alone."""


@dataclass(frozen=True, slots=True)
class Level:
    """Groups of one shape that are measured at the same time."""

    name: str
    groups: tuple[tuple[int, ...], ...]
    hosts: int
    """Number of hosts that each group spans."""

    @property
    def ranks(self) -> int:
        return len(self.groups[0])

    @property
    def ops(self) -> tuple[str, ...]:
        return ("send_recv",) if self.name == "ring" or self.name.startswith("pair.") else COLLECTIVES

    def members(self, rank: int) -> tuple[int, ...] | None:
        return next((group for group in self.groups if rank in group), None)


def by_host(places: Sequence[str]) -> list[tuple[int, ...]]:
    """Return the ranks of each host, hosts in the order of their first rank; `places` has each rank's host.

    >>> by_host(["a", "b", "a", "b"])
    [(0, 2), (1, 3)]
    """
    found: dict[str, list[int]] = {}
    for rank, place in enumerate(places):
        found.setdefault(place, []).append(rank)
    return [tuple(ranks) for ranks in found.values()]


def levels(hosts: Sequence[tuple[int, ...]]) -> list[Level]:
    """Return the levels that can be measured on these hosts; a level that is the same as another is there once.

    >>> [(level.name, level.groups) for level in levels([(0, 1), (2, 3)])][:3]
    [('world', ((0, 1, 2, 3),)), ('host', ((0, 1), (2, 3))), ('across', ((0, 2), (1, 3)))]
    >>> [level.name for level in levels([(0, 1, 2)])], [level.name for level in levels([(0,), (1,)])]
    (['host', 'ring', 'pair.host'], ['across', 'ring', 'pair.across'])
    """
    everyone = tuple(sorted(rank for ranks in hosts for rank in ranks))
    if len(everyone) < 2:
        return []
    crowded = [ranks for ranks in hosts if len(ranks) > 1]
    found = []
    if len(hosts) > 1 and crowded:
        found.append(Level("world", (everyone,), len(hosts)))
    if crowded:
        width = min(map(len, crowded))
        found.append(Level("host", tuple(ranks[:width] for ranks in crowded), 1))
    if len(hosts) > 1:
        rails = zip(*(ranks[: min(map(len, hosts))] for ranks in hosts), strict=True)
        found.append(Level("across", tuple(rails), len(hosts)))
    found.append(Level("ring", (everyone,), len(hosts)))
    if crowded:
        found.append(Level("pair.host", (crowded[0][:2],), 1))
    if len(hosts) > 1:
        found.append(Level("pair.across", ((hosts[0][0], hosts[1][0]),), 2))
    return found


def uneven(hosts: Sequence[tuple[int, ...]]) -> str | None:
    """Return what to say if hosts have different numbers of ranks; None if they have the same.

    >>> uneven([(0, 1), (2,)])
    'hosts have 1 to 2 ranks: host and across use only the first ranks of each host, and world is uneven'
    """
    counts = sorted(map(len, hosts))
    if counts[0] == counts[-1]:
        return None
    spread = f"hosts have {counts[0]} to {counts[-1]} ranks"
    return f"{spread}: host and across use only the first ranks of each host, and world is uneven"
