"""A host with slower transfers than the others.

A transfer is compared with others of the same operation, about the same size and as many ranks. A host stands out if
transfers that involve it are far slower than those that do not; where every transfer involves every host, none can.
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
"""Bytes of a message from which on its rate says something about a link."""
_FEWEST: Final = 6
"""Transfers on each side of a comparison."""
_APART: Final = 0.5
"""Rate with a host, as a share of the rate without it, below which the host is slow."""
_SLOWER: Final = 0.25
"""Quantile of the rates that is compared: a host that only sends slowly receives as fast as others."""

Kind = tuple[str, int, int]
"""Operation, ranks, and size as a power of two."""


@dataclass(frozen=True, slots=True)
class SlowHost:
    """`rate` and `others` are in bytes per ns, of transfers with the host and without it."""

    host: str
    rate: float
    others: float
    transfers: int
    meetings: frozenset[int]


@dataclass(frozen=True, slots=True)
class _Transfer:
    meeting: int
    kind: Kind
    hosts: frozenset[str]
    rate: float


def slow_host(case: Case, made: Traffic) -> SlowHost | None:
    """Return the only host that stands out; None where there is none, or several do."""
    transfers = _transfers(case, made)
    slow = _slow(transfers)
    if not slow:
        return None
    worst = min(slow, key=lambda one: one.rate / one.others)
    others = [one for one in transfers if worst.host not in one.hosts]
    return worst if not _slow(others) else None


def hosts_of(case: Case) -> dict[int, str]:
    """Return the host of each rank, of those whose host is known."""
    return dict(case.run.rows("select rank, host from ranks where host is not null"))


def _transfers(case: Case, made: Traffic) -> list[_Transfer]:
    """Return transfers between hosts of which every member was recorded."""
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
    """Return what a host does in the kind of transfer that compares most of them; None where it is not slow."""
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
