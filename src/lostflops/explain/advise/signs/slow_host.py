"""A host with slower transfers than the others.

A transfer is compared with others of the same operation, about the same size and as many ranks. A host is slow if
transfers that involve it are far slower than those that do not; if every transfer involves every host, no host can be
found.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from lostflops.account.facts.bandwidth import bus_factor

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lostflops.explain.advise.case import Case
    from lostflops.explain.advise.signs.traffic import Traffic
    from lostflops.predict.graph.tasks import Flags

_LEAST_BYTES: Final = 65_536
"""The rate of a message says something about a link if it has at least this many bytes."""
_FEWEST: Final = 6
"""Each side of a comparison needs at least this many transfers."""
_APART: Final = 0.5
"""A host is slow if the rate of transfers with it is below this share of the rate without it."""
_SLOWER: Final = 0.25
"""The quantile of rates that is compared: a host that only sends slowly receives as fast as others."""

Kind = tuple[str, int, int]
"""Operation, ranks, and size as a power of two."""


@dataclass(frozen=True, slots=True)
class SlowHost:
    """A host whose transfers are slower than those without it."""

    host: str
    rate: float
    """Rate of transfers with the host, in bytes per ns."""
    others: float
    """Rate of transfers without it, in bytes per ns."""
    transfers: int
    meetings: frozenset[int]


@dataclass(frozen=True, slots=True)
class _Transfer:
    meeting: int
    kind: Kind
    hosts: frozenset[str]
    rate: float


def slow_host(case: Case, made: Traffic) -> SlowHost | None:
    """Return the only host that is slow; None if no host or several are."""
    transfers = _transfers(case, made)
    slow = _slow(transfers)
    if not slow:
        return None
    worst = min(slow, key=lambda one: one.rate / one.others)
    others = [one for one in transfers if worst.host not in one.hosts]
    return worst if not _slow(others) else None


def hosts_of(case: Case) -> dict[int, str]:
    """Return the host of each rank whose host is known."""
    return dict(case.run.rows("select rank, host from ranks where host is not null"))


def _transfers(case: Case, made: Traffic) -> list[_Transfer]:
    """Return the transfers between hosts for which every member was recorded."""
    hosts, told, words = hosts_of(case), made.graph.meetings, made.graph.words
    rows: Flags = told.whole[made.meeting] & (made.size >= _LEAST_BYTES) & (made.took > 0)
    members: defaultdict[int, list[int]] = defaultdict(list)
    for row in np.flatnonzero(rows).tolist():
        members[int(made.meeting[row])].append(row)
    found = []
    for meeting, own in members.items():
        places = frozenset(hosts.get(rank, "") for rank in made.rank[own].tolist())
        op, size, ranks = words[told.op[meeting]], int(told.size[meeting]), len(own)
        if len(places) < 2 or "" in places:
            continue
        moved = size * (bus_factor(op, ranks) or 1.0)
        kind = (op, ranks, round(np.log2(size)))
        found.append(_Transfer(meeting, kind, places, moved / float(np.median(made.took[own]))))
    return found


def _slow(transfers: Iterable[_Transfer]) -> list[SlowHost]:
    transfers = list(transfers)
    names = sorted({host for one in transfers for host in one.hosts})
    return [slow for host in names if (slow := _compare_host(transfers, host)) is not None]


def _compare_host(transfers: list[_Transfer], host: str) -> SlowHost | None:
    """Compare transfers with and without a host, in the kind that has most of both; return None if the host is not
    slow."""
    sides: defaultdict[Kind, tuple[list[_Transfer], list[_Transfer]]] = defaultdict(lambda: ([], []))
    for one in transfers:
        sides[one.kind][host not in one.hosts].append(one)
    compared = [both for both in sides.values() if min(map(len, both)) >= _FEWEST]
    if not compared:
        return None
    own, others = max(compared, key=lambda both: min(map(len, both)))
    rate, usual = (float(np.quantile([one.rate for one in side], _SLOWER)) for side in (own, others))
    if rate >= _APART * usual:
        return None
    return SlowHost(host, rate, usual, len(own), frozenset(one.meeting for one in transfers if host in one.hosts))
