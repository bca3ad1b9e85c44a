"""Sessions of a job, identified by their first record, and the attempts that they form.

An attempt has one session of each rank. A rank that comes again, or a host whose restart counter changed, begins the
next attempt; counters are compared only within a host, because each launcher counts for itself.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from lostflops.account.facts.mesh_names import kinds_of
from lostflops.core.limits import LARGEST_WORLD, is_rank

EDGES_ONLY: Final = 2
"""Level of a collector over budget from which on it does not record phases, so the wait for data is unknown."""
OFF: Final = 3
"""Level of a collector over budget from which on it records no steps."""
UNREADABLE: Final = (AttributeError, IndexError, KeyError, TypeError, ValueError)
"""Errors of a record that lacks what its kind must have: another version wrote it. It is counted and left out."""
MOST_ENQUEUES: Final = 1000
"""At most this many collectives of a rank are kept between two looks."""

_MOST_WINDOWS: Final = 64
"""The newest windows of a rank are kept."""


def _whole(value: object) -> int:
    """Return a count or a time; raise ValueError if it is anything else, so that nothing later computes with it."""
    if type(value) is not int or not 0 <= value < 1 << 62:
        raise ValueError(f"{value!r:.80} is not a count")
    return value


def _whole_or_none(value: object) -> int | None:
    return None if value is None else _whole(value)


class LiveStep(NamedTuple):
    """A step of one rank as its collector saw it."""

    stop: int
    time: int
    data: int | None
    """Time spent waiting for data, in ns; None if the collector records only step boundaries."""
    samples: int | None
    tokens: int | None
    peak_memory: int | None
    marks: tuple[str, ...]
    has_forward: bool = True
    """Whether a forward pass was timed; at the start of a job it is not yet."""

    @classmethod
    def of(cls, record: dict[str, Any], has_phases: bool) -> LiveStep:
        marks = tuple(mark for mark in ("compiled", "profiled", "skipped") if record.get(mark))
        return cls(
            stop=_whole(record["stop"]),
            time=_whole(record["stop"]) - _whole(record["start"]),
            data=_whole_or_none(record["data"]) if has_phases else None,
            samples=_whole_or_none(record.get("samples")),
            tokens=_whole_or_none(record.get("tokens")),
            peak_memory=_whole_or_none(record.get("peak_memory")),
            marks=marks,
            has_forward=record.get("forward") is not None,
        )


Enqueue = tuple[str, int, str, int]
"""Group, number, operation and time of a collective; a plain tuple, because there are very many."""


@dataclass(slots=True, kw_only=True)
class LiveSession:
    """One process of the job, and what it reported since the last look."""

    rank: int
    world_size: int
    host: str
    restart: int
    start: int
    device_name: str | None
    pid: int = 0
    device_memory: int | None = None
    """Total memory of the rank's device in bytes; None without a device, or if it is not recorded."""
    heard: float = 0.0
    """When it last reported anything, by the watcher's clock in seconds."""
    last_step: int = -1
    is_ended: bool = False
    dropped: int = 0
    lost: int = 0
    """Collectives that the ring overwrote before they were read."""
    ring_heard: float = 0.0
    """When it last reported collectives, by the same clock."""
    level: int = 0
    level_reason: str = ""
    interlude: str | None = None
    """What the rank does instead of training (`saving`, `evaluating`) while its step does not end."""
    windows: dict[int, str] = field(default_factory=dict)
    """Last state of each deep window."""
    groups: dict[str, tuple[int, ...]] = field(default_factory=dict)
    named_stage: int | None = None
    """Its place in a group that is named as a pipeline."""
    sends: bool = False
    """Whether it sends to single ranks, or receives from them."""
    steps: dict[int, LiveStep] = field(default_factory=dict)
    enqueues: deque[Enqueue] = field(default_factory=lambda: deque(maxlen=MOST_ENQUEUES))
    notes: dict[str, tuple[int, str]] = field(default_factory=dict)

    @property
    def is_done(self) -> bool:
        """Whether it reports no more steps: it ended, or records nothing because it was over its budget."""
        return self.is_ended or self.level >= OFF

    @classmethod
    def of(cls, record: dict[str, Any]) -> LiveSession:
        rank, world_size, device_name = _whole(record["rank"]), _whole(record["world_size"]), record.get("device_name")
        if not is_rank(rank) or not 0 < world_size <= LARGEST_WORLD:
            raise ValueError(f"rank {rank} of {world_size}: no job is as large")
        return cls(
            rank=rank,
            world_size=world_size,
            host=str(record["host"]),
            restart=_whole(record.get("restart") or 0),
            start=_whole(record["wall"]),
            device_name=device_name if isinstance(device_name, str) else None,
            pid=_whole(record.get("pid") or 0),
            device_memory=_whole_or_none(record.get("device_memory")),
        )

    def take(self, record: dict[str, Any], now: float) -> None:
        self.heard = now
        kind = record.get("kind")
        if kind == "step":
            number = _whole(record["step"])
            self.steps[number] = LiveStep.of(record, self.level < EDGES_ONLY)
            self.interlude = None
            self.last_step = max(self.last_step, number)
        elif kind == "collectives":
            self.ring_heard = now
            self._take_collectives(record)
        elif kind == "job" and record["key"] == "groups":
            self._take_groups(record["value"])
        elif kind == "job" and record["key"] == "stall":
            within = record["value"].get("within")
            self.interlude = within if isinstance(within, str) else None
        elif kind == "window":
            self._take_window(record)
        elif kind == "overhead":
            self.level = _whole(record["level"])
            self.level_reason = str(record.get("reason") or self.level_reason)
        elif kind == "note":
            what = str(record["what"])
            count, _ = self.notes.get(what, (0, ""))
            self.notes[what] = (count + _whole(record.get("count", 1)), str(record.get("reason") or ""))
        elif kind == "end":
            self.is_ended = True

    def _take_window(self, record: dict[str, Any]) -> None:
        self.windows[_whole(record["window"])] = str(record["state"])
        while len(self.windows) > _MOST_WINDOWS:
            del self.windows[next(iter(self.windows))]

    @property
    def stage(self) -> int:
        """Its pipeline stage: only ranks of the same one do the same work. A rank that sends to others, without a group
        that shows its stage, may be a stage alone."""
        return (-1 - self.rank if self.sends else 0) if self.named_stage is None else self.named_stage

    def _take_groups(self, groups: dict[str, Any]) -> None:
        for name, group in groups.items():
            members = self.groups[name] = tuple(map(_whole, group.get("ranks") or ()))
            description = group.get("description")
            if isinstance(description, str) and kinds_of(description) == {"pp"} and self.rank in members:
                self.named_stage = members.index(self.rank)

    def _take_collectives(self, record: dict[str, Any]) -> None:
        self.lost += _whole(record.get("lost") or 0)
        self._take_groups(record.get("groups") or {})
        self.sends = self.sends or any(entry[4] for entry in record["entries"])
        self.enqueues.extend(
            [
                (str(entry[1]), _whole(entry[2]), str(entry[3]), _whole(entry[7]))
                for entry in record["entries"]
                if not entry[4] and entry[2] is not None
            ]
        )


