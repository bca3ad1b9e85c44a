"""Collectives and transfers that a rank took part in but has no record of, found from the records of other ranks.

A rank whose record of a collective is lost waited in it all the same. The other members show when it ended: their
recorded ends lie as far from another call of the group as on this rank, so that no clock is needed. How long it takes
once all have arrived is the usual time of such calls, and the rank arrived at least that long before the end.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from lostflops.store.row_groups import group_rows

if TYPE_CHECKING:
    from lostflops.store.run import Run

Ns = npt.NDArray[np.int64]
Rows = npt.NDArray[np.int64]

_ALONE: Final = "collectives anti join arrivals using (rank, event) where event is not null"
_IS_ANY: Final = f"(select 1 from arrivals where event is null limit 1) union all (select 1 from {_ALONE} limit 1)"
_MEMBERS: Final = f"""
    with matched as (
        select rank, event, meeting, is_transfer, arrivals.step, group_id, op, peer, start, stop, bytes_in, bytes_out
        from arrivals left join collectives using (rank, event)
    ), pairs as (
        select group_id, min(rank) + max(rank) as total from matched where group_id is not null and not is_transfer
        group by group_id having count(distinct rank) = 2
    ), alone as (
        select *, -1 - (rank::bigint << 40 | event) as meeting from {_ALONE}
    ), members as (
        select * from matched union all by name
        select alone.*, false as is_transfer from alone join pairs using (group_id) union all by name
        select total - rank as rank, meeting, step, false as is_transfer from alone join pairs using (group_id)
    )"""
"""Members of meetings; a call of a group of two that was found on one rank only is a meeting too, with a number below
0."""
_EVENT_BITS: Final = 40
_MEETINGS: Final = f"""{_MEMBERS}
    select meeting, coalesce(min(group_id), '') as group_id, bool_or(is_transfer) as is_transfer,
        coalesce(min(case when is_transfer then if(op = 'send', rank, peer) end), -1) as sender,
        count(*) as members, min(rank) as first, max(rank) as last, sum(rank) as total, coalesce(max(step), -1) as step,
        bool_or(event is null) as is_lacking
    from members group by meeting order by meeting"""
_CALLS: Final = f"""{_MEMBERS}
    select rank, meeting, coalesce(event, -1) as event, coalesce(start, 0) as start, coalesce(stop, 0) as stop,
        hash(if(is_transfer, '', op), bytes_in, bytes_out) as kind
    from members order by rank, event"""
_UNMATCHED: Final = f"select rank, event from {_ALONE}"


class LostCall(NamedTuple):
    """One rank's part in a collective or transfer of which it has no record; times are in ns on the rank's clock."""

    meeting: Hashable
    """Number of the meeting, as in table `arrivals`."""
    step: int
    """Training step, -1 if unknown."""
    stop: int
    """When it ended."""
    transfer: int
    """Usual time of such calls once all members have arrived."""
    alike: Rows
    """Events of the rank's recorded calls of the same kind in the group, at least one."""


@dataclass(slots=True)
class LostCalls:
    """Lost calls of one rank."""

    calls: list[LostCall] = field(default_factory=list)
    unmatched: list[int] = field(default_factory=list)
    """Events of recorded calls without a meeting: one of them may be the call that seems lost."""


def find_lost_calls(run: Run) -> dict[int, LostCalls]:
    """Return the lost calls of each rank, as far as other records show when they ended."""
    lost: dict[int, LostCalls] = {}
    if not run.rows(_IS_ANY):
        return lost
    for channel in _channels(run):
        for rank, call in _find(channel):
            lost.setdefault(rank, LostCalls()).calls.append(call)
    for rank, event in run.rows(_UNMATCHED):
        if rank in lost:
            lost[rank].unmatched.append(event)
    return lost


@dataclass(frozen=True, slots=True)
class _Channel:
    """Calls of ranks that meet again and again: a row for each member and a column for each meeting."""

    members: Rows
    meetings: Rows
    step: Rows
    event: Rows
    """-1 if the member has no record."""
    start: Ns
    stop: Ns
    kind: Rows
    """Operation and size of each meeting."""


