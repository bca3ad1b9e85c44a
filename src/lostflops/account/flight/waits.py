"""Which ranks wait for which?

A meeting is a collective of a group, or a transfer between two ranks, that is the oldest pending of its kind on some
rank. Ranks wait for meetings, and meetings for members that have not arrived.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeVar

from lostflops.account.flight.standing import Front, Pending, RankStand, Standings

MEETING_OPS: Final = frozenset({"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier"})
"""No rank completes one of these before every rank has arrived."""

Thing = TypeVar("Thing", bound=Hashable)


class Meeting(NamedTuple):
    group: str
    seq: int | None
    sender: int | None = None
    receiver: int | None = None


@dataclass(slots=True, kw_only=True)
class Roll:
    """Ranks that are at a meeting, and ranks that are not."""

    op: str
    number: int
    at: list[int] = field(default_factory=list)
    started: list[int] = field(default_factory=list)
    """Ranks of `at` whose device was seen to start it."""
    queued: list[int] = field(default_factory=list)
    """Ranks that enqueued it, after something older that is pending."""
    passed: list[int] = field(default_factory=list)
    absent: list[int] = field(default_factory=list)
    """Ranks that never arrived: their newest entry of the group is older."""
    silent: list[int] = field(default_factory=list)
    """Ranks without any entry of the group: they never arrived, or what they did is over and not in the dump."""
    missing: list[int] = field(default_factory=list)
    """Ranks that wrote no dump."""
    unknown: list[int] = field(default_factory=list)
    """Ranks whose dump does not show it: the ring may have lost the entry, or it is over and may have failed (gloo)."""

    @property
    def is_over(self) -> bool:
        """Whether ranks at it wait for no rank: some completed what none can before all arrive, or all but one did."""
        away = self.absent or self.silent or self.missing or self.unknown
        is_last = not away and len(self.at) + len(self.queued) == 1
        return bool(self.passed) and (self.op in MEETING_OPS or is_last)

    def blockers(self) -> list[int]:
        return [] if self.is_over else [*self.absent, *self.silent, *self.missing, *self.queued]


@dataclass(frozen=True, slots=True)
class WaitGraph:
    rolls: dict[Meeting, Roll]
    fronts: dict[int, list[Meeting]]
    """Meetings that each rank waits for, the one that holds it first."""
    stalled: dict[int, Meeting]
    """Meeting of each rank that is still in what others have completed."""

    def graph(self) -> dict[int | Meeting, list[int | Meeting]]:
        graph: dict[int | Meeting, list[int | Meeting]] = {
            rank: [] if rank in self.stalled else list(meetings) for rank, meetings in self.fronts.items()
        }
        for meeting, roll in self.rolls.items():
            graph[meeting] = list(roll.blockers())
            for rank in roll.blockers():
                graph.setdefault(rank, [])
        return graph


def waits(standings: Standings) -> WaitGraph:
    rolls = _collectives(standings) | _transfers(standings)
    fronts: dict[int, list[Meeting]] = defaultdict(list)
    stalled: dict[int, Meeting] = {}
    for meeting, roll in rolls.items():
        for rank in roll.at:
            fronts[rank].insert(0, meeting)
        for rank in roll.queued:
            if _pending_at(standings, meeting, rank):
                fronts[rank].append(meeting)
        if roll.is_over:
            stalled |= {rank: meeting for rank in (*roll.queued, *roll.at) if _pending_at(standings, meeting, rank)}
    for rank in stalled:
        held = (meeting for meeting in fronts[rank] if rolls[meeting].is_over)
        stalled[rank] = next(held)
    return WaitGraph(rolls, dict(fronts), stalled)


def _pending_at(standings: Standings, meeting: Meeting, rank: int) -> bool:
    """Return whether the meeting is the rank's oldest pending one of its group."""
    if meeting.seq is None:
        return True
    stand = standings.collectives[meeting.group].get(rank)
    return stand is not None and stand.pending is not None and stand.pending.number == meeting.seq


