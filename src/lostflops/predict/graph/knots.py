"""Longest paths in plain Python: lanes are contracted to their knots, which are several times fewer than tasks.

A knot is a task that may wait for more than the task before it on its lane: it has an edge into it, or a meeting, or is
the first of its lane. The tasks up to the next knot only follow each other: numpy places them when all knots have run,
and edges out of them become edges out of the knot.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lostflops.predict.graph.network import Ns, PathNetwork


@dataclass(slots=True)
class _Knots:
    """A network of knots, as lists, which Python reads faster than arrays."""

    start: list[int]
    """Earliest start so far."""
    pending: list[int]
    """Number of tasks that a knot still waits for."""
    meeting: list[int]
    advance: list[int]
    """Time from the start of a knot to the next one of its lane."""
    has_next: list[bool]
    first: list[int]
    """Where the edges of a knot begin."""
    dst: list[int]
    delay: list[int]
    """Delay after the start of a knot, or after the transfer of its meeting."""
    is_early: list[bool]
    """Whether the edge of a member does not wait for its meeting."""
    members: list[list[int]]
    """Knots of each meeting."""
    missing: list[int]
    """Number of arrivals that a meeting still waits for."""
    transfer: list[int]
    turn: list[int]
    met: list[int]


def find_paths(network: PathNetwork) -> tuple[Ns, Ns, Ns] | None:
    """Return start and stop of each task, and when meetings were complete; None if tasks wait for each other, or if a
    negative gap leads to a time before 0, which only the loop over all tasks handles."""
    is_knot = ~network.follows | (network.meeting >= 0)
    is_knot[network.dst] = True
    place, rows = np.cumsum(is_knot) - 1, np.flatnonzero(is_knot)
    since = np.concatenate(([0], np.cumsum(network.duration + network.gap)))[:-1]
    knots = _contract(network, place, rows, since)
    if not _run_all(knots):
        return None
    own, met = np.array(knots.start, np.int64), np.array(knots.met, np.int64)
    meets = network.meeting[rows] >= 0
    base = own.copy()
    base[meets] = (met + network.transfer)[network.meeting[rows[meets]]]
    start: Ns = base[place] + since - since[rows][place]
    if (start[~is_knot] < 0).any():
        return None
    stop = start + network.duration
    start[rows] = own
    return start, stop, met


def _contract(network: PathNetwork, place: Ns, rows: Ns, since: Ns) -> _Knots:
    count, meetings = rows.size, network.transfer.size
    src, dst = place[network.src], place[network.dst]
    order = np.argsort(src, kind="stable")
    delay = network.delay + since[network.src] - since[rows[src]]
    delay += np.where(network.after_start, 0, network.duration[network.src])
    early = network.after_start & (network.meeting[network.src] >= 0)
    members: list[list[int]] = [[] for _ in range(meetings)]
    meeting = network.meeting[rows]
    for knot in np.flatnonzero(meeting >= 0).tolist():
        members[meeting[knot]].append(knot)
    missing = np.bincount(meeting[meeting >= 0], minlength=meetings)
    missing += np.bincount(network.turn[network.turn >= 0], minlength=meetings)
    follows = network.follows[rows]
    return _Knots(
        start=network.origin[rows].tolist(),
        pending=(np.bincount(dst, minlength=count) + follows).tolist(),
        meeting=meeting.tolist(),
        advance=np.append(np.diff(since[rows]), 0).tolist(),
        has_next=np.append(follows[1:], False).tolist(),
        first=np.concatenate(([0], np.cumsum(np.bincount(src, minlength=count)))).tolist(),
        dst=dst[order].tolist(),
        delay=delay[order].tolist(),
        is_early=early[order].tolist(),
        members=members,
        missing=missing.tolist(),
        transfer=network.transfer.tolist(),
        turn=network.turn.tolist(),
        met=[0] * meetings,
    )


def _run_all(knots: _Knots) -> bool:
    """Run the knots from a stack, walking along each lane while nothing holds it back. Return whether all ran."""
    start, pending, meeting, advance = knots.start, knots.pending, knots.meeting, knots.advance
    has_next, first, dst, delay = knots.has_next, knots.first, knots.dst, knots.delay
    ready = [knot for knot, tasks in enumerate(pending) if not tasks]
    left = len(start)
    while ready:
        knot = ready.pop()
        while True:
            left -= 1
            if meeting[knot] >= 0:
                _arrive(knots, knot, ready)
                break
            at = start[knot]
            for edge in range(first[knot], first[knot + 1]):
                follower, begin = dst[edge], at + delay[edge]
                if begin > start[follower]:  # noqa: PLR1730 - max() takes three times as long
                    start[follower] = begin
                pending[follower] -= 1
                if not pending[follower]:
                    ready.append(follower)
            if not has_next[knot]:
                break
            begin = at + advance[knot]
            knot += 1
            if begin > start[knot]:  # noqa: PLR1730
                start[knot] = begin
            pending[knot] -= 1
            if pending[knot]:
                break
    return not left and not any(knots.missing)


def _arrive(knots: _Knots, knot: int, ready: list[int]) -> None:
    """Let a member arrive at its meeting; the last to arrive completes it, and those that had to wait for its link."""
    here = knots.meeting[knot]
    _pass_on(knots, knot, knots.start[knot], ready, is_early=True)
    knots.met[here] = max(knots.met[here], knots.start[knot])
    knots.missing[here] -= 1
    while not knots.missing[here]:
        end = knots.met[here] + knots.transfer[here]
        for member in knots.members[here]:
            _pass_on(knots, member, end, ready, is_early=False)
            if knots.has_next[member]:
                _hold(knots, member + 1, end + knots.advance[member], ready)
        here = knots.turn[here]
        if here < 0:
            break
        knots.met[here] = max(knots.met[here], end)
        knots.missing[here] -= 1


def _pass_on(knots: _Knots, knot: int, time: int, ready: list[int], *, is_early: bool) -> None:
    for edge in range(knots.first[knot], knots.first[knot + 1]):
        if knots.is_early[edge] == is_early:
            _hold(knots, knots.dst[edge], time + knots.delay[edge], ready)


def _hold(knots: _Knots, follower: int, begin: int, ready: list[int]) -> None:
    knots.start[follower] = max(knots.start[follower], begin)
    knots.pending[follower] -= 1
    if not knots.pending[follower]:
        ready.append(follower)
