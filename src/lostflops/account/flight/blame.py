"""Which ranks hold the others up?

Chains of waits end at their origins: ranks that others wait for and that wait for no rank, meetings that all have
reached and none leaves, and rings of ranks that wait for each other. In a ring, the ranks at the meetings with the
fewest ranks are named. If most members of a group have nothing pending at all, the few others are named.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from lostflops.account.flight.mismatch import Mismatch
from lostflops.account.flight.standing import Standings
from lostflops.account.flight.waits import Meeting, WaitGraph, components

WHYS = ("mismatch", "stalled", "ahead", "alone", "never arrived", "no dump")
"""From the strongest to the weakest evidence."""

Node = int | Meeting
Graph = dict[Node, list[Node]]


class Culprit(NamedTuple):
    rank: int
    why: str
    meeting: Meeting | None
    waiting: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Blame:
    culprits: list[Culprit]
    held_up: int
    """Other ranks that wait for a culprit, directly or through others."""
    mismatches: list[Mismatch]
    full: list[Meeting]
    """Meetings that all members have reached and none leaves, with nothing to show why."""
    tied: list[tuple[int, ...]]
    """Ranks that wait for each other, with equally many at each meeting."""
    unclear: list[Meeting]
    """Meetings for which the dumps do not show whether all members have reached them."""


Named = dict[int, tuple[str, Meeting | None]]


def blame(standings: Standings, waits: WaitGraph, found: Iterable[Mismatch]) -> Blame:
    graph = waits.graph()
    named: Named = {}
    mismatches = list(found)
    reached: list[Meeting] = []
    tied: list[tuple[int, ...]] = []
    idle: set[int] = set()
    for end in _ends(graph):
        ranks = [node for node in end if isinstance(node, int)]
        if len(end) > 1:
            names, orders = _ring(waits, ranks)
            named |= names
            mismatches += orders
            if len(names) == len(ranks):
                tied.append(tuple(sorted(ranks)))
        elif not ranks:
            reached += [node for node in end if not isinstance(node, int) and not waits.rolls[node].is_over]
        elif ranks[0] in standings.ranks and ranks[0] not in waits.stalled:
            idle.add(ranks[0])
    _name_idle(waits, idle, named)
    named |= dict.fromkeys(standings.missing, ("no dump", None))
    named |= {rank: ("stalled", meeting) for rank, meeting in waits.stalled.items()}
    _name_mismatched(waits, mismatches, named)
    count = _WaitingRanks(graph)
    culprits = [
        Culprit(rank, why, meeting or _most_awaited(waits, count, rank), count.of(rank))
        for rank, (why, meeting) in named.items()
    ]
    culprits.sort(key=lambda culprit: (-culprit.waiting, WHYS.index(culprit.why), culprit.rank))
    mismatched = {mismatch.group for mismatch in mismatches}
    return Blame(
        culprits=culprits if waits.rolls else [],
        held_up=len(count.all_known() - named.keys()),
        mismatches=mismatches,
        full=[each for each in reached if not waits.rolls[each].unknown and each.group not in mismatched],
        tied=tied,
        unclear=[each for each in reached if waits.rolls[each].unknown],
    )


def _ends(graph: Graph) -> Iterator[list[Node]]:
    """Yield components that lead nowhere."""
    for component in components(graph):
        inside = set(component)
        if all(following in inside for node in component for following in graph[node]):
            yield component


def _ring(waits: WaitGraph, ranks: list[int]) -> tuple[Named, list[Mismatch]]:
    """Name ranks of a ring, which wait for each other: those at the meetings with the fewest, or all if none has fewer.

    What holds them may be unknown, as with a transfer without a peer; then all seem to be at the same meeting, and no
    rank is named.
    """
    held: dict[Meeting, list[int]] = defaultdict(list)
    for rank in sorted(ranks):
        held[waits.fronts[rank][0]].append(rank)
    if len(held) == 1:
        return {}, []
    fewest = min(map(len, held.values()))
    named: Named = {}
    orders = []
    for meeting, there in held.items():
        if len(there) > fewest:
            continue
        roll = waits.rolls[meeting]
        if not roll.queued:
            names = _outside(meeting, waits)
        else:
            names = "mismatch", meeting
            common = max((each for each in held if each != meeting), key=lambda each: len(held[each]))
            first, then = roll.op, waits.rolls[common].op
            called, others = f"{first} of {meeting.group} first", f"{then} of {common.group} first"
            orders.append(Mismatch(meeting.group, roll.number, "order", tuple(there), called, others))
        named |= dict.fromkeys(there, names)
    return named, orders


def _outside(meeting: Meeting, waits: WaitGraph) -> tuple[str, Meeting | None]:
    """Return why ranks at a meeting are named if the others, which wait for them elsewhere, never enqueued it."""
    if meeting.seq is None:
        return "never arrived", None
    return ("ahead" if waits.rolls[meeting].absent else "alone"), meeting


def _name_idle(waits: WaitGraph, idle: set[int], named: Named) -> None:
    """Name idle ranks that others wait for; if they are most of the group, name the others, which are ahead."""
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


def _name_mismatched(waits: WaitGraph, mismatches: list[Mismatch], named: Named) -> None:
    """Blame a mismatch if its group is stuck at it or after it."""
    stuck: dict[str, int] = {}
    for meeting in waits.rolls:
        if meeting.seq is not None:
            stuck[meeting.group] = max(stuck.get(meeting.group, meeting.seq), meeting.seq)
    for mismatch in mismatches:
        if mismatch.what != "order" and mismatch.seq <= stuck.get(mismatch.group, -1):
            named |= {rank: ("mismatch", Meeting(mismatch.group, mismatch.seq)) for rank in mismatch.ranks}


class _WaitingRanks:
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

    def all_known(self) -> set[int]:
        """Return all ranks that wait for one of those asked about."""
        return set().union(*self._known.values())

    def _reach(self, start: Iterable[Node]) -> set[int]:
        seen = set(start)
        open_nodes = list(seen)
        while open_nodes:
            for node in self.before.get(open_nodes.pop(), ()):
                if node not in seen:
                    seen.add(node)
                    open_nodes.append(node)
        return {node for node in seen if isinstance(node, int)}


def _most_awaited(waits: WaitGraph, count: _WaitingRanks, rank: int) -> Meeting | None:
    """Return the meeting at which most ranks wait for this one, of equals a collective, or None."""
    awaited = (node for node in count.before.get(rank, ()) if not isinstance(node, int))
    ordered = sorted(
        (meeting for meeting in awaited if rank not in waits.rolls[meeting].queued),
        key=lambda meeting: (-len(waits.rolls[meeting].at), meeting.seq is None, meeting.group, meeting.seq or 0),
    )
    return ordered[0] if ordered else None
