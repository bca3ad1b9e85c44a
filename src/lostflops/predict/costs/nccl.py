"""NCCL's own model of its collectives, for a topology: the algorithm and protocol it chooses, and their times.

A way takes base + hops x latency + bytes / bandwidth. Constants and rules are those of NCCL's tuner:
src/graph/tuning.cc of NVIDIA/nccl, latencies of version 2.30, caps and corrections of 2.28, whose src/graph/topo.h has
the rates of links. Not modelled, because they follow from a search over the machine's buses that a description cannot
repeat: caps per channel, NVLink that is not all-to-all, PCIe switches and sockets, in-network reduction (SHARP), PAT
and latencies that a network plugin declares.

all-to-all and send/recv are not in NCCL's model; here they are sends over the same links.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Literal

from lostflops.core.errors import UnknownCost
from lostflops.predict.costs.times import CollectiveTime, CommGroup, Op
from lostflops.predict.costs.topology import NetworkTopology

Algorithm = Literal["ring", "tree", "nvls", "nvls_tree", "sends", "chain", "linear"]
Protocol = Literal["LL", "LL128", "Simple"]


@dataclass(frozen=True, slots=True)
class Latency:
    """Latencies in us: to begin, and of a hop over each kind of link."""

    base: float
    nvlink: float
    pci: float
    net: float


_LATENCIES: Final[dict[tuple[str, str], Latency]] = {
    ("tree", "LL"): Latency(6.8, 0.6, 1.0, 5.0),
    ("tree", "LL128"): Latency(14.0, 1.25, 1.9, 8.5),
    ("tree", "Simple"): Latency(8.4, 4.0, 4.0, 14.0),
    ("ring", "LL"): Latency(6.6, 0.6, 1.0, 2.7),
    ("ring", "LL128"): Latency(14.0, 1.9, 2.5, 4.0),
    ("ring", "Simple"): Latency(8.4, 3.4, 5.7, 14.0),
}
_NVLS_US: Final = 25.0
_NVLS_TREE_NET_US: Final = 20.9

_GENERATIONS: Final = (
    ("P100", "P4", "V100", "T4", "QUADRO RTX"),
    ("A100", "A800", "A10", "A30", "A40", "RTX 3", "RTX A", "RTX 4", "L4"),
    ("H100", "H200", "H800", "H20"),
    ("B200", "B300"),
)
"""Parts of the names of devices that share NCCL's constants: up to Turing, Ampere and Ada, Hopper, Blackwell."""
_NVLINK_RATE: Final = (20 / 25, 20 / 25, 20.6 / 25, 40.1 / 50)
"""Part of a link's datasheet rate that NCCL counts on, by generation."""
_PCI_RATE: Final = 12 / 15.75
_NIC_RATE: Final = 12 / 12.5
"""Part of an adapter's rate that NCCL counts on: its search tries 12, 24 and 48 GB/s for adapters of 100, 200 and 400
Gb/s."""
_LL_CAPS: Final = (39.0, 87.7, 141.0, 282.0)
"""Largest bandwidth of protocol LL in one host, in GB/s, by generation."""
_LL_NET_CAPS: Final = {"intel": (39.0, 20.4), "amd": (22.5, 19.0)}
"""Largest bandwidth of protocol LL in GB/s, by CPU: on two hosts, and on more."""
_NVLS_RATE: Final = (0.0, 0.0, 0.85, 0.74)
_PLATEAU: Final = (1.9, 1.4, 1.4, 1.4)
"""Factor on the latency of a ring's all-reduce across hosts with protocol Simple, by generation."""
_NET_OVERHEAD_US: Final = {"intel": 1.0, "amd": 2.0}

_TREE_CORRECTIONS: Final = {
    "LL": (10, 10, 10, 10, 9, 8, 7, 7, 7, 7, 6, 5, 4, 4, 5, 6, 7, 8, 9, 10, 10, 10, 10),
    "LL128": (10, 10, 10, 10, 10, 9, 8, 8, 8, 7, 6, 6, 6, 6, 6, 6, 8, 9, 9, 9, 9, 10, 10),
    "Simple": (9, 9, 9, 9, 9, 9, 9, 8, 7, 6, 6, 5, 5, 5, 5, 6, 7, 8, 7, 7, 8, 9, 9),
}
"""Tenths of a tree's bandwidth, by protocol and by powers of two of the size from 64 B on."""