@dataclass(slots=True, kw_only=True)
class Attempt:
    """One session of each rank, and the steps that are not shown yet."""

    number: int
    world_size: int
    start: int
    """When its first process began to record, by the clock of that process's host, in ns."""
    sessions: dict[int, LiveSession] = field(default_factory=dict)
    pending: dict[int, dict[int, LiveStep]] = field(default_factory=dict)
    first_heard: dict[int, float] = field(default_factory=dict)
    """When the first rank reported a pending step, by step."""
    begun: float = 0.0
    """When its first session was seen."""
    is_announced: bool = False
    is_end_told: bool = False
    silent: set[int] = field(default_factory=set)
    """Ranks that are not waited for any more."""
    shown: int = -1
    """The last step that was shown."""
    progress: float | None = None
    """When a step was last reported."""

    def accepts(self, session: LiveSession) -> bool:
        return (
            session.world_size == self.world_size
            and session.rank not in self.sessions
            and all(other.restart == session.restart for other in self.sessions.values() if other.host == session.host)
        )

    @property
    def is_whole(self) -> bool:
        return len(self.sessions) == self.world_size

    @property
    def is_ended(self) -> bool:
        return self.is_whole and all(one.is_ended for one in self.sessions.values())

    def on_host(self, host: str) -> set[int]:
        return {rank for rank, session in self.sessions.items() if session.host == host}

    @property
    def hosts(self) -> int:
        return len({session.host for session in self.sessions.values()})


def join(attempts: list[Attempt], new: Iterable[LiveSession]) -> None:
    """Put sessions into attempts, in the order in which they began."""
    for session in sorted(new, key=lambda session: session.start):
        for attempt in reversed(attempts):
            if attempt.accepts(session):
                attempt.sessions[session.rank] = session
                break
            if session.rank in attempt.sessions:
                _begin(attempts, session)
                break
        else:
            _begin(attempts, session)


def _begin(attempts: list[Attempt], session: LiveSession) -> None:
    sessions = {session.rank: session}
    attempts.append(
        Attempt(number=len(attempts), world_size=session.world_size, start=session.start, sessions=sessions)
    )