def _channels(run: Run) -> Iterator[_Channel]:
    """Yield the groups and pairs of ranks that lack a record."""
    about, calls = run.columns(_MEETINGS), run.columns(_CALLS)
    meeting, step = about["meeting"].astype(np.int64), about["step"].astype(np.int64)
    group = np.unique(about["group_id"].astype(str), return_inverse=True)[1]
    facts = [group, *(about[name] for name in ("is_transfer", "sender", "members", "first", "last", "total"))]
    channel = np.unique(np.stack([fact.astype(np.int64) for fact in facts]), axis=1, return_inverse=True)[1].ravel()
    lacking = np.isin(channel, channel[about["is_lacking"].astype(bool)])
    at = np.searchsorted(meeting, calls["meeting"].astype(np.int64))
    rows = np.flatnonzero(lacking[at])
    place = np.empty(meeting.size, np.int64)
    for _, own in group_rows(channel):
        place[own] = np.arange(own.size)
    of_channel = {int(number): own for number, own in group_rows(channel)}
    for number, some in group_rows(channel[at[rows]]):
        own, mine = of_channel[number], rows[some]
        members, row = np.unique(calls["rank"][mine].astype(np.int64), return_inverse=True)
        column, shape = place[at[mine]], (members.size, own.size)
        event, start, stop = np.full(shape, -1, np.int64), np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        kind = np.zeros(own.size, np.uint64)
        event[row, column] = calls["event"][mine]
        start[row, column], stop[row, column] = calls["start"][mine], calls["stop"][mine]
        recorded = calls["event"][mine] >= 0
        kind[column[recorded]] = calls["kind"][mine][recorded]
        kinds = np.unique(kind, return_inverse=True)[1]
        yield _Channel(members, meeting[own], step[own], event, start, stop, kinds)


def _find(channel: _Channel) -> Iterator[tuple[int, LostCall]]:
    """Yield the ranks and calls that are lost; a call that shares no other call with a recorded member is left out."""
    seen = channel.event >= 0
    took = np.where(seen, channel.stop - channel.start, np.iinfo(np.int64).max).min(axis=0)
    usual = {kind: int(np.median(took[own])) for kind, own in group_rows(channel.kind)}
    time = _column_times(channel, seen)
    for member in np.flatnonzero(~seen.all(axis=1)).tolist():
        known = np.flatnonzero(seen[member])
        known = known[np.argsort(time[known], kind="stable")]
        alike = {kind: channel.event[member, known[own]] for kind, own in group_rows(channel.kind[known])}
        for column in np.flatnonzero(~seen[member]).tolist():
            kind = int(channel.kind[column])
            stop = _end(channel, seen, member, column, _nearest(time, known, column))
            if stop is not None:
                own = alike.get(kind, channel.event[member, known])
                step, meeting = int(channel.step[column]), _key(int(channel.meetings[column]))
                yield int(channel.members[member]), LostCall(meeting, step, stop, usual[kind], own)


def _key(meeting: int) -> Hashable:
    """Return what names a meeting when parts are joined: its number, or rank and event of its only record."""
    alone = -1 - meeting
    return meeting if meeting >= 0 else (alone >> _EVENT_BITS, alone & ((1 << _EVENT_BITS) - 1))


def _column_times(channel: _Channel, seen: npt.NDArray[np.bool_]) -> Ns:
    """Return when each meeting ended, on the clock of the member with the most records, to find neighbours by."""
    most = int(seen.sum(axis=1).argmax())
    apart = np.zeros(channel.members.size, np.int64)
    for member in range(channel.members.size):
        shared = seen[member] & seen[most]
        if shared.any():
            apart[member] = int(np.median(channel.stop[member, shared] - channel.stop[most, shared]))
    first = np.where(seen[most], most, seen.argmax(axis=0))
    time: Ns = channel.stop[first, np.arange(first.size)] - apart[first]
    return time


def _nearest(time: Ns, known: Rows, column: int) -> list[int]:
    """Return the known columns next before and after a column, the nearer one first."""
    at = int(np.searchsorted(time[known], time[column]))
    beside = known[max(at - 1, 0) : at + 1].tolist()
    return sorted(beside, key=lambda other: abs(int(time[other] - time[column])))


def _end(channel: _Channel, seen: npt.NDArray[np.bool_], member: int, column: int, beside: list[int]) -> int | None:
    """Return when a call that a member has no record of ended, on its clock; None if no neighbour shows it."""
    for other in beside:
        shared = seen[:, column] & seen[:, other]
        if shared.any():
            later = channel.stop[shared, column] - channel.stop[shared, other]
            return int(channel.stop[member, other]) + int(np.median(later))
    return None
