"""NCCL's communicators, as its logs describe them: their shape, how their ranks are connected, and what is wrong.

A connection is between ranks of one host or of two; hosts are known for ranks whose log was ingested.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from lostflops.core.units import pluralise

if TYPE_CHECKING:
    from lostflops.store.run import Run

_MOST_FAULTS: Final = 20
_FEWEST_MULTICAST: Final = 3
"""Ranks on a host from which NCCL uses NVLink SHARP."""

_SHAPES: Final = """
    with pairs as (
        select l.comm, if(s.host = r.host, 'inside', 'across') as place, l.transport
        from nccl_links l join nccl_comms s on l.comm = s.comm and l.sender = s.comm_rank
        join nccl_comms r on l.comm = r.comm and l.receiver = r.comm_rank
        group by all
    ), transports as (
        select comm, string_agg(transport, ', ' order by transport) filter (where place = 'inside') as inside,
               string_agg(transport, ', ' order by transport) filter (where place = 'across') as across
        from pairs group by comm
    ), comms as (
        select comm, size, if(count(*) = size, count(distinct host), null) as hosts, min(rank) as first_rank,
               max(rank) as last_rank, count(*) as logged, max(channels) as channels, max(rings) as rings,
               max(nvls_channels) as nvls_channels, string_agg(distinct version, ', ' order by version) as version,
               string_agg(distinct network, ', ' order by network) as network
        from nccl_comms group by comm, size
    )
    select count(*), size, hosts, min(first_rank), arg_min(last_rank, first_rank), sum(logged)::bigint, channels,
           rings, nvls_channels, inside, across, network, version
    from comms left join transports using (comm) group by all having size > 1
    order by size desc, 4"""

_PAIRS: Final = """
    with pairs as (
        select l.comm, l.transport, s.rank as sender, r.rank as receiver, s.host as sender_host,
               r.host as receiver_host, coalesce(s.adapters, '') as adapters, coalesce(s.settings, '') as settings
        from nccl_links l join nccl_comms s on l.comm = s.comm and l.sender = s.comm_rank
        join nccl_comms r on l.comm = r.comm and l.receiver = r.comm_rank
        group by all
    )"""
_INSIDE: Final = f"""{_PAIRS}
    select sender_host, transport, count(distinct (sender, receiver)), min(sender), arg_min(receiver, sender)
    from pairs where sender_host = receiver_host and transport not like 'P2P%' group by all order by 3 desc, 1, 2"""
_SOCKETS: Final = f"""{_PAIRS}
    select sender_host, any_value(adapters), count(distinct (sender, receiver)), min(sender), arg_min(receiver, sender),
           any_value(settings)
    from pairs where sender_host <> receiver_host and transport like 'NET/Socket%' and adapters <> ''
    group by sender_host order by 3 desc, 1"""
_PLAIN_IB: Final = f"""{_PAIRS}
    select sender_host, count(distinct (sender, receiver)), min(sender), arg_min(receiver, sender)
    from pairs where sender_host <> receiver_host and transport like 'NET/IB%' and transport not like '%GDRDMA%'
    and exists (select 1 from pairs where transport like 'NET/%GDRDMA%')
    group by sender_host order by 2 desc, 1"""
_HAS_P2P: Final = "select count(*) > 0 from nccl_links where transport like 'P2P%'"
_FEWER: Final = """
    with comms as (
        select comm, size, count(distinct host) as hosts, count(*) as logged, max(channels) as channels,
               min(rank) as first_rank, max(rank) as last_rank
        from nccl_comms group by comm, size having max(channels) is not null and count(*) = size and size > 1
    ), most as (select size, hosts, max(channels) as usual from comms group by size, hosts)
    select first_rank, last_rank, size, channels, usual from comms join most using (size, hosts)
    where channels < usual order by first_rank"""
_NO_MULTICAST: Final = f"""
    with comms as (
        select comm, size, min(rank) as first_rank, max(rank) as last_rank from nccl_comms
        group by comm, size
        having max(nvls_channels) = 0 and count(*) = size and count(*) >= {_FEWEST_MULTICAST} * count(distinct host)
    )
    select count(*), size, min(first_rank), arg_min(last_rank, first_rank) from comms group by size order by 3"""
_INCOMPLETE: Final = """
    select size, list(rank order by rank)[1:8], count(*) from nccl_comms where not is_complete
    group by comm, size order by 3 desc"""


@dataclass(frozen=True, slots=True)
class CommunicatorShape:
    """Communicators that are alike."""

    communicators: int
    size: int
    hosts: int | None
    """None if not all ranks' logs were ingested."""
    first_rank: int
    """Lowest and highest rank of the first communicator."""
    last_rank: int
    logged: int
    """Ranks whose log was ingested, over all communicators."""
    channels: int | None
    rings: int | None
    nvls_channels: int | None
    inside: str | None
    """Transports inside a host; None if no connection was logged."""
    across: str | None
    network: str | None
    version: str | None