FASTEST: Final = 0.8
SLOWEST: Final = 1.2
LAUNCH_US: Final = 100.0
"""Recorded times of 8x A100 are between the model and `SLOWEST` times the model plus `LAUNCH_US`; the model was made to
choose, and leaves out what all choices share. `FASTEST` leaves room below."""
SLOWEST_UNCOMPARED: Final = 1.5
"""As `SLOWEST`, where no recorded benchmark was available: across hosts, trees and NVLS. A judgement, not a
measurement."""


@dataclass(frozen=True, slots=True)
class Way:
    """One way in which NCCL could run a collective."""

    algorithm: Algorithm
    protocol: Protocol
    latency: float
    """In us."""
    gbs: float
    """Bandwidth in GB/s, relative to the size of the collective."""

    def us(self, size: int) -> float:
        return self.latency + size / (1000 * self._rate(size))

    def _rate(self, size: int) -> float:
        power = int(math.log2(size / 64)) if size >= 64 else -1
        corrections = _TREE_CORRECTIONS[self.protocol]
        if self.algorithm != "tree" or not 0 <= power < len(corrections):
            return self.gbs
        return self.gbs * corrections[power] / 10


@dataclass(frozen=True, slots=True)
class _Fabric:
    """Bandwidths and latencies that the links of a topology give a group."""

    group: CommGroup
    topology: NetworkTopology
    generation: int

    @property
    def scaleup(self) -> float:
        rate = _NVLINK_RATE[self.generation] if self.topology.link == "nvlink" else _PCI_RATE
        return self.topology.scaleup_gbs * rate

    @property
    def net(self) -> float:
        """Network bandwidth in GB/s. A group on a part of a host's devices has that part of its adapters: others use
        the rest."""
        part = self.group.per_host / self.topology.gpus_per_host
        return self.topology.nics_per_host * self.topology.nic_gbs * _NIC_RATE * part

    @property
    def ring(self) -> float:
        return self.scaleup if self.group.hosts == 1 else min(self.scaleup, self.net)

    @property
    def tree(self) -> float:
        """Bandwidth of a tree in GB/s. Between two hosts each tree goes one way up and the other down, and both share
        the adapters."""
        if self.group.hosts == 1:
            return self.scaleup
        return min(self.scaleup, self.net * (2 if self.group.hosts == 2 else 1))

    @property
    def ll_cap(self) -> float:
        if self.group.hosts == 1:
            return _LL_CAPS[self.generation]
        return _LL_NET_CAPS[self.topology.cpu or "intel"][min(self.group.hosts - 2, 1)]

    def hop(self, latency: Latency) -> float:
        return latency.nvlink if self.topology.link == "nvlink" else latency.pci

    def net_hop(self, algorithm: str, protocol: str) -> float:
        """Return the latency of a hop over the network, in us. With one device per host nothing hides the network: the
        tree's latency holds for all."""
        return _LATENCIES["tree" if self.group.per_host == 1 else algorithm, protocol].net


_ROOTED: Final = ("gather", "scatter")
_SENDS: Final = (*_ROOTED, "all_to_all", "send_recv")
"""Operations that NCCL makes of sends; a gather or a scatter sends a whole tensor between the root and each rank."""
_CHAINS: Final = ("broadcast", "reduce")


def ways(op: Op, group: CommGroup, topology: NetworkTopology) -> tuple[Way, ...]:
    """Return all ways that NCCL considers for a group.

    >>> from lostflops.predict.costs.topology import read_topology
    >>> [(way.protocol, round(way.latency, 1)) for way in ways("all_gather", CommGroup(8), read_topology("dgx-a100"))]
    [('LL', 10.8), ('LL128', 27.3), ('Simple', 32.2)]
    """
    fabric = _fabric(group, topology)
    if op in _SENDS:
        return (_sends(op, fabric),)
    found = [_ring(op, fabric, protocol) for protocol in _protocols(fabric)]
    if op == "all_reduce":
        found += [_tree(fabric, protocol) for protocol in _protocols(fabric)]
    return (*found, *_multicast(op, fabric))


