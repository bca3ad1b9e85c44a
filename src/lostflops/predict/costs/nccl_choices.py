"""What NCCL chose for each collective, and what its model would choose.

The choices come from logs with `NCCL_DEBUG_SUBSYS=TUNING`. The model is that of `lostflops.predict.costs.nccl`: it
chooses an algorithm and a protocol, but no number of channels, and knows no PAT and no in-network reduction. It assumes
ranks that are spread evenly over hosts. The slowdown is the model's time of NCCL's choice relative to its own, so both
sides have the same errors.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from lostflops.account.facts.devices import find_device
from lostflops.core.errors import UnknownCost
from lostflops.predict.costs.nccl import Way, ways
from lostflops.predict.costs.times import OPS, CommGroup
from lostflops.predict.costs.topology import SLOWEST_NVLINK_GBS, Link, NetworkTopology

if TYPE_CHECKING:
    from lostflops.store.run import Run

_CHOICES: Final = """
    with comms as (
        select comm, size, count(distinct host) as hosts, count(*) = size as is_whole, max(channels) as available,
               max(nvls_channels) as multicast
        from nccl_comms group by comm, size
    ), calls as (
        select comm, op, bytes, algorithm, protocol, channels, max(count) as count from nccl_choices group by all
    )
    select op, bytes, size, if(is_whole, hosts, null) as hosts, algorithm, protocol, channels, max(available),
           sum(count)::bigint, coalesce(max(multicast) > 0, true)
    from calls left join comms using (comm) group by op, bytes, size, 4, algorithm, protocol, channels
    order by sum(count * bytes) desc, op, bytes, algorithm, protocol"""
_DEVICE: Final = """
    select any_value(device), count(distinct device),
           (select max(devices) from (select count(distinct bus) as devices from nccl_comms group by host)),
           (select coalesce(max(nvls_channels), 0) > 0 from nccl_comms)
    from ranks where device is not null"""
_UNKNOWN_DEVICE: Final = "the run does not say which devices it used: give --topology"
_UNKNOWN_GROUP: Final = (
    "the log does not show which communicator made the call, or not all of its ranks: log all ranks, with COLL in "
    "NCCL_DEBUG_SUBSYS"
)
_UNKNOWN_NETWORK: Final = "the rate of the network is not in the log: give --topology"


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedChoice:
    op: str | None
    size: int
    ranks: int | None
    hosts: int | None
    algorithm: str
    protocol: str
    channels: int | None
    available: int | None
    """Channels of the communicator."""
    calls: int
    has_multicast: bool
    """False if the communicator has no channels for NVLink SHARP: the model then does not choose it."""
    expected: Way | None = None
    """What the model would choose."""
    slowdown: float | None = None
    """Time of NCCL's choice relative to the model's, both by the model; None if the model does not know the choice."""
    reason: str = ""
    """Why it cannot be compared."""

    @property
    def is_other(self) -> bool:
        """Return whether NCCL chose otherwise."""
        own = self.expected
        return own is not None and (own.algorithm, own.protocol) != (self.algorithm, self.protocol)


def topology_of(run: Run) -> NetworkTopology | None:
    """Return the links inside a host, by the devices that the run recorded; the network between hosts is unknown."""
    name, kinds, devices, has_nvls = run.rows(_DEVICE)[0]
    known = find_device(name) if name is not None and kinds == 1 else None
    if known is None or known.scaleup_gbs is None:
        return None
    link: Link = "nvlink" if known.scaleup_gbs >= SLOWEST_NVLINK_GBS else "pci"
    return NetworkTopology(name, name, devices or 1, known.scaleup_gbs, 0, 0.0, link, "recorded devices", nvls=has_nvls)


def compare_choices(run: Run, topology: NetworkTopology | None) -> tuple[ComparedChoice, ...]:
    """Return every choice that was logged, those that moved most bytes first."""
    names = ("op", "size", "ranks", "hosts", "algorithm", "protocol", "channels", "available", "calls", "has_multicast")
    return tuple(_compare(ComparedChoice(**dict(zip(names, row, strict=True))), topology) for row in run.rows(_CHOICES))


def _compare(choice: ComparedChoice, topology: NetworkTopology | None) -> ComparedChoice:
    if topology is None:
        return replace(choice, reason=_UNKNOWN_DEVICE)
    if choice.op not in OPS:
        return replace(choice, reason=f"NCCL's model does not cover {choice.op or 'an operation without a name'}")
    if choice.ranks is None or choice.hosts is None:
        return replace(choice, reason=_UNKNOWN_GROUP)
    if choice.ranks == 1:
        return replace(choice, reason="a communicator of one rank sends nothing")
    if choice.hosts > 1 and not topology.nics_per_host:
        return replace(choice, reason=_UNKNOWN_NETWORK)
    try:
        candidates = ways(choice.op, CommGroup(choice.ranks, choice.hosts), topology)
    except UnknownCost as error:
        return replace(choice, reason=str(error))
    if not choice.has_multicast:
        candidates = tuple(way for way in candidates if way.algorithm not in {"nvls", "nvls_tree"})
    # NCCL calls the chain of a reduce a ring.
    candidates = tuple(replace(way, algorithm="ring") if way.algorithm == "chain" else way for way in candidates)
    best = min(candidates, key=lambda way: way.us(choice.size))
    chosen = [way for way in candidates if (way.algorithm, way.protocol) == (choice.algorithm, choice.protocol)]
    slowdown = chosen[0].us(choice.size) / best.us(choice.size) if chosen else None
    return replace(choice, expected=best, slowdown=slowdown)