@dataclass(frozen=True, slots=True)
class TransportFault:
    """A connection that is slower than the machine allows, or a communicator that is not whole."""

    what: str
    where: str
    fix: str


def communicator_shapes(run: Run) -> tuple[CommunicatorShape, ...]:
    return tuple(CommunicatorShape(*row) for row in run.rows(_SHAPES))


def transport_faults(run: Run, *, is_nvlink: bool, reduces: bool) -> tuple[TransportFault, ...]:
    """Return what is wrong with the transports; `is_nvlink` if devices reach their peers in the host over NVLink, and
    `reduces` if its switch can reduce (NVLink SHARP)."""
    found = [
        *_sockets(run),
        *_slow_inside(run, is_nvlink or bool(run.rows(_HAS_P2P)[0][0])),
        *_plain_adapters(run),
        *(_unused_multicast(run) if reduces else ()),
        *_fewer_channels(run),
        *_incomplete(run),
    ]
    return tuple(found[:_MOST_FAULTS])


def _sockets(run: Run) -> Iterator[TransportFault]:
    for host, adapters, pairs, sender, receiver, settings in run.rows(_SOCKETS):
        wrong = [
            word for word in settings.split() if word.startswith(("NCCL_NET=", "NCCL_IB_DISABLE=", "NCCL_IB_HCA="))
        ]
        fix = (
            f"remove {' '.join(wrong)} from the environment"
            if wrong
            else "check NCCL_NET, NCCL_IB_DISABLE and its plugin"
        )
        yield TransportFault(
            f"sockets instead of {adapters}", _where(host, pairs, sender, receiver), f"{fix}; test with ib_write_bw"
        )


def _slow_inside(run: Run, is_expected: bool) -> Iterator[TransportFault]:
    rows: list[tuple[Any, ...]] = run.rows(_INSIDE) if is_expected else []
    for host, transport, pairs, sender, receiver in rows:
        yield TransportFault(
            f"{transport} inside a host, where peer-to-peer is possible",
            _where(host, pairs, sender, receiver),
            "give every process all devices of the host and the same IPC namespace (--ipc=host), "
            "remove NCCL_P2P_DISABLE, check nvidia-smi topo -m",
        )


def _plain_adapters(run: Run) -> Iterator[TransportFault]:
    for host, pairs, sender, receiver in run.rows(_PLAIN_IB):
        yield TransportFault(
            "adapters without GPUDirect RDMA, which other connections use",
            _where(host, pairs, sender, receiver),
            "load nvidia_peermem (or use a driver with DMA-BUF), check NCCL_NET_GDR_LEVEL and PCIe ACS",
        )


def _unused_multicast(run: Run) -> Iterator[TransportFault]:
    for count, size, first, last in run.rows(_NO_MULTICAST):
        yield TransportFault(
            "no NVLink SHARP (NVLS), which the switch has",
            f"{pluralise(count, 'communicator')} of {size} ranks, e.g. {first} to {last}",
            "check that Fabric Manager runs, that the driver supports multicast, and NCCL_NVLS_ENABLE",
        )


def _fewer_channels(run: Run) -> Iterator[TransportFault]:
    for first, last, size, channels, usual in run.rows(_FEWER):
        yield TransportFault(
            f"{pluralise(channels, 'channel')}, where communicators of the same shape have {usual}",
            f"{size} ranks from {first} to {last}",
            "compare nvidia-smi topo -m of their hosts: links or adapters are missing",
        )


def _incomplete(run: Run) -> Iterator[TransportFault]:
    for size, ranks, count in run.rows(_INCOMPLETE):
        listed = ", ".join(map(str, ranks)) + (", ..." if count > len(ranks) else "")
        yield TransportFault(
            "a communicator that did not finish its start",
            f"{size} ranks; not finished on {listed}",
            "see which ranks never began, and whether hosts reach each other (NCCL_SOCKET_IFNAME)",
        )


def _where(host: str, pairs: int, sender: int, receiver: int) -> str:
    return f"{host}: {pluralise(pairs, 'pair')}, e.g. rank {sender} to {receiver}"
