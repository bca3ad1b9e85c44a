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
    select coalesce(a.host, ''), n.rank, n.scope, n.interface, n.time, n.received, n.sent, n.resent
    from newest n left join attempts a on a.rank = n.rank and a.attempt = n.attempt
    order by 1, 2, n.time"""

Readings = npt.NDArray[np.int64]
"""Time, bytes received, sent, and sent again, by row in order of time."""


def table(run: Run, ranks: Sequence[int] = ()) -> Table:
    """Return interfaces with traffic, host by host; no rows if fewer than two readings were recorded."""
    where = f" and rank in ({', '.join(map(str, ranks))})" if ranks else ""
    hosts: dict[str, dict[tuple[int, str, str | None], list[tuple[int, ...]]]] = defaultdict(lambda: defaultdict(list))
    for host, rank, scope, interface, time, received, sent, resent in run.rows(_ROWS.format(where=where)):
        hosts[host][rank, scope, interface].append((time, received, sent, resent or 0))
    rows = [
        row
        for host, found in hosts.items()
        for row in _rows(host, {key: np.array(values, np.int64) for key, values in found.items() if len(values) > 1})
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


def _rows(host: str, found: dict[tuple[int, str, str | None], Readings]) -> list[tuple[Value, ...]]:
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
