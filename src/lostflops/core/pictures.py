"""Blocks of a result that are made for the eye: what a page draws, and a terminal can only mention.

Like those of `results`, they hold plain values and know neither where these come from nor how they are drawn. Times are
ns on the common clock of all ranks, counted from `start` of the block where they are called offsets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Strips:
    """What each row was doing, from `start` to `stop` in `bins` equal bins: a row's byte for a bin is the place in
    `kinds` of what took most of it, counted from 1, and 0 where nothing is known. `marks` are numbers of what `marked`
    says and when each begins. `events` are what is below the rows, exactly."""

    name: str
    title: str
    start: int
    stop: int
    bins: int
    kinds: tuple[str, ...]
    rows: tuple[tuple[str, bytes], ...]
    marks: tuple[tuple[int, int], ...] = ()
    marked: str = "step"
    events: Events | None = None

    def __post_init__(self) -> None:
        assert all(len(codes) == self.bins for _, codes in self.rows), f"rows of {self.name} have other bins"
        assert len(self.kinds) < 256, f"{self.name} has too many kinds"

    def to_json(self) -> dict[str, Any]:
        """Stretches of one kind instead of bins, as [kind, bins]."""
        return {
            "start_ns": self.start,
            "stop_ns": self.stop,
            "bins": self.bins,
            "rows": {name: _stretches(codes, self.kinds) for name, codes in self.rows},
            f"{self.marked}s": [{self.marked: number, "at_ns": time} for number, time in self.marks],
            "events": self.events.to_json() if self.events else None,
        }


def _stretches(codes: bytes, kinds: tuple[str, ...]) -> list[tuple[str | None, int]]:
    """
    >>> _stretches(bytes([1, 1, 0, 2]), ("compute", "wait"))
    [('compute', 2), (None, 1), ('wait', 1)]
    """
    found: list[tuple[str | None, int]] = []
    for code in codes:
        kind = kinds[code - 1] if code else None
        count = found.pop()[1] if found and found[-1][0] == kind else 0
        found.append((kind, count + 1))
    return found


@dataclass(frozen=True, slots=True)
class Lane:
    """What runs one thing at a time, below a row; it has the next `events` of the columns."""

    row: int
    name: str
    events: int


@dataclass(frozen=True, slots=True)
class Meetings:
    """Who came when to what several rows did together, one line per meeting and row, in order of meetings: when the row
    `arrived`, how long it stayed and how long of that it waited for the last one, and its event. `said` are places in
    `sayings`."""

    meeting: Sequence[int]
    row: Sequence[int]
    event: Sequence[int]
    arrived: Sequence[int]
    dur: Sequence[int]
    wait: Sequence[int]
    said: Sequence[int]
    sayings: tuple[str, ...]
    left_out: int = 0


@dataclass(frozen=True, slots=True)
class Events:
    """What happened on the lanes of rows, as columns, lane by lane and in order of time; an outer event comes before
    those inside it. `start` counts from the beginning of the timeline; `kind` and `name` are places in `kinds` and
    `names`; `event` is the number that a run gives it; `launch` the place of the event that launched it, counted from
    1, and 0 for none; `wait` how long of it others were missing. `left_out` counts events that were not kept."""

    rows: tuple[str, ...]
    lanes: tuple[Lane, ...]
    kinds: tuple[str, ...]
    names: tuple[str, ...]
    start: Sequence[int]
    dur: Sequence[int]
    kind: Sequence[int]
    name: Sequence[int]
    event: Sequence[int]
    launch: Sequence[int]
    wait: Sequence[int]
    meetings: Meetings
    left_out: int = 0

    def __post_init__(self) -> None:
        assert sum(lane.events for lane in self.lanes) == len(self.start), "lanes have other events"

    def to_json(self) -> dict[str, Any]:
        """How many there are: `lostflops sql` gives events themselves."""
        return {"kept": len(self.start), "left_out": self.left_out}


@dataclass(frozen=True, slots=True)
class Span:
    """Something that lasted, at offsets from the block's start; `said` is more about it, as pairs of a name and words.
    Spans that share a `meeting` are one thing in several rows, such as a collective."""

    row: int
    start: int
    stop: int
    kind: str
    name: str
    said: tuple[tuple[str, str], ...] = ()
    meeting: int | None = None


@dataclass(frozen=True, slots=True)
class Spans:
    """What happened in each row, exactly: the events of a rank's lanes, or the passes of a pipeline's stages. Spans of
    one row may nest. `left_out` counts those that were not kept."""

    name: str
    title: str
    start: int
    stop: int
    rows: tuple[str, ...]
    items: tuple[Span, ...]
    left_out: int = 0

    def to_json(self) -> dict[str, Any]:
        return {
            "start_ns": self.start,
            "stop_ns": self.stop,
            "left_out": self.left_out,
            "rows": list(self.rows),
            "spans": [
                {"row": one.row, "start": one.start, "stop": one.stop, "kind": one.kind, "name": one.name}
                for one in self.items
            ],
        }


@dataclass(frozen=True, slots=True)
class Setting:
    """A position of a knob: the step that is predicted there, nine times of ten between `low_ns` and `high_ns`, and
    what it is made of, line by line. It does the work of `work` recorded steps. `how` says how to set it in a job,
    `notes` what was assumed, and `why_not` why there is no prediction."""

    value: str
    predicted_ns: int | None
    low_ns: int | None
    high_ns: int | None
    lines: tuple[tuple[str, int], ...] = ()
    why_not: str = ""
    work: int = 1
    how: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Knob:
    """A what-if with the values that were tried, in order; `now` is the place of what was measured, where it has one.
    `about` says what it asks, `cost` what it costs or risks."""

    change: str
    label: str
    settings: tuple[Setting, ...]
    now: int | None
    about: str = ""
    cost: str = ""


@dataclass(frozen=True, slots=True)
class Knobs:
    """What a step would take with something changed, beside what it took."""

    name: str
    title: str
    measured_ns: int
    lines: tuple[tuple[str, int], ...]
    items: tuple[Knob, ...]

    def to_json(self) -> dict[str, Any]:
        return {
            "measured_ns": self.measured_ns,
            "lines": dict(self.lines),
            "knobs": {
                knob.change: [
                    {
                        "value": one.value,
                        "predicted_ns": one.predicted_ns,
                        "interval": [one.low_ns, one.high_ns],
                        "lines": dict(one.lines),
                        "why_not": one.why_not,
                        "work": one.work,
                    }
                    for one in knob.settings
                ]
                for knob in self.items
            },
        }
