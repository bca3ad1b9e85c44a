"""How far is each rank, by its Flight Recorder dump?

Entries are reduced in SQL to a few rows for each rank and group. An entry is pending while it is `scheduled` or
`started`. Single operations of a coalesced call never change their state; they are over when the entry of the whole
call is. A recorder may be set to dump active entries only (TORCH_INCLUDE_ONLY_ACTIVE): then entries that are over are
missing, including the entry of a coalesced call.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from lostflops.account.facts.groups import members
from lostflops.account.facts.source_code import PROGRAM, code_of, function_of, place_of

if TYPE_CHECKING:
    from lostflops.store.run import Run

DEFAULT_GROUP: Final = "0"
"""PyTorch's name of the group of all ranks; gloo dumps do not list its members."""
SMALLEST_RING: Final = 100
"""Fewer entries than this never filled a ring, which holds 2,000 by default."""

ENTRIES: Final = """
    with entries as not materialized (
        select rank, record, coalesce(group_id, group_name) as group_id, seq, coalesce(seq, p2p_seq) as number, op,
               name, coalesce(is_p2p, false) as is_p2p, state, created, source, op_id, dtype, bytes_in, bytes_out
        from flight where record is not null
    ),
    whole_calls as (
        select rank, group_id, is_p2p, number, bool_or(state in ('scheduled', 'started')) as is_pending
        from entries where op is null and name like '%coalesced' group by all
    ),
    dump as (
        select (select count(*) from entries where state is null or state = 'completed') > 0 as is_full,
               (select count(*) from whole_calls where is_p2p) > 0 as is_batched
    ),
    split_calls as (
        select rank, group_id, is_p2p, number from entries where (select not is_full from dump)
        group by all having count(*) > 1 or (is_p2p and (select is_batched from dump))
    ),
    over_calls as (
        select rank, group_id, is_p2p, number from whole_calls where not is_pending
        union
        (select * from split_calls except select rank, group_id, is_p2p, number from whole_calls)
    ),
    pending as (
        select entries.* from entries anti join over_calls using (rank, group_id, is_p2p, number)
        where state in ('scheduled', 'started')
    )"""

# Aggregates of numbers first, then the few rows that they point at.
_RANKS: Final = f"""{ENTRIES},
    ends as (
        select rank, count(*) as n, min(record) as oldest, max(record) as newest, min(created) as created,
               bool_or(state is null or state = 'completed') as is_full
        from entries group by rank
    ),
    fronts as (from pending qualify row_number() over (partition by rank order by record) = 1)
    select ends.rank, n, oldest, newest, ends.created, is_full,
           case when f.rank is not null then coalesce(f.group_id, '') end, f.is_p2p, f.number,
           coalesce(l.op, l.name), l.group_id, l.number, l.state, l.source, l.created
    from ends join entries l on l.rank = ends.rank and l.record = ends.newest
    left join fronts f on f.rank = ends.rank"""
_COLLECTIVES: Final = f"""{ENTRIES},
    ends as (
        select rank, group_id, max(seq) as newest, max(seq) filter (state = 'completed') as completed
        from entries where not is_p2p and seq is not null and group_id is not null group by rank, group_id
    ),
    fronts as (
        from pending where not is_p2p and seq is not null
        qualify row_number() over (partition by rank, group_id order by record) = 1
    )
    select rank, group_id, newest, completed, f.seq, coalesce(f.op, f.name), f.state, f.created
    from ends left join fronts f using (rank, group_id)"""
_TRANSFERS: Final = rf"""{ENTRIES}
    select rank, group_id, op, nullif(regexp_extract(name, '\d+ ?(?:->|<-) ?(\d+)', 1), '')::bigint as peer,
           coalesce(min(number), -1), any_value(op), arg_min(state, record), min(created)
    from pending where is_p2p and op in ('send', 'recv') and group_id is not null
    group by rank, group_id, op, peer"""
_MEMBERS: Final = "select group_id, rank, position, size, description from groups order by all"
_DUMPED: Final = """
    select rank from ranks where formats like '%flight_recorder%' union select rank from flight order by rank"""


_STALLS: Final = """
    select rank, arg_max(value, (attempt, value->>'$.time')) from job
    where key = 'stall' and attempt = (select max(attempt) from job) group by rank"""


class StalledAt(NamedTuple):
    """Where the training thread of a rank is whose step does not end."""

    line: str
    """Function, file and line of the program: the innermost that is not a library's."""
    stack: str
    """All frames, outermost first."""


def stalled_lines(run: Run) -> dict[int, StalledAt]:
    """Return where each rank is whose last step did not end, as the collector saw it."""
    found: dict[int, StalledAt] = {}
    for rank, text in run.rows(_STALLS):
        value = json.loads(text) if text else None
        stack = value.get("stack") if isinstance(value, dict) else None
        frames = [frame for frame in stack if isinstance(frame, str)] if isinstance(stack, list) else []
        if frames:
            found[rank] = StalledAt(_line(frames), "; ".join(frames))
    return found


def _line(frames: Sequence[str]) -> str:
    frame = next((frame for frame in reversed(frames) if code_of(frame) == PROGRAM), frames[-1])
    return f"{place_of(frame)} ({function_of(frame)})" if place_of(frame) else frame


class LastEntry(NamedTuple):
    """A rank's newest entry, the last thing that it enqueued."""

    op: str | None = None
    group: str | None = None
    seq: int | None = None
    state: str | None = None
    source: str | None = None
    created: int | None = None


class Front(NamedTuple):
    """A rank's oldest pending entry, which holds it up."""

    group: str
    is_p2p: bool
    number: int | None


