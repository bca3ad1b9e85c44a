"""Traffic of each host's interfaces beside that of the job's own TCP connections, while the job ran.

Counters are compared over the time that all ranks of a host recorded, and are interpolated at its edges. Interfaces
count headers, connections do not: on Ethernet without jumbo frames headers are about 5% of large messages.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from lostflops.core.results import Field, Table, Value

if TYPE_CHECKING:
    from lostflops.store.run import Run

_LOOPBACK: Final = "lo"
_SHORTEST: Final = 100_000_000
"""Two readings that are less than this apart say nothing about the busiest time."""
_MOST_SHOWN: Final = 12
_ROWS: Final = """
    with newest as (select * from network where attempt = (select max(attempt) from network){where})
    select coalesce(a.host, ''), n.rank, n.rank - coalesce(a.local_rank, 0), n.scope, n.interface, n.time,
        n.received, n.sent, n.resent
    from newest n left join attempts a on a.rank = n.rank and a.attempt = n.attempt
    order by 1, n.rank, n.time"""

Readings = npt.NDArray[np.int64]
"""Time, bytes received, sent, and sent again, by row in order of time."""
Source = tuple[int, str, str | None]
"""Rank, scope and interface of readings."""


def table(run: Run, ranks: Sequence[int] = ()) -> Table:
    """Return interfaces with traffic, host by host; no rows if fewer than two readings were recorded."""
    where = f" and rank in ({', '.join(map(str, ranks))})" if ranks else ""
    hosts: dict[str, dict[Source, list[tuple[int, ...]]]] = defaultdict(lambda: defaultdict(list))
    firsts: dict[int, int] = {}
    for host, rank, first, scope, interface, time, received, sent, resent in run.rows(_ROWS.format(where=where)):
        firsts[rank] = first
        hosts[host][rank, scope, interface].append((time, received, sent, resent or 0))
    rows = [
        row
        for name, found in hosts.items()
        for host, own in _split_by_host(
            name, {key: np.array(values, np.int64) for key, values in found.items() if len(values) > 1}, firsts
        )
        for row in _rows(host, own)
    ]
    fields = (
        Field("host"),
        Field("interface"),
        Field("span_ns", "ns", shown=False),
        Field("received_gbs", "gbs", "received GB/s"),
        Field("sent_gbs", "gbs", "sent"),
        Field("busiest_gbs", "gbs", "busiest"),
        Field("job_sent_gbs", "gbs", "sent by the job"),
        Field("resent_share", "share", "resent"),
        Field("job_ranks", "count", shown=False),
    )
    title = "Network of each host while the job ran, with the job's own TCP traffic"
    return Table("network", title, fields, tuple(rows), most_shown=_MOST_SHOWN)


def _split_by_host(
    name: str, found: dict[Source, Readings], firsts: dict[int, int]
) -> list[tuple[str, dict[Source, Readings]]]:
    """Return the readings of each host of one name, such as containers that are all called `localhost`. Readers whose
    counters do not fit each other are on different hosts; `firsts` has the rank that is local rank 0 beside each."""
    by_reader: dict[int, dict[str | None, Readings]] = defaultdict(dict)
    for (rank, scope, interface), values in found.items():
        if scope == "host":
            by_reader[rank][interface] = values
    readers: list[int] = []
    same: dict[int, int] = {}
    for rank, own in by_reader.items():
        same[rank] = next((one for one in readers if _is_same_host(by_reader[one], own)), rank)
        readers += [rank] if same[rank] == rank else []
    if len(readers) < 2:
        return [(name, found)]
    return [
        (
            f"{name} (rank {reader})",
            {key: values for key, values in found.items() if same.get(firsts[key[0]]) == reader},
        )
        for reader in readers
    ]


def _is_same_host(one: dict[str | None, Readings], other: dict[str | None, Readings]) -> bool:
    """Return whether two readers saw the same interfaces: in order of time, the counters of both never fall."""
    if one.keys() != other.keys():
        return False
    both = [np.concatenate((values, other[interface])) for interface, values in one.items()]
    return all((np.diff(values[np.argsort(values[:, 0], kind="stable"), 1:], axis=0) >= 0).all() for values in both)


def _rows(host: str, found: dict[Source, Readings]) -> list[tuple[Value, ...]]:
    """Return the rows of a host. Only the interfaces that its first rank read count: they are the same for all."""
    readers = [rank for rank, scope, _ in found if scope == "host"]
    if not readers:
        return []
    interfaces = {
        name: values for (rank, scope, name), values in found.items() if (rank, scope) == (readers[0], "host")
    }
    others = [name for name, values in interfaces.items() if name != _LOOPBACK and np.ptp(values[:, 1:], axis=0).any()]
    rows = []
    for name, counters in interfaces.items():
        if (np.diff(counters[:, 1:], axis=0) < 0).any():
            continue  # the interface was made again, and its counters began at 0
        own = [
            values
            for (_, scope, place), values in found.items()
            if scope == "process" and (place == _LOOPBACK) == (name == _LOOPBACK)
        ]
        # Connections do not say which of several interfaces they use.
        is_known = bool(own) and (name == _LOOPBACK or len(others) == 1)
        start = max(int(values[0, 0]) for values in (counters, *own))
        stop = min(int(values[-1, 0]) for values in (counters, *own))
        received, sent, _ = _between(counters, start, stop)
        if stop <= start or not (received or sent):
            continue
        job = np.sum([_between(values, start, stop) for values in own], axis=0) if is_known else None
        span = stop - start
        row: tuple[Any, ...] = (host or None, name, span, received / span, sent / span, _busiest(counters))
        share = None if job is None or not job[1] else float(job[2] / job[1])
        rows.append((*row, None if job is None else float(job[1] / span), share, len(own) if is_known else None))
    return rows


def _between(values: Readings, start: int, stop: int) -> tuple[float, float, float]:
    """Return how much each counter grew between two times."""
    first = int(values[0, 0])
    at = [float(start - first), float(stop - first)]
    grown = [
        np.interp(at, (values[:, 0] - first).astype(float), values[:, column].astype(float)) for column in (1, 2, 3)
    ]
    received, sent, resent = (float(after - before) for before, after in grown)
    return received, sent, resent


def _busiest(values: Readings) -> float | None:
    """Return the highest rate between two readings, in the busier direction, in bytes per ns."""
    grown = np.diff(values, axis=0)
    long = grown[grown[:, 0] >= _SHORTEST]
    return float((long[:, 1:3].max(axis=1) / long[:, 0]).max()) if long.size else None
