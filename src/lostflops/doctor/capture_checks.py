"""Checks of a run's capture: what its collector could not measure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lostflops.core.units import pluralise
from lostflops.doctor.check import DoctorCheck
from lostflops.live.follow import Follower
from lostflops.live.notices import LEVELS, name_ranks
from lostflops.live.sessions import UNREADABLE, Attempt, LiveSession, join


@dataclass(slots=True, kw_only=True)
class _Seen:
    sessions: dict[str, LiveSession] = field(default_factory=dict)
    dropped: dict[str, int] = field(default_factory=dict)
    lost: int = 0
    levels: dict[int, tuple[int, str]] = field(default_factory=dict)
    """By rank: the level at which it recorded least, and why."""
    ended: set[str] = field(default_factory=set)
    notes: Counter[str] = field(default_factory=Counter)
    reasons: dict[str, str] = field(default_factory=dict)
    noted_by: dict[str, set[int]] = field(default_factory=dict)
    damaged: int = 0
    unreadable: int = 0

    def take(self, rank: int, session: str, record: dict[str, Any]) -> None:
        kind = record.get("kind")
        if kind == "session":
            self.sessions[session] = LiveSession.of(record)
        elif kind == "collectives":
            self.lost += record.get("lost") or 0
        elif kind == "overhead":
            found = (int(record["level"]), str(record.get("reason") or ""))
            self.levels[rank] = max(self.levels.get(rank, (0, "")), found)
        elif kind == "note":
            self.notes[record["what"]] += record.get("count", 1)
            self.reasons[record["what"]] = record.get("reason") or ""
            self.noted_by.setdefault(record["what"], set()).add(rank)
        elif kind == "end":
            self.ended.add(session)


def capture_checks(folder: Path) -> list[DoctorCheck]:
    follower, seen = Follower(folder=folder, is_whole=True), _Seen()
    for frame in follower.poll():
        seen.dropped[frame.session] = max(seen.dropped.get(frame.session, 0), frame.dropped)
        for record in frame.records:
            try:
                seen.take(frame.rank, frame.session, record)
            except UNREADABLE:
                seen.unreadable += 1
    seen.damaged = follower.damaged
    if not seen.sessions:
        return [
            DoctorCheck(
                name="run: ranks",
                state="no",
                finding="no process recorded anything",
                consequence="there is no data on this job",
            )
        ]
    return [_ranks(seen), _records(seen), _level(seen), *_notes(seen)]


def _ranks(seen: _Seen) -> DoctorCheck:
    """Check the ranks of the newest attempt: the data of an older attempt does not help it."""
    attempts: list[Attempt] = []
    join(attempts, seen.sessions.values())
    newest = attempts[-1]
    open_ranks = sorted({session.rank for name, session in seen.sessions.items() if name not in seen.ended})
    finding = f"{len(newest.sessions):,} of {pluralise(newest.world_size, 'rank')}"
    finding += f", {pluralise(len(seen.sessions), 'session')}"
    finding += f" in {pluralise(len(attempts), 'attempt')}" if len(attempts) > 1 else ""
    if missing := set(range(newest.world_size)) - newest.sessions.keys():
        return DoctorCheck(
            name="run: ranks",
            state="limited",
            finding=finding,
            consequence=f"there is no data on {name_ranks(missing)}",
            remedy="check that every host writes to the same folder",
        )
    return DoctorCheck(
        name="run: ranks",
        state="ok",
        finding=finding + (f"; still running or killed: {name_ranks(open_ranks)}" if open_ranks else ""),
    )


def _records(seen: _Seen) -> DoctorCheck:
    dropped = sum(seen.dropped.values())
    finding = f"{dropped:,} dropped, {seen.lost:,} collectives overwritten, {seen.damaged:,} damaged sections"
    finding += f", {seen.unreadable:,} from another version" if seen.unreadable else ""
    if dropped or seen.lost or seen.damaged or seen.unreadable:
        return DoctorCheck(
            name="run: records",
            state="limited",
            finding=finding,
            consequence="counts and sums of this run are too low by that much",
            remedy="use a faster disk for dropped records, a larger TORCH_FR_BUFFER_SIZE for overwritten collectives",
        )
    return DoctorCheck(name="run: records", state="ok", finding="none lost")


def _level(seen: _Seen) -> DoctorCheck:
    reduced = {rank: level for rank, level in seen.levels.items() if level[0] > 0}
    if not reduced:
        return DoctorCheck(name="run: overhead", state="ok", finding="the collector stayed within its budget")
    worst, reason = max(reduced.values())
    records = LEVELS[min(worst, len(LEVELS) - 1)]
    return DoctorCheck(
        name="run: overhead",
        state="limited",
        finding=f"{name_ranks(reduced)}: {reason or 'the budget was exceeded'}",
        consequence=f"at times the collector recorded {records}",
        remedy="allow more with --overhead",
    )


def _notes(seen: _Seen) -> list[DoctorCheck]:
    return [
        DoctorCheck(
            name=f"run: {what}",
            state="limited",
            finding=f"{pluralise(count, 'time')} on {name_ranks(seen.noted_by[what])}",
            consequence=seen.reasons[what] or "the collector gave no reason",
        )
        for what, count in sorted(seen.notes.items())
    ]