class RankStand(NamedTuple):
    front: Front | None = None
    last: LastEntry = LastEntry()
    first_created: int | None = None
    is_wrapped: bool = False
    """Whether old entries may have been overwritten."""


class Pending(NamedTuple):
    number: int
    op: str
    state: str
    created: int | None


class GroupStand(NamedTuple):
    """How far a rank is with the collectives of a group."""

    newest: int
    """Newest that it enqueued."""
    completed: int | None
    """Newest that was seen to complete."""
    pending: Pending | None
    """Oldest pending."""


@dataclass(frozen=True, slots=True)
class GroupState:
    members: tuple[int, ...]
    rank_at: dict[int, int]
    """Rank by position within the group."""
    description: str | None = None
    is_known: bool = True
    """Whether all members are known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standings:
    is_full: bool
    """Whether dumps hold entries that are over, not active ones only."""
    ranks: dict[int, RankStand]
    groups: dict[str, GroupState]
    collectives: dict[str, dict[int, GroupStand]]
    transfers: dict[tuple[str, int, int], dict[int, Pending]]
    """By group, sender and receiver: the oldest pending entry of either end."""
    missing: tuple[int, ...]
    """Members of groups that wrote no dump."""
    peers_unknown: int
    """Pending transfers whose entry does not name the peer."""


def standings(run: Run) -> Standings:
    rows = run.rows(_RANKS)
    is_full = any(row[5] for row in rows)
    ranks = {rank: RankStand() for (rank,) in run.rows(_DUMPED)} | {row[0]: _rank_stand(row, is_full) for row in rows}
    collectives: dict[str, dict[int, GroupStand]] = defaultdict(dict)
    for rank, group, newest, completed, *pending in run.rows(_COLLECTIVES):
        collectives[group][rank] = GroupStand(newest, completed, Pending(*pending) if pending[2] else None)
    waiting = run.rows(_TRANSFERS)
    groups = _groups(run, ranks, collectives, waiting)
    transfers: dict[tuple[str, int, int], dict[int, Pending]] = defaultdict(dict)
    peers_unknown = 0
    for rank, group, op, position, *pending in waiting:
        peer = groups[group].rank_at.get(position)
        if peer is None:
            peers_unknown += 1
            continue
        ends = (rank, peer) if op == "send" else (peer, rank)
        transfers[group, *ends][rank] = Pending(*pending)
    members = {rank for group in groups.values() for rank in group.members}
    missing = tuple(sorted(members - ranks.keys()))
    return Standings(
        is_full=is_full,
        ranks=ranks,
        groups=groups,
        collectives=dict(collectives),
        transfers=dict(transfers),
        missing=missing,
        peers_unknown=peers_unknown,
    )


def _rank_stand(row: tuple[Any, ...], is_full: bool) -> RankStand:
    _, entries, oldest, newest, first_created, _, *ends = row
    op, group, number, state, source, created = ends[3:]
    return RankStand(
        front=Front(*ends[:3]) if ends[0] is not None else None,
        last=LastEntry(op, group, number, state, source, created),
        first_created=first_created,
        is_wrapped=oldest > 0 and (is_full or (entries >= SMALLEST_RING and entries == newest - oldest + 1)),
    )


def _groups(
    run: Run,
    ranks: dict[int, RankStand],
    collectives: dict[str, dict[int, GroupStand]],
    waiting: list[tuple[Any, ...]],
) -> dict[str, GroupState]:
    found: dict[str, list[tuple[int, int | None, int, str | None]]] = defaultdict(list)
    for group, *row in run.rows(_MEMBERS):
        found[group].append((row[0], row[1], row[2], row[3]))
    groups = {group: _group(group, rows) for group, rows in found.items()}
    for group in collectives.keys() | {row[1] for row in waiting}:
        if group not in groups:
            groups[group] = _infer_group_state(group, ranks, collectives, waiting)
    return groups


def _group(group: str, rows: list[tuple[int, int | None, int, str | None]]) -> GroupState:
    listed = parse_members(group)
    members = listed or tuple(sorted({row[0] for row in rows}))
    rank_at = {position: rank for rank, position, _, _ in rows if position is not None}
    if all(members[position] == rank for position, rank in rank_at.items() if position < len(members)):
        rank_at = dict(enumerate(members)) if listed else rank_at
    return GroupState(members, rank_at, rows[0][3], len(members) == rows[0][2])


def _infer_group_state(
    group: str,
    ranks: dict[int, RankStand],
    collectives: dict[str, dict[int, GroupStand]],
    waiting: list[tuple[Any, ...]],
) -> GroupState:
    """Return a group whose members no dump lists: all ranks for the default group, else those seen in it."""
    if group == DEFAULT_GROUP:
        return GroupState(tuple(sorted(ranks)), {rank: rank for rank in ranks})
    seen = collectives.get(group, {}).keys() | {row[0] for row in waiting if row[1] == group}
    return GroupState(tuple(sorted(seen)), {}, None, is_known=False)


def parse_members(group_id: str) -> tuple[int, ...]:
    """Return the members that the id of a group lists; empty if it does not.

    >>> parse_members("12@1-7/2"), parse_members("0@0-2"), parse_members("5@3"), parse_members("7@0,3,4")
    ((1, 3, 5, 7), (0, 1, 2), (3,), (0, 3, 4))
    >>> parse_members("0@0..4096#b370d3c30c7d"), parse_members("0")
    ((), ())
    """
    _, at, text = group_id.rpartition("@")
    if not at:
        return ()
    return (int(text),) if text.isascii() and text.isdigit() else members(group_id)
