"""Who holds the others up?

Along waits the origins are where it ends: ranks that are waited for and wait for nobody, meetings that all have reached
and none leaves, and rings of ranks that wait for each other. In a ring, and where most members of a group have
nothing pending at all, those who stand where the fewest stand are named.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from lostflops.flight.mismatch import Mismatch
from lostflops.flight.standing import Standings
from lostflops.flight.waits import Meeting, Waits, components

WHYS = ("mismatch", "stalled", "ahead", "alone", "never arrived", "no dump")
"""From the most to the least telling."""

Node = int | Meeting
Graph = dict[Node, list[Node]]


class Culprit(NamedTuple):
    rank: int
    why: str
    meeting: Meeting | None
    waiting: int


@dataclass(frozen=True, slots=True)
class Blame:
    culprits: list[Culprit]
    held_up: int
    """Other ranks that wait for a culprit, directly or through others."""
    mismatches: list[Mismatch]
    full: list[Meeting]
    """Meetings that all members have reached and none leaves, with nothing to tell why."""
    unclear: list[Meeting]
    """Meetings of which the dumps do not tell whether all members have reached them."""


def blame(standings: Standings, waits: Waits, found: Iterable[Mismatch]) -> Blame:
    graph = waits.graph()
    named: dict[int, tuple[str, Meeting | None]] = {}
    mismatches = list(found)
    full: list[Meeting] = []
    unclear: list[Meeting] = []
    idle: set[int] = set()
    for component in components(graph):
        inside = set(component)
        if any(following not in inside for node in component for following in graph[node]):
            continue
        ranks = [node for node in component if isinstance(node, int)]
        if len(component) > 1:
            mismatches += _ring(waits, ranks, named)
        elif not ranks:
            (meeting,) = (node for node in component if not isinstance(node, int))
            if not waits.rolls[meeting].is_over:
                (unclear if waits.rolls[meeting].unknown else full).append(meeting)
        elif ranks[0] in standings.ranks and ranks[0] not in waits.stalled:
            idle.add(ranks[0])
    _name_idle(waits, idle, named)
    named |= dict.fromkeys(standings.missing, ("no dump", None))
    named |= {rank: ("stalled", meeting) for rank, meeting in waits.stalled.items()}
    _name_mismatched(waits, mismatches, named)
    mismatched = {mismatch.group for mismatch in mismatches}
    count = _Waiting(graph)
    culprits = [
        Culprit(rank, why, meeting or _most_awaited(waits, count, rank), count.of(rank))
        for rank, (why, meeting) in named.items()
    ]
    culprits.sort(key=lambda culprit: (-culprit.waiting, WHYS.index(culprit.why), culprit.rank))
    return Blame(
        culprits if waits.rolls else [],
        len(set().union(*(count.ranks(rank) for rank in named)) - named.keys()),
        mismatches,
        [meeting for meeting in full if meeting.group not in mismatched],
        unclear,
    )


def _ring(waits: Waits, ranks: list[int], named: dict[int, tuple[str, Meeting | None]]) -> list[Mismatch]:
    """Ranks that wait for each other: those at the meetings with the fewest are named, or all where none has fewer."""
    held: dict[Meeting, list[int]] = defaultdict(list)
    for rank in ranks:
        held[waits.fronts[rank][0]].append(rank)
    fewest = min(map(len, held.values()))
    common = max(held, key=lambda meeting: len(held[meeting]))
    orders = []
    for meeting, there in sorted(held.items(), key=lambda item: min(item[1])):
        if len(there) > fewest:
            continue
        roll = waits.rolls[meeting]
        if set(roll.queued) & set(ranks):
            why = "mismatch"
            other = waits.rolls[common if common != meeting else next(m for m in held if m != meeting)]
            called, others = f"{roll.op} first, then {other.op}", f"{other.op} first"
            orders.append(Mismatch(meeting.group, roll.number, "order", tuple(sorted(there)), called, others))
        elif meeting.seq is None:
            why = "never arrived"
        else:
            why = "ahead" if set(roll.absent) & set(ranks) else "alone"
        named |= dict.fromkeys(there, (why, meeting if why != "never arrived" else None))
    return orders


def _name_idle(waits: Waits, idle: set[int], named: dict[int, tuple[str, Meeting | None]]) -> None:
    """Ranks that others wait for and that wait for nothing, unless they are most of the group: then it is the others
    who are ahead."""
    for meeting, roll in waits.rolls.items():
        if roll.is_over:
            continue
        away = idle.intersection(roll.absent + roll.silent)
        if not away:
            continue
        present = [*roll.at, *roll.queued, *roll.passed]
        if roll.at and len(away) > len(present) and not roll.queued and away.issuperset(roll.absent + roll.silent):
            named |= dict.fromkeys(roll.at, ("ahead" if roll.absent else "alone", meeting))
        else:
            named |= dict.fromkeys(away, ("never arrived", None))


def _name_mismatched(waits: Waits, mismatches: list[Mismatch], named: dict[int, tuple[str, Meeting | None]]) -> None:
    """A mismatch is blamed where its group is stuck at it or behind it."""
    stuck: dict[str, int] = {}
    for meeting in waits.rolls:
        if meeting.seq is not None:
            stuck[meeting.group] = max(stuck.get(meeting.group, meeting.seq), meeting.seq)
    for mismatch in mismatches:
        if mismatch.what != "order" and mismatch.seq <= stuck.get(mismatch.group, -1):
            named |= {rank: ("mismatch", Meeting(mismatch.group, mismatch.seq)) for rank in mismatch.ranks}


class _Waiting:
    """How many ranks wait for a rank, directly or through others."""

    def __init__(self, graph: Graph) -> None:
        self.before: dict[Node, list[Node]] = defaultdict(list)
        for node, following in graph.items():
            for each in following:
                self.before[each].append(node)
        self._known: dict[frozenset[Node], set[int]] = {}

    def ranks(self, rank: int) -> set[int]:
        direct = frozenset(self.before.get(rank, ()))
        if direct not in self._known:
            self._known[direct] = self._reach(direct)
        return self._known[direct]

    def of(self, rank: int) -> int:
        known = self.ranks(rank)
        return len(known) - (rank in known)

    def _reach(self, start: Iterable[Node]) -> set[int]:
        seen = set(start)
        open_nodes = list(seen)
        while open_nodes:
            for node in self.before.get(open_nodes.pop(), ()):
                if node not in seen:
                    seen.add(node)
                    open_nodes.append(node)
        return {node for node in seen if isinstance(node, int)}


def _most_awaited(waits: Waits, count: _Waiting, rank: int) -> Meeting | None:
    """The meeting at which most ranks wait for this one; collectives before transfers."""
    awaited = (node for node in count.before.get(rank, ()) if not isinstance(node, int))
    ordered = sorted(
        (meeting for meeting in awaited if rank not in waits.rolls[meeting].queued),
        key=lambda meeting: (-len(waits.rolls[meeting].at), meeting.seq is None, meeting.group, meeting.seq or 0),
    )
    return ordered[0] if ordered else None
