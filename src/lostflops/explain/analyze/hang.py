"""Which ranks block a job that hangs, and what did they do last?

The answer comes from Flight Recorder dumps. A rank waits for its pending entry, and a pending collective waits for the
members of its group that have not entered it. These may in turn wait in another group or for a transfer; the culprits
are the ranks at the end of this chain:

| why | what the dumps show |
|---|---|
| `never arrived` | others are in the collective or transfer, this rank never enqueued it, and it has nothing pending |
| `stalled` | it is still in a collective that others completed, which needs all ranks to arrive: its device is stuck |
| `ahead` | it is in a collective that most of its group never called: they are idle, or wait for it elsewhere |
| `alone` | as `ahead`, but the dumps do not show whether the others never called it or completed it |
| `mismatch` | it called another operation, size or type than the others under the same number, or in another order |
| `no dump` | it is a member of a group and wrote no dump: it may have died, or its dump is not among the given files |

A rank is blocked by its oldest pending entry; a younger entry that is only `scheduled` counts as not yet reached. If
ranks wait for each other in a ring, or disagree about a call, the smaller side is named; if both sides are equal, all
are named. If an entry is missing from a dump although newer entries of its group are there, or if the ring buffer may
have been overwritten, the rank is `unknown`. The two ends of a transfer share no number: a peer without a pending
counterpart counts as not there. If all ranks are in a collective and none leaves it, the dumps do not show the culprit,
and the verdict says so.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from lostflops.account.flight.blame import Blame, Culprit, blame
from lostflops.account.flight.mismatch import mismatches
from lostflops.account.flight.standing import LastEntry, StalledAt, Standings, stalled_lines, standings
from lostflops.account.flight.waits import Meeting, WaitGraph, waits
from lostflops.core.errors import UsageError
from lostflops.core.results import Field, Result, Table, Value
from lostflops.core.units import format_time, pluralise

if TYPE_CHECKING:
    from lostflops.store.run import Run

MOST_ROWS: Final = 20
MOST_NAMED: Final = 4
MOST_RANGES: Final = 12

NO_DUMPS: Final = (
    "no Flight Recorder dump found. Start the job with TORCH_FR_BUFFER_SIZE=2000, TORCH_NCCL_DUMP_ON_TIMEOUT=1 and "
    "TORCH_FR_DUMP_TEMP_FILE=/shared/fr_rank_ (older PyTorch: TORCH_NCCL_TRACE_BUFFER_SIZE and "
    "TORCH_NCCL_DEBUG_INFO_TEMP_FILE), and pass the files that it writes when it hangs."
)


def hang(run: Run, *, limit: int = MOST_ROWS) -> Result:
    stands, lines = standings(run), stalled_lines(run)
    if not stands.ranks and not lines:
        raise UsageError(NO_DUMPS)
    waiting = waits(stands)
    found = blame(stands, waiting, mismatches(run))
    culprits = _culprits(stands, waiting, found, lines, limit)
    blocks = culprits, _groups(stands, waiting, found, limit), _mismatches(found, limit)
    return Result(
        name="hang",
        title="Which ranks block the job",
        verdict=_verdict(stands, waiting, found, lines),
        blocks=tuple(block for block in blocks if block.rows),
        more=tuple(block for block in blocks if not block.rows),
        notes=(*_notes(stands, found), *_note_assigned_ranks(run)),
    )


Lines = Mapping[int, StalledAt]


def _verdict(stands: Standings, waiting: WaitGraph, found: Blame, lines: Lines) -> str:
    pending = sum(stand.front is not None for stand in stands.ranks.values())
    if not pending and lines:
        known = (
            "No rank waits in a collective or transfer." if stands.ranks else "No rank wrote a Flight Recorder dump."
        )
        return f"{known} {_whereabouts(lines)}"
    if not pending:
        return f"No hang is visible: nothing is pending on {pluralise(len(stands.ranks), 'rank')}."
    if found.culprits:
        named = [_phrase(waiting, found, culprit) + _at(culprit, lines) for culprit in found.culprits[:MOST_NAMED]]
        more = len(found.culprits) - len(named)
        rest = f"; and {pluralise(more, 'more rank')}" if more else ""
        return _sentence("; ".join(named)) + rest + "." + _held_up(found)
    if found.full:
        meeting = max(found.full, key=lambda meeting: len(waiting.rolls[meeting].at))
        there = waiting.rolls[meeting].at
        return (
            f"Culprit unknown: {_ranks(there)} {'is' if len(there) == 1 else 'are'} in {_place(waiting, meeting)}; no "
            "rank is missing, but none leaves it. Suspect the network or a device, and check the stacks of these ranks."
        )
    return (
        f"Culprit unknown: {pluralise(pending, 'rank')} {'has' if pending == 1 else 'have'} "
        "pending calls, and the dumps "
        "do not show which rank they wait for."
    )


def _at(culprit: Culprit, lines: Lines) -> str:
    at = lines.get(culprit.rank)
    return f" and is at {at.line}" if at else ""


def _whereabouts(lines: Lines) -> str:
    """Return where ranks are whose step does not end, most ranks first."""
    ranks_at: dict[str, list[int]] = defaultdict(list)
    for rank, at in sorted(lines.items()):
        ranks_at[at.line].append(rank)
    places = sorted(ranks_at.items(), key=lambda item: -len(item[1]))
    parts = [f"{_ranks(ranks)} {'is' if len(ranks) == 1 else 'are'} at {line}" for line, ranks in places[:MOST_NAMED]]
    more = len(places) - len(parts)
    return _sentence("; ".join(parts)) + (f"; others are at {pluralise(more, 'more line')}." if more else ".")


def _held_up(found: Blame) -> str:
    if not found.held_up:
        return ""
    verb, whom = "waits" if found.held_up == 1 else "wait", "it" if len(found.culprits) == 1 else "them"
    return f" {pluralise(found.held_up, 'other rank')} {verb} for {whom}."


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _phrase(waiting: WaitGraph, found: Blame, culprit: Culprit) -> str:
    rank, where = f"rank {culprit.rank}", _place(waiting, culprit.meeting) if culprit.meeting else "anything"
    if culprit.why == "mismatch":
        mismatch = next(each for each in found.mismatches if culprit.rank in each.ranks)
        at = "" if mismatch.what == "order" else f" at {mismatch.seq} of {_group(mismatch.group)}"
        return f"{rank} called {mismatch.called}{at}, others {mismatch.others}"
    return {
        "never arrived": f"{rank} never arrived at {where}",
        "stalled": f"{rank} never finished {where}, which others completed",
        "ahead": f"{rank} is in {where}, which the others never called",
        "alone": f"{rank} is alone in {where}",
        "no dump": f"{rank} wrote no dump",
    }[culprit.why]


def _place(waiting: WaitGraph, meeting: Meeting) -> str:
    roll = waiting.rolls[meeting]
    return f"{_op(waiting, meeting)} {roll.number} of {_group(meeting.group)}"


def _group(name: str) -> str:
    """Return the name of a group, which is a bare number while its members are not recorded yet."""
    return name if "@" in name else f"group {name}"


def _op(waiting: WaitGraph, meeting: Meeting) -> str:
    if meeting.seq is None:
        return f"transfer {meeting.sender}->{meeting.receiver}"
    return waiting.rolls[meeting].op if meeting in waiting.rolls else ""


def _culprits(stands: Standings, waiting: WaitGraph, found: Blame, lines: Lines, limit: int) -> Table:
    rows: list[tuple[Value, ...]] = []
    for rank, why, meeting, count in found.culprits:
        last = stands.ranks[rank].last if rank in stands.ranks else LastEntry()
        if meeting is None:
            place: tuple[Value, ...] = (None, None, None)
        else:
            roll = waiting.rolls.get(meeting)
            place = (meeting.group, roll.number if roll else meeting.seq, _op(waiting, meeting) or None)
        at = lines.get(rank)
        rows.append((rank, why, *place, count, at and at.line, *last, at and at.stack))
    fields = (
        Field("rank"),
        Field("why"),
        Field("group"),
        Field("seq"),
        Field("op"),
        Field("waiting", "count", "ranks waiting"),
        Field("line", "", "line of the program", shown=bool(lines)),
        *(Field(name, within="last", shown=False) for name in LastEntry._fields),
        Field("stack", shown=False),
    )
    return _table("culprits", "Ranks that the others wait for", fields, rows, limit)


def _groups(stands: Standings, waiting: WaitGraph, found: Blame, limit: int) -> Table:
    blamed = {culprit.rank for culprit in found.culprits}
    rows: list[tuple[int, tuple[Value, ...]]] = []
    for meeting, roll in waiting.rolls.items():
        group = stands.groups[meeting.group]
        involved = len(blamed.intersection(roll.absent + roll.silent + roll.missing))
        row: tuple[Value, ...] = (
            meeting.group,
            group.description,
            _op(waiting, meeting),
            roll.number,
            2 if meeting.seq is None else len(group.members),
            ranks_text([*roll.at, *roll.queued]),
            ranks_text(roll.started),
            ranks_text(roll.passed),
            ranks_text([*roll.absent, *roll.silent]),
            ranks_text(roll.missing),
            ranks_text(roll.unknown),
        )
        rows.append((-involved if involved else len(roll.passed) == 0, row))
    rows.sort(key=lambda item: (item[0], str(item[1][0]), str(item[1][2]), str(item[1][3])))
    fields = (
        Field("group"),
        Field("description", shown=False),
        Field("op"),
        Field("seq"),
        Field("members", "count"),
        Field("enqueued", "", "enqueued by ranks"),
        Field("started", shown=False),
        Field("completed", "", "completed by ranks", shown=any(row[7] for _, row in rows)),
        Field("never_arrived", "", "missing ranks"),
        Field("no_dump", "", "ranks without dump", shown=any(row[9] for _, row in rows)),
        Field("unknown", "", "unknown ranks", shown=any(row[10] for _, row in rows)),
    )
    return _table("groups", "Pending calls, by group", fields, [row for _, row in rows], limit)


def _mismatches(found: Blame, limit: int) -> Table:
    rows: list[tuple[Value, ...]] = [
        (each.group, each.seq, each.what, ranks_text(each.ranks), each.called, each.others) for each in found.mismatches
    ]
    fields = Field("group"), Field("seq"), Field("what"), Field("ranks"), Field("called"), Field("others")
    return _table("mismatches", "Calls that do not match", fields, rows, limit)


def _table(name: str, title: str, fields: tuple[Field, ...], rows: list[tuple[Value, ...]], limit: int) -> Table:
    return Table(name, title, fields, tuple(rows), most_shown=limit)


def ranks_text(ranks: Iterable[int]) -> str:
    """Format ranks as ranges.

    >>> ranks_text([9, 0, 1, 2, 5]), ranks_text([]), ranks_text(range(0, 60, 2))
    ('0-2,5,9', '', '0,2,4,6,8,10,12,14,16,18,20,22,... 30 ranks')
    """
    ordered = sorted(ranks)
    ranges: list[list[int]] = []
    for rank in ordered:
        if ranges and ranges[-1][1] == rank - 1:
            ranges[-1][1] = rank
        else:
            ranges.append([rank, rank])
    texts = [str(first) if first == last else f"{first}-{last}" for first, last in ranges[:MOST_RANGES]]
    return ",".join(texts + ([f"... {len(ordered)} ranks"] if len(ranges) > MOST_RANGES else []))


def _notes(stands: Standings, found: Blame) -> tuple[str, ...]:
    notes = [_last(culprit.rank, stands) for culprit in found.culprits[:MOST_NAMED] if culprit.why != "no dump"]
    if stands.missing:
        notes.append(f"No dump from {_ranks(stands.missing)}: the process died, or its file is not among those given.")
    notes += [
        f"{_sentence(_ranks(ring))} wait for each other; the dumps do not show which is wrong." for ring in found.tied
    ]
    if found.unclear:
        names = ", ".join(f"{meeting.group}" for meeting in found.unclear[:MOST_NAMED])
        notes.append(f"The dumps do not show whether some members of {names} arrived.")
    if unlisted := [name for name, group in stands.groups.items() if not group.is_known]:
        notes.append(
            f"Not all members of {', '.join(sorted(unlisted)[:MOST_NAMED])} are known; others may be absent too."
        )
    if stands.peers_unknown:
        notes.append(f"Left out: {pluralise(stands.peers_unknown, 'pending transfer')} with an unknown peer.")
    if found.culprits or found.full:
        notes.append("This is the state when the dumps were written. If the job still makes progress, dump again.")
    return tuple(notes)


def _note_assigned_ranks(run: Run) -> tuple[str, ...]:
    ((count,),) = run.rows("select count(*) from ranks where rank_source = 'assigned'")
    if not count:
        return ()
    return (f"The rank of {pluralise(count, 'file')} is unknown: numbers were assigned and may be wrong.",)


def _last(rank: int, stands: Standings) -> str:
    last = stands.ranks[rank].last
    if last.op is None:
        return f"Rank {rank} has no entry in its dump: nothing that it enqueued is pending."
    what = f"{last.op} {last.seq} of {_group(last.group or '')}"
    when = f" at {format_time(last.created)} UTC" if last.created else ""
    where = f" from {last.source}" if last.source else ""
    return f"Last call of rank {rank}: {what} ({last.state or 'over'}){when}{where}."


def _ranks(ranks: Sequence[int]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {ranks_text(ranks)}"
