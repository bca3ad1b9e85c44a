"""Roles of ops in an op trace: compute or communication, and between which ranks.

The rules follow recorded files: the members of a group end an op together, however late some of them began it.

    >>> role("forward-compute").kind, role("grads-reduce-scatter")
    ('kernel', Role(kind='comm', op='reduce_scatter', group='dp', shift=0))
    >>> layout = RoleLayout({0: StagePlace(0, 0), 4: StagePlace(1, 0), 8: StagePlace(0, 1), 12: StagePlace(1, 1)})
    >>> layout.members("dp", 8), layout.members("pp", 8), layout.peer(8, role("backward-send").shift)
    ([8, 12], [0, 8], 0)
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Final, NamedTuple

from lostflops.ingest.common.group_ids import group_id


class Role(NamedTuple):
    """Kind of an op, and between which ranks it communicates."""

    kind: str
    """As in `events`."""
    op: str | None = None
    group: str | None = None
    shift: int = 0
    """Number of stages from this one to its peer; 0 for no peer."""


GROUPS: Final = {
    "dp": "ranks of one stage",
    "pp": "stages of one data parallel rank",
    "embedding": "first and last stage",
    "world": "all ranks of the file",
}
_ROLES: Final = {
    "optimizer": Role("kernel"),
    # Ranks begin it up to 0.4 s apart and end it within 10 ms of each other: it waits for the norm of all gradients.
    "optimizer-clip-main-grad": Role("comm", "all_reduce", "world"),
    "forward-send": Role("comm", "send", "pp", 1),
    "forward-recv": Role("comm", "recv", "pp", -1),
    "backward-send": Role("comm", "send", "pp", -1),
    "backward-recv": Role("comm", "recv", "pp", 1),
    "gc": Role("other"),
}
_COLLECTIVES: Final = {"all-reduce": "all_reduce", "all-gather": "all_gather", "reduce-scatter": "reduce_scatter"}
_GROUP_OF: Final = {"grads": "dp", "params": "dp", "embedding": "embedding"}


def is_known(optype: str) -> bool:
    return optype == "gc" or role(optype).kind != "other"


def role(optype: str) -> Role:
    """Return the role of a type of op; an unknown type is `other`, and on the host.

    >>> role("layernorm-grads-all-reduce"), role("lunch")
    (Role(kind='comm', op='all_reduce', group=None, shift=0), Role(kind='other', op=None, group=None, shift=0))
    """
    if optype in _ROLES:
        return _ROLES[optype]
    if optype.endswith("-compute"):
        return Role("kernel")
    subject = optype.split("-", maxsplit=1)[0]
    if optype.endswith("-sync"):
        return Role("comm", None, _GROUP_OF.get(subject))
    op = next((op for ending, op in _COLLECTIVES.items() if optype.endswith(f"-{ending}")), None)
    return Role("comm", op, _GROUP_OF.get(subject)) if op is not None else Role("other")


class StagePlace(NamedTuple):
    """Place of a rank: data parallel rank and pipeline stage."""

    dp_rank: int
    stage: int


class RoleLayout:
    """Ranks by place.

    If two ranks share a place, it is unknown which ranks communicate with which: there are no groups and no peers.
    """

    def __init__(self, places: Mapping[int, StagePlace]) -> None:
        self.places = dict(places)
        self._ranks = {place: rank for rank, place in self.places.items()}
        self.is_certain = len(self._ranks) == len(self.places)
        self._stages = 1 + max((place.stage for place in self._ranks), default=0)
        self._members: defaultdict[tuple[str, int], list[int]] = defaultdict(list)
        for rank in sorted(self.places):
            for own in self._groups_of(rank).items():
                self._members[own].append(rank)
        self._ids: dict[tuple[str, int], str] = {}

    def _groups_of(self, rank: int) -> dict[str, int]:
        """Return the groups of a rank: their names, and which group of this name it is."""
        place = self.places[rank]
        own = {"world": 0, "dp": place.stage, "pp": place.dp_rank}
        return own | {"embedding": place.dp_rank} if place.stage in (0, self._stages - 1) else own

    def members(self, group: str, rank: int) -> list[int]:
        """Return the ranks in the file that are in the rank's group of this name, in order; empty if it has none."""
        own = self._groups_of(rank)
        return self._members[group, own[group]] if group in own else []

    def group_id(self, group: str, rank: int) -> str:
        """Return the id of the rank's group of this name, which must have members."""
        own = group, self._groups_of(rank)[group]
        if own not in self._ids:
            self._ids[own] = group_id(group, self._members[own])
        return self._ids[own]

    def peer(self, rank: int, shift: int) -> int | None:
        """Return the rank `shift` stages later; after the last stage an interleaved schedule begins again."""
        own = self.places[rank]
        if not shift or not self.is_certain:
            return None
        return self._ranks.get(StagePlace(own.dp_rank, (own.stage + shift) % self._stages))
