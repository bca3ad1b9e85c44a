"""Rows of one rank from its records, written in batches, so that memory does not grow with the file."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

import msgspec

from lostflops.collect.capture import Frame
from lostflops.ingest.common.group_ids import group_id
from lostflops.ingest.common.ops import canonical_op
from lostflops.ingest.common.refusals import refuse_large_job
from lostflops.ingest.formats.capture import records
from lostflops.ingest.formats.capture.stats import CaptureStats
from lostflops.store.parts import PartWriter
from lostflops.store.tables import (
    ATTEMPTS,
    CLOCK_SAMPLES,
    ENQUEUES,
    GROUPS,
    HOLDINGS,
    JOB,
    MARKS,
    NETWORK,
    PARAMETERS,
    SAMPLES,
    STATS,
    TIMINGS,
    TableSchema,
    table,
)

_BATCH: Final = 10_000
_MOST_AWAITED: Final = 8_192
"""Steps that are held back for their device time, which comes later."""
_ON_DEVICE: Final = {name: f"device_{name}" for name in ("time", "data", "forward", "backward", "optimizer")}
_PHASES: Final = ("data", "forward", "backward", "optimizer", "outside")
_FLAGS: Final = ("skipped", "compiled", "profiled")
_USED: Final = ("cpu", "queued", "system", "faults", "preempted", "saving", "evaluating", "comm_hook")
_MORE: Final = (
    "microbatches",
    "samples",
    "tokens",
    "peak_memory",
    "own",
    "gc",
    "gc_count",
    "kind_of_step",
    *_USED,
    *_FLAGS,
)
_OF_HOLDING: Final = ("device_type", "device_index", "address", "bytes", "owner", "name", "line")
_SAID_ONCE: Final = ("torch", "python", "lostflops", "script", "device")


@dataclass(slots=True, kw_only=True)
class _Session:
    """One process that was the rank."""

    name: str
    attempt: int
    expected: int = 0
    told: records.SessionRecord | None = None
    start: int | None = None
    stop: int | None = None
    ended: bool = False
    arrived: int = 0
    dropped: int = 0
    group_ids: dict[str, str] = field(default_factory=dict)
    groups: dict[str, records.GroupRecord] = field(default_factory=dict)
    """By name, as recorded early in the job: a program may destroy them before its ring is read."""
    stacks: dict[str, str] = field(default_factory=dict)
    holdings: dict[tuple[int, int], dict[str, Any]] = field(default_factory=dict)
    """By window and number; held back until everything about them is known."""

    def seen_at(self, *times: int | None) -> None:
        for time in times:
            if time is not None:
                self.start = time if self.start is None else min(self.start, time)
                self.stop = time if self.stop is None else max(self.stop, time)


class RankCapture:
    """Takes the frames of a rank in order, then finishes; sessions are numbered as they come, from `first_attempt`."""

    def __init__(self, rank: int, parts: PartWriter, first_attempt: int = 0) -> None:
        self.rank = rank
        self.rows: Counter[str] = Counter()
        self.stats = CaptureStats()
        self._parts = parts
        self._first = first_attempt
        self._sessions: dict[str, _Session] = {}
        self._pending: dict[str, dict[str, list[Any]]] = {}
        self._awaited: dict[tuple[int, int], dict[str, Any]] = {}
        self._parameters: list[records.ParameterRecord] = []
        self._groups: dict[str, dict[str, Any]] = {}
        self._backends: defaultdict[str, set[str]] = defaultdict(set)
        self._take: dict[type, Callable[[_Session, Any], None]] = {
            records.SessionRecord: self._session,
            records.StepRecord: self._step,
            records.DeviceStep: self._device_step,
            records.CollectivesRecord: self._collectives,
            records.Parameters: self._model,
            records.Fact: self._fact,
            records.ClockRecord: self._clock,
            records.WindowRecord: self._window,
            records.StacksRecord: self._stacks,
            records.HoldingsRecord: self._holdings,
            records.MarkRecord: self._mark,
            records.NetworkRecord: self._network,
            records.Note: self._note,
            records.Overhead: self._overhead,
            records.EndRecord: self._end,
        }

    @property
    def session(self) -> records.SessionRecord | None:
        """Session record of its newest process."""
        return next((one.told for one in reversed(self._sessions.values()) if one.told is not None), None)

    def take(self, frame: Frame) -> None:
        number = self._first + len(self._sessions)
        session = self._sessions.setdefault(frame.session, _Session(name=frame.session, attempt=number))
        session.dropped = max(session.dropped, frame.dropped)
        self.stats.add("records_missing", max(0, frame.first - session.expected))
        known = max(0, session.expected - frame.first)
        fresh = frame.records[known:]
        self.stats.add("repeated_records", len(frame.records) - len(fresh))
        session.expected = max(session.expected, frame.first + len(frame.records))
        for record in fresh:
            session.arrived += 1
            found = records.parse_record(record)
            if isinstance(found, str):
                self.stats.add(found, 1, records.kind_of(record))
            else:
                self._take[type(found)](session, found)

    def finish(self) -> None:
        self._release(len(self._awaited))
        for session in self._sessions.values():
            self._attempt(session)
            for row in session.holdings.values():
                self._put(HOLDINGS, row)
        for position, parameter in enumerate(self._parameters):
            row = {name: getattr(parameter, name) for name in parameter.__struct_fields__}
            for name in ("shape", "local_shape"):
                row[name] = None if row[name] is None else _json(row[name])
            self._put(PARAMETERS, {"position": position, **row})
        for identity, group in self._groups.items():
            used = self._backends[identity]
            self._put(GROUPS, {**group, "backend": next(iter(used)) if len(used) == 1 else None})
        for what, effect, count, reason in self.stats.rows():
            self._put(STATS, {"format": "capture", "what": what, "effect": effect, "count": count, "reason": reason})
        for name in list(self._pending):
            self._hand_on(name)

    def _session(self, session: _Session, told: records.SessionRecord) -> None:
        refuse_large_job(f"a session of rank {self.rank}", self.rank, told.world_size)
        session.told = told
        session.seen_at(told.wall)
        for key in _SAID_ONCE:
            if (value := getattr(told, key)) is not None:
                self._put(JOB, {"attempt": session.attempt, "key": key, "value": _json(value)})

    def _step(self, session: _Session, step: records.StepRecord) -> None:
        session.seen_at(step.start, step.stop)
        row = {name: getattr(step, name) for name in ("step", "start", "stop", *_PHASES, *_MORE)}
        key = session.attempt, step.step
        if key in self._awaited:
            self._put(TIMINGS, self._awaited.pop(key))
        self._awaited[key] = {"attempt": session.attempt, **dict.fromkeys(_ON_DEVICE.values()), **row}
        if len(self._awaited) > _MOST_AWAITED:
            self._release(_MOST_AWAITED // 2)

    def _device_step(self, session: _Session, device: records.DeviceStep) -> None:
        row = self._awaited.get((session.attempt, device.step))
        if row is None:
            self.stats.add("device_times_without_step")
        else:
            row |= {column: getattr(device, name) for name, column in _ON_DEVICE.items()}

    def _release(self, count: int) -> None:
        for key in list(self._awaited)[:count]:
            self._put(TIMINGS, self._awaited.pop(key))

    def _collectives(self, session: _Session, found: records.CollectivesRecord) -> None:
        self.stats.add("ring_entries_lost", found.lost)
        for name, group in found.groups.items():
            session.group_ids[name] = self._group(name, group)
        entries = records.entries(found.entries)
        self.stats.add("malformed_entries", len(found.entries) - len(entries))
        if not entries:
            return
        for name in {entry.group_name for entry in entries}:
            if name in session.groups and name not in session.group_ids:
                session.group_ids[name] = self._group(name, session.groups[name])
        known = [session.group_ids.get(entry.group_name) for entry in entries]
        self.stats.add("enqueues_without_group", known.count(None))
        times = [entry.created or None for entry in entries]
        seen = [time for time in times if time is not None]
        session.seen_at(min(seen, default=None), max(seen, default=None))
        columns: dict[str, list[Any]] = {
            name: [getattr(entry, name) for entry in entries]
            for name in ("record", "seq", "is_p2p", "bytes_in", "bytes_out")
        }
        columns["attempt"] = [session.attempt] * len(entries)
        columns |= {"group_id": known, "op": [_op(entry.op_name) for entry in entries], "created": times}
        columns["name"] = [entry.op_name for entry in entries]
        self._extend(ENQUEUES, columns)
        for identity, title in {(one, entry.op_name) for entry, one in zip(entries, known, strict=True)}:
            if identity is not None:
                self._backends[identity].add(title.partition(":")[0])

    def _group(self, name: str, group: records.GroupRecord) -> str:
        identity = group_id(name, group.ranks)
        row = {
            "group_id": identity,
            "position": group.ranks.index(self.rank) if self.rank in group.ranks else None,
            "size": len(group.ranks),
            "name": name,
            "description": None if group.description in ("", "undefined") else group.description,
        }
        self._groups.setdefault(identity, row)
        return identity

    def _model(self, _session: _Session, found: records.Parameters) -> None:
        self._parameters = found.parameters

    def _fact(self, session: _Session, fact: records.Fact) -> None:
        self._put(JOB, {"attempt": session.attempt, "key": fact.key, "value": _json(fact.value)})
        if fact.key == "groups":
            session.groups |= records.groups(fact.value)

    def _clock(self, session: _Session, clock: records.ClockRecord) -> None:
        session.seen_at(clock.wall)
        self._put(CLOCK_SAMPLES, {name: getattr(clock, name) for name in clock.__struct_fields__})

    def _window(self, session: _Session, window: records.WindowRecord) -> None:
        session.seen_at(window.time)
        self._put(JOB, {"attempt": session.attempt, "key": "window", "value": _json(window)})
        if window.state in ("exported", "skipped", "failed"):
            self.stats.add(f"windows_{window.state}", 1, window.reason or "")

    def _stacks(self, session: _Session, found: records.StacksRecord) -> None:
        session.stacks |= found.names
        for time, number in found.samples:
            session.seen_at(time)
            stack = session.stacks.get(str(number))
            if stack is None:
                self.stats.add("samples_without_stack")
            else:
                self._put(SAMPLES, {"time": time, "stack": stack})

    def _holdings(self, session: _Session, found: records.HoldingsRecord) -> None:
        session.seen_at(found.time)
        for seen in found.rows:
            key = found.window, seen.number
            row = session.holdings.setdefault(key, {"time": found.time, "gone": None, "before": found.before})
            row |= {name: getattr(seen, name) for name in _OF_HOLDING}
        for number in found.gone:
            row = session.holdings.get((found.window, number), {})
            if row.get("gone", found) is None:
                row["gone"] = found.time

    def _mark(self, session: _Session, mark: records.MarkRecord) -> None:
        session.seen_at(mark.time)
        row = {name: getattr(mark, name) for name in mark.__struct_fields__}
        self._put(MARKS, {"attempt": session.attempt, **row})

    def _network(self, session: _Session, seen: records.NetworkRecord) -> None:
        session.seen_at(seen.time)
        rows: list[tuple[str, str | None, int, int, int | None]]
        rows = [("host", name, received, sent, None) for name, received, sent in seen.interfaces]
        rows += [("process", place, *traffic) for place, traffic in zip(("lo", None), seen.own, strict=False)]
        for scope, interface, received, sent, resent in rows:
            row = {"attempt": session.attempt, "time": seen.time, "scope": scope, "interface": interface}
            self._put(NETWORK, {**row, "received": received, "sent": sent, "resent": resent})

    def _note(self, _session: _Session, note: records.Note) -> None:
        self.stats.note(note.what, note.count, note.reason or "")

    def _overhead(self, _session: _Session, overhead: records.Overhead) -> None:
        self.stats.add("collector_reduced", int(overhead.level > 0), overhead.reason or "")

    def _end(self, session: _Session, end: records.EndRecord) -> None:
        session.ended = True
        session.seen_at(end.wall)

    def _attempt(self, session: _Session) -> None:
        told = session.told
        self.stats.add("records_dropped", session.dropped)
        self.stats.add("killed", int(not session.ended))
        self.stats.add("sessions_without_start", int(told is None))
        self._put(
            ATTEMPTS,
            {
                "attempt": session.attempt,
                "session": session.name,
                **{name: getattr(told, name, None) for name in ("host", "world_size", "local_rank", "restart")},
                "start": session.start,
                "stop": session.stop,
                "ended": session.ended,
                "records": session.arrived,
                "dropped": session.dropped,
            },
        )

    def _put(self, declared: TableSchema, row: dict[str, Any]) -> None:
        self._extend(declared, {name: [value] for name, value in row.items()})

    def _extend(self, declared: TableSchema, columns: dict[str, list[Any]]) -> None:
        held = self._pending.setdefault(declared.name, {name: [] for name in columns})
        for name, values in columns.items():
            held[name] += values
        if len(next(iter(held.values()))) >= _BATCH:
            self._hand_on(declared.name)

    def _hand_on(self, name: str) -> None:
        columns = self._pending.pop(name)
        rows = len(next(iter(columns.values())))
        self.rows[name] += rows
        self._parts.put(table(name), self.rank, rows, columns)


@lru_cache(4096)
def _op(name: str) -> str | None:
    return canonical_op(name)


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
