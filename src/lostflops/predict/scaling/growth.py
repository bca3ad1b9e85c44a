"""Process groups that grow with the job, and their new sizes.

Replicas of the model are added or removed; one replica stays as it is. So the data-parallel dimension grows (of a
sharded and replicated one, the replicas), and with it every group that spans it. Ranks keep their numbering, and hosts
their number of ranks.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from lostflops.account.align.mesh import Mesh, recognise
from lostflops.account.facts.groups import members
from lostflops.core.errors import UnknownCost, UsageError
from lostflops.core.limits import LARGEST_WORLD
from lostflops.predict.costs.times import CommGroup

if TYPE_CHECKING:
    from lostflops.store.run import Run

GROWING: Final = ("dp_replicate", "dp")
"""Dimensions that can grow; the first one that a mesh has does."""


@dataclass(frozen=True, slots=True)
class MeshLayout:
    """How the ranks of a run are arranged."""

    mesh: Mesh
    hosts: Mapping[int, int] | None
    """Host of each rank; None if each host has `per_host` ranks in order."""
    per_host: int
    """Ranks on each host in a job of another size."""
    replica: int
    """Number of ranks that make up one replica."""

    @property
    def world(self) -> int:
        return len(self.mesh.ranks)

    @property
    def kind(self) -> str:
        """Dimension that grows."""
        return next(kind for kind in GROWING if kind in dict(self.mesh.dimensions))

    def spans(self, group: str) -> tuple[str, ...]:
        """Return the dimensions of a group; a single empty name if it is not a slice of the mesh."""
        return tuple((self.mesh.dimension_of(members(group)) or "").split("+"))

    def recorded_group(self, group: str) -> CommGroup:
        own = members(group)
        hosts = {rank // self.per_host if self.hosts is None else self.hosts[rank] for rank in own}
        return CommGroup(len(own), len(hosts))

    def at(self, group: str, ranks: int) -> CommGroup:
        """Return the group as it is in a job of this many ranks."""
        if ranks == self.world:
            return self.recorded_group(group)
        spanned, place, step = self.spans(group), np.zeros(1, np.int64), 1
        for kind, size in self.mesh.dimensions:
            own = ranks // self.replica if kind == self.kind else size
            if kind in spanned:
                place = (place[:, None] + step * np.arange(own)).ravel()
            step *= own
        return CommGroup(place.size, np.unique(place // self.per_host).size)

    def check(self, ranks: int) -> None:
        if ranks > LARGEST_WORLD:
            raise UsageError(f"{ranks:,} ranks are more than the {LARGEST_WORLD:,} that Lostflops accepts.")
        if ranks < self.replica or ranks % self.replica:
            fixed = ", ".join(f"{kind}={size}" for kind, size in self.mesh.dimensions if kind != self.kind)
            raise UsageError(
                f"{ranks:,} ranks are not a whole number of replicas: each has {self.replica:,} ranks ({fixed}). Give "
                "a multiple of that."
            )


class Growing:
    """Groups of a layout that grow, and the link that their calls share: the network, or the links inside a host."""

    def __init__(self, arranged: MeshLayout) -> None:
        self.layout = arranged
        self._known: dict[str, CommGroup | None] = {}

    def __call__(self, group: str) -> bool:
        return self.recorded_group(group) is not None

    def recorded_group(self, group: str) -> CommGroup | None:
        """Return the group as it was recorded; None if it does not grow."""
        if group not in self._known:
            spans = self.layout.kind in self.layout.spans(group)
            self._known[group] = self.layout.recorded_group(group) if spans else None
        return self._known[group]

    def link(self, group: str) -> str | None:
        own = self.recorded_group(group)
        return None if own is None else "host" if own.hosts == 1 else "network"


def layout(run: Run, given: Mapping[str, int] | None = None, per_host: int | None = None) -> MeshLayout:
    """Return the arrangement of a run; `given` is its mesh if the user states it. `per_host` is the number of ranks on
    each host in jobs of another size, and in the run too if that does not name its hosts."""
    mesh = recognise(run, given)
    world, sizes = len(mesh.ranks), dict(mesh.dimensions)
    if not any(kind in sizes for kind in GROWING):
        arranged = ", ".join(f"{kind}={size}" for kind, size in mesh.dimensions) or "one rank"
        raise UnknownCost(
            f"the run has no data-parallel group ({arranged}), so the communication of more replicas is unknown: "
            "record two replicas, or give the mesh with --mesh"
        )
    if "pp" in sizes:
        raise UnknownCost(
            f"the run is a pipeline of {sizes['pp']} stages that wait for each other; how these waits change with more "
            "replicas cannot be predicted from single ranks. lostflops pipeline shows where its time goes."
        )
    if mesh.experts:
        arranged = ", ".join(f"{kind}={size}" for kind, size in mesh.experts)
        raise UnknownCost(
            f"expert layers arrange the ranks in another way ({arranged}) than the other layers: how their groups grow "
            "with more replicas is not modelled"
        )
    hosts = _hosts(run, mesh.ranks, per_host)
    replica = math.prod(sizes.values()) // sizes[next(kind for kind in GROWING if kind in sizes)]
    assert replica * (world // replica) == world, f"{mesh.dimensions} do not tile {world} ranks"
    return MeshLayout(mesh, hosts, per_host or max(Counter((hosts or {}).values()).values()), replica)


def _hosts(run: Run, ranks: Sequence[int], per_host: int | None) -> dict[int, int] | None:
    known: dict[int, str | None] = dict(run.rows("select rank, host from ranks"))
    if any(known.get(rank) is None for rank in ranks):
        if per_host is None:
            raise UnknownCost("the hosts of some ranks were not recorded: give --ranks-per-host")
        return None
    numbers = {host: number for number, host in enumerate(dict.fromkeys(known.values()))}
    return {rank: numbers[known[rank]] for rank in ranks}
