"""Which ranks does a job wait for when no step ends? Judged by what each rank enqueued last."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

Heads = Mapping[tuple[str, tuple[int, ...]], Mapping[int, tuple[int, str]]]


@dataclass(frozen=True, slots=True)
class Behind:
    """Ranks that have not reached a collective that others of its group have enqueued."""

    ranks: tuple[int, ...]
    group: str
    seq: int
    op: str
    others: int
    """Number of ranks that have enqueued it."""


def behind(heads: Heads) -> Behind | None:
    """Return the ranks that are late in a group and wait for no rank in another group; None if there are no such ranks.

    >>> behind({("0", (0, 1, 2)): {0: (7, "gloo:all_reduce"), 1: (6, "gloo:all_reduce"), 2: (7, "gloo:all_reduce")}})
    Behind(ranks=(1,), group='0', seq=7, op='gloo:all_reduce', others=2)
    """
    waiting: set[int] = set()
    found: list[Behind] = []
    for (group, members), last in heads.items():
        if not last:
            continue
        newest = max(seq for seq, _ in last.values())
        late = tuple(rank for rank in members if rank not in last or last[rank][0] < newest)
        ahead = [rank for rank in last if last[rank][0] == newest]
        if late:
            waiting.update(ahead)
            found.append(Behind(late, group, newest, last[ahead[0]][1], len(ahead)))
    for one in found:
        if culprits := tuple(rank for rank in one.ranks if rank not in waiting):
            return Behind(culprits, one.group, one.seq, one.op, one.others)
    return None