def _collectives(standings: Standings) -> dict[Meeting, Roll]:
    rolls: dict[Meeting, Roll] = {}
    for group, stands in standings.collectives.items():
        opened: dict[int, Pending] = {}
        for stand in stands.values():
            if stand.pending:
                known = opened.setdefault(stand.pending.number, stand.pending)
                if (stand.pending.created or 0) < (known.created or 0):
                    opened[stand.pending.number] = stand.pending
        for seq, first in opened.items():
            roll = rolls[Meeting(group, seq)] = Roll(op=first.op, number=seq)
            for rank in standings.groups[group].members:
                _call(standings, group, first, rank, roll)
    return rolls


def _call(standings: Standings, group: str, first: Pending, rank: int, roll: Roll) -> None:
    """Put `rank` on the roll of a collective, first enqueued as `first`."""
    seq = first.number
    rank_stand = standings.ranks.get(rank)
    stand = standings.collectives[group].get(rank)
    if rank_stand is None:
        roll.missing.append(rank)
    elif stand is None:
        _silent(standings, first, rank, rank_stand, roll)
    elif stand.newest < seq:
        roll.absent.append(rank)
    elif stand.completed is not None and stand.completed >= seq:
        roll.passed.append(rank)
    elif stand.pending is None:
        roll.unknown.append(rank)
    elif stand.pending.number > seq:
        known = not standings.is_full and not rank_stand.is_wrapped
        (roll.passed if known else roll.unknown).append(rank)
    elif stand.pending.number < seq:
        roll.queued.append(rank)
    else:
        _add_arrived_rank(rank, rank_stand, Front(group, False, seq), stand.pending, roll)


def _silent(standings: Standings, first: Pending, rank: int, stand: RankStand, roll: Roll) -> None:
    """Put a rank without an entry of the group on the roll.

    A ring that kept nothing lost nothing, nor did one that is not full.
    """
    covers = stand.first_created is None or (first.created is not None and stand.first_created <= first.created)
    if stand.is_wrapped and not covers:
        roll.unknown.append(rank)
    elif standings.is_full and not stand.is_wrapped:
        roll.absent.append(rank)
    else:
        roll.silent.append(rank)


def _add_arrived_rank(rank: int, stand: RankStand, here: Front, pending: Pending, roll: Roll) -> None:
    if pending.state == "started":
        roll.started.append(rank)
    if stand.front == here or pending.state == "started":
        roll.at.append(rank)
    else:
        roll.queued.append(rank)


def _transfers(standings: Standings) -> dict[Meeting, Roll]:
    rolls: dict[Meeting, Roll] = {}
    for (group, sender, receiver), ends in standings.transfers.items():
        first = next(iter(ends.values()))
        roll = rolls[Meeting(group, None, sender, receiver)] = Roll(op=first.op, number=first.number)
        for rank in (sender, receiver):
            stand = standings.ranks.get(rank)
            if stand is None:
                roll.missing.append(rank)
            elif rank in ends:
                _add_arrived_rank(rank, stand, Front(group, True, ends[rank].number), ends[rank], roll)
            else:
                roll.absent.append(rank)
    return rolls


def components(graph: Mapping[Thing, Sequence[Thing]]) -> list[list[Thing]]:
    """Return strongly connected components, each before those that lead to it (Tarjan, without recursion).

    >>> components({1: [2], 2: [1, 3], 3: []})
    [[3], [2, 1]]
    """
    number: dict[Thing, int] = {}
    low: dict[Thing, int] = {}
    found: list[list[Thing]] = []
    open_nodes: list[Thing] = []
    is_open: set[Thing] = set()
    for root in graph:
        path = [(root, iter(graph[root]))] if root not in number else []
        while path:
            node, rest = path[-1]
            if node not in number:
                number[node] = low[node] = len(number)
                open_nodes.append(node)
                is_open.add(node)
            for following in rest:
                if following not in number:
                    path.append((following, iter(graph[following])))
                    break
                if following in is_open:
                    low[node] = min(low[node], number[following])
            else:
                path.pop()
                if path:
                    low[path[-1][0]] = min(low[path[-1][0]], low[node])
                if low[node] == number[node]:
                    found.append(_pop_component(node, open_nodes, is_open))
    return found


def _pop_component(node: Thing, open_nodes: list[Thing], is_open: set[Thing]) -> list[Thing]:
    component: list[Thing] = []
    while not component or component[-1] != node:
        component.append(open_nodes.pop())
        is_open.remove(component[-1])
    return component