def nccl_times(op: Op, size: int, group: CommGroup, topology: NetworkTopology) -> tuple[CollectiveTime, ...]:
    """Return the time of each algorithm with its best protocol, the fastest first."""
    if group.ranks == 1:
        return (CollectiveTime(ns=0.0, low=0.0, high=0.0, algorithm="none", source="one rank sends nothing"),)
    best: dict[str, Way] = {}
    for way in ways(op, group, topology):
        known = best.get(way.algorithm)
        if known is None or way.us(size) < known.us(size):
            best[way.algorithm] = way
    found = [_time(op, size, way, group, topology) for way in best.values()]
    return tuple(sorted(found, key=lambda time: time.ns))


def slowest_expected(rows: Sequence[Mapping[str, Any]], topology: NetworkTopology) -> dict[tuple[str, str], float]:
    """Return the longest time in ns that the model expects of measured collectives, by operation and level; those that
    it does not cover are left out."""
    found = {}
    for row in rows:
        with suppress(UnknownCost):
            times = nccl_times(row["op"], row["bytes"], CommGroup(row["ranks"], row["hosts"]), topology)
            found[row["op"], row["level"]] = times[0].high
    return found


def crossovers(
    op: Op, group: CommGroup, topology: NetworkTopology, sizes: tuple[int, ...]
) -> tuple[tuple[int, Way], ...]:
    """Return from which size on which way wins, among the sizes asked for."""
    found: list[tuple[int, Way]] = []
    candidates = ways(op, group, topology)
    for size in sizes:
        way = min(candidates, key=lambda way: way.us(size))
        if not found or found[-1][1] != way:
            found.append((size, way))
    return tuple(found)


def _fabric(group: CommGroup, topology: NetworkTopology) -> _Fabric:
    if group.per_host > topology.gpus_per_host:
        raise UnknownCost(
            f"{group.per_host} ranks of a group do not fit a host of {topology.gpus_per_host} devices "
            f"({topology.name}): spread the group over more hosts, or describe larger hosts"
        )
    if group.hosts > 1 and not topology.nics_per_host:
        raise UnknownCost(
            f"{topology.name} does not describe its network: add nics_per_host and nic_gbs, or calibrate on two hosts"
        )
    if topology.device is None:
        raise UnknownCost(
            f"NCCL's constants depend on the device, and {topology.name} does not name its device: add it, or run "
            "lostflops calibrate there"
        )
    device = topology.device.upper()
    known = [number for number, names in enumerate(_GENERATIONS) if any(name in device for name in names)]
    known = [0] if "QUADRO" in device else known  # Quadro RTX is Turing, also where its number begins like Ada's
    if not known:
        raise UnknownCost(f"NCCL's model has no constants for {topology.device}: run lostflops calibrate there")
    return _Fabric(group, topology, max(known))


def _protocols(fabric: _Fabric) -> Iterator[Protocol]:
    yield "LL"
    if fabric.topology.link == "nvlink":
        yield "LL128"
    yield "Simple"


def _ring(op: Op, fabric: _Fabric, protocol: Protocol) -> Way:
    ranks, hosts = fabric.group.ranks, fabric.group.hosts
    bus = fabric.ring
    if protocol == "LL":
        bus = min(fabric.ll_cap, bus * 0.5)
    elif protocol == "LL128":
        bus *= 0.92
    latency = _LATENCIES["ring", protocol]
    if op in _CHAINS:
        chunk = _LATENCIES["tree" if protocol == "Simple" else "ring", protocol]
        hops = fabric.hop(latency) if hosts == 1 else ranks * chunk.net
        return Way("chain" if op == "reduce" else "ring", protocol, latency.base + hops, bus)
    rounds = 2 if op == "all_reduce" else 1
    steps, across = rounds * (ranks - 1), rounds * (hosts - 1)
    hop = fabric.hop(latency)
    if hosts > 1:
        overhead = _NET_OVERHEAD_US[fabric.topology.cpu or "intel"] * (3 if protocol == "Simple" else 1)
        hop = max(hop, overhead)
    total = latency.base + (steps - across) * hop + across * fabric.net_hop("ring", protocol)
    if hosts > 1 and protocol == "Simple" and op == "all_reduce":
        total *= _PLATEAU[fabric.generation]
    return Way("ring", protocol, total, bus * ranks / steps)


def _tree(fabric: _Fabric, protocol: Protocol) -> Way:
    bus = fabric.tree * 0.92
    if protocol == "LL":
        bus = min(bus / 3.8, fabric.ll_cap)
    elif protocol == "LL128":
        bus *= 7 / 9 if fabric.group.hosts == 1 else 120 / 128
    latency = _LATENCIES["tree", protocol]
    chain = (fabric.group.per_host - 1) * fabric.hop(latency)
    up = chain + int(math.log2(fabric.group.hosts)) * latency.net
    return Way("tree", protocol, latency.base + 2 * up, bus / 2)


def _multicast(op: Op, fabric: _Fabric) -> Iterator[Way]:
    """Yield ways over NVLink SHARP: inside a host for all but broadcast and reduce, across hosts for all-reduce."""
    group, heads = fabric.group, fabric.topology.gpus_per_host
    if not fabric.topology.nvls or op in _CHAINS or heads < 2 or not _NVLS_RATE[fabric.generation]:
        return
    each = math.floor(fabric.scaleup / heads / 10) * 10 or fabric.scaleup / heads
    intra = each * heads * _NVLS_RATE[fabric.generation] * (heads - 1) / heads
    if op != "all_reduce":
        if group.hosts == 1:
            yield Way("nvls", "Simple", _NVLS_US, intra * (group.ranks - 1) / group.ranks)
        return
    to_size = group.ranks / (2 * (group.ranks - 1))
    if group.hosts == 1:
        yield Way("nvls", "Simple", _NVLS_US, 2 * intra * to_size)
    elif group.per_host > 1:
        bus = min(2 * intra, fabric.net * (2 if group.hosts == 2 else 1))
        latency = _NVLS_US + 2 * int(math.log2(group.hosts)) * _NVLS_TREE_NET_US
        yield Way("nvls_tree", "Simple", latency, bus * to_size)


def _sends(op: Op, fabric: _Fabric) -> Way:
    """Return sends one after the other as a way; bytes in the host and across hosts flow at the same time."""
    group, latency = fabric.group, _LATENCIES["ring", "Simple"]
    across_each = fabric.net / group.per_host
    if op == "send_recv":
        hop, rate = (fabric.hop(latency), fabric.scaleup) if group.hosts == 1 else (latency.net, across_each)
        return Way("sends", "Simple", latency.base + hop, min(rate, fabric.scaleup))
    inside, across = group.per_host - 1, group.ranks - group.per_host
    hops = inside * fabric.hop(latency) + across * latency.net
    each = 1 / group.ranks if op == "all_to_all" else 1.0
    seconds = max(each * inside / fabric.scaleup, each * across / across_each if across else 0.0)
    return Way("linear" if op in _ROOTED else "sends", "Simple", latency.base + hops, 1 / seconds)


def _time(op: Op, size: int, way: Way, group: CommGroup, topology: NetworkTopology) -> CollectiveTime:
    """Return the time with the interval that the model's error on recorded benchmarks requires:
    docs/explanation/calibration.md."""
    us = way.us(size)
    least = us
    if op in (*_ROOTED, "all_to_all"):
        one = _sends("send_recv", _fabric(CommGroup(2, min(group.hosts, 2)), topology))
        least = min(us, one.latency + size / (1000 * way.gbs))
    compared = group.hosts == 1 and way.algorithm in {"ring", "sends"}
    high = us * (SLOWEST if compared else SLOWEST_UNCOMPARED) + LAUNCH_US
    said = "sends, which NCCL does not model" if op in _SENDS else f"protocol {way.protocol}"
    cpu = ", with an Intel CPU as NCCL assumes" if topology.cpu is None and group.hosts > 1 else ""
    source = f"NCCL's model for {topology.name} ({said}{cpu}), not measured"
    return CollectiveTime(
        ns=1000 * us, low=1000 * FASTEST * least, high=1000 * high, algorithm=way.algorithm, source=source
    )
