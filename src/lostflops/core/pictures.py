"""Blocks of a result that are drawn: a page shows them, and a terminal only mentions them.

Like those of `results`, they hold plain values and do not depend on where these come from or how they are drawn. Times
are ns on the common clock of all ranks; offsets are counted from `start` of the block.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Strips:
    """Activity of each row over time, in bins of equal length."""

    name: str
    title: str
    start: int
    """Begin of the first bin, in ns."""
    stop: int
    """End of the last bin, in ns."""
    bins: int
    kinds: tuple[str, ...]
    """Kinds of activity."""
    rows: tuple[tuple[str, bytes], ...]
    """Name of each row, and a byte for each bin: the place in `kinds`, counted from 1, of what took most of it; 0 if
    unknown."""
    marks: tuple[tuple[int, int], ...] = ()
    """Numbers of steps, or of what `marked` says, each with its start time."""
    marked: str = "step"
    """Name of what is marked."""
    late: tuple[int, ...] = ()
    """For each row the time that others waited for it, in ns; none if unknown."""
    cohorts: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Ways to group rows, such as `host`, each with the name of every row's group."""
    events: Events | None = None
    """The exact events below the rows."""
    stretches: RowStretches | None = None
    """The exact activity of each row; None if there are too many stretches for a page."""
    step_lines: Sequence[int] | None = None
    """Time in ns by row, mark and kind, in this order: what each row did in each of its own steps. Only if there are no
    `stretches`, and None if it is unknown."""
    step_edges: Sequence[int] | None = None
    """Start and end of each row's own step, by row and mark, as times of `stretches`; None if they are unknown."""

    def __post_init__(self) -> None:
        assert all(len(codes) == self.bins for _, codes in self.rows), f"rows of {self.name} have other bins"
        assert len(self.kinds) < 256, f"{self.name} has too many kinds"
        for per_row in (*filter(None, (self.late,)), *(names for _, names in self.cohorts)):
            assert len(per_row) == len(self.rows), f"{self.name} has other rows"
        assert self.stretches is None or len(self.stretches.count) == len(self.rows), f"{self.name} has other rows"
        assert self.step_edges is None or len(self.step_edges) == 2 * len(self.rows) * len(self.marks)
        assert self.step_lines is None or len(self.step_lines) == len(self.rows) * len(self.marks) * len(self.kinds)

    def to_json(self) -> dict[str, Any]:
        """Return stretches of one kind instead of bins, as [kind, number of bins]."""
        return {
            "start_ns": self.start,
            "stop_ns": self.stop,
            "bins": self.bins,
            "rows": {name: _stretches(codes, self.kinds) for name, codes in self.rows},
            f"{self.marked}s": [{self.marked: number, "at_ns": time} for number, time in self.marks],
            "late_ns": {name: ns for (name, _), ns in zip(self.rows, self.late, strict=False)},
            "events": self.events.to_json() if self.events else None,
        }


@dataclass(frozen=True, slots=True)
class RowStretches:
    """Exact stretches of rows, as columns: row by row and in order of time, each from the end of the one before it.

    Each row is on its own clock, which may run at another rate than the timeline's. A time t of the timeline, in ns
    from its start, is t - round((t + `ahead`) * `rate`) on the row's clock; halves are rounded to even. All times of a
    row count from 0 of that clock. Time before the first stretch and after the last was not recorded.
    """

    count: Sequence[int]
    """Number of stretches of each row: the next ones in the columns."""
    start: Sequence[int]
    """Start of the first stretch of each row."""
    rate: Sequence[float]
    """How much faster the clock of each row runs, as a share."""
    ahead: Sequence[int]
    """Time of the timeline's start after the instant at which that clock was compared, in ns."""
    kind: Sequence[int]
    """Places in `kinds` of the block, from 1; 0 if nothing was recorded."""
    dur: Sequence[int]
    late: Sequence[int]
    """Number of the rank that was waited for, from 1; 0 if it is unknown, or if nothing waited."""

    def __post_init__(self) -> None:
        assert sum(self.count) == len(self.kind) == len(self.dur) == len(self.late), "rows have other stretches"


def _stretches(codes: bytes, kinds: tuple[str, ...]) -> list[tuple[str | None, int]]:
    """Return stretches of one kind, each with its number of bins; None is an unknown kind.

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
    """A lane below a row, on which one thing runs at a time."""

    row: int
    """Place of the row in `rows` of its `Events`."""
    name: str
    events: int
    """Number of its events: the next ones in the columns, after those of the lanes before it."""


@dataclass(frozen=True, slots=True)
class Meetings:
    """Arrivals at what several rows did together, such as a collective: a line per meeting and row, in order of
    meetings."""

    meeting: Sequence[int]
    row: Sequence[int]
    event: Sequence[int]
    """Number of the row's event in the run."""
    arrived: Sequence[int]
    """Time at which the row arrived."""
    dur: Sequence[int]
    """Time that the row stayed."""
    wait: Sequence[int]
    """Part of that time in which it waited for the last row to arrive."""
    said: Sequence[int]
    """Places in `sayings`."""
    sayings: tuple[str, ...]
    left_out: int = 0
    """Number of lines that were not kept."""


@dataclass(frozen=True, slots=True)
class Counter:
    """A quantity of a row over time: each value holds from its point to the next."""

    row: int
    """Place of the row in `rows` of its `Events`."""
    name: str
    unit: str
    """One of the units of `results`."""
    at: Sequence[int]
    """Times of points, counted from the beginning of the timeline, in order."""
    value: Sequence[int]
    """Values in parts of the unit; -1 if the value is not known from there on."""
    per: int = 1
    """Number of such parts that make up one unit."""
    thinned: str = ""
    """Which points are kept, in words, if there are more than fit."""

    def __post_init__(self) -> None:
        assert len(self.at) == len(self.value), f"{self.name} has points without a value"


@dataclass(frozen=True, slots=True)
class Events:
    """Events on the lanes of rows, as columns: lane by lane and in order of time, an outer event before those inside
    it."""

    rows: tuple[str, ...]
    lanes: tuple[Lane, ...]
    kinds: tuple[str, ...]
    names: tuple[str, ...]
    start: Sequence[int]
    """Start times, counted from the beginning of the timeline."""
    dur: Sequence[int]
    kind: Sequence[int]
    """Places in `kinds`."""
    name: Sequence[int]
    """Places in `names`."""
    event: Sequence[int]
    """Number of each event in the run."""
    launch: Sequence[int]
    """Place of the event that launched it, counted from 1, or 0."""
    wait: Sequence[int]
    """Part of its time in which other ranks were missing."""
    meetings: Meetings
    left_out: int = 0
    """Number of events that were not kept."""
    counters: tuple[Counter, ...] = ()
    """Quantities of rows, each row's in the order in which they are shown."""

    def __post_init__(self) -> None:
        assert sum(lane.events for lane in self.lanes) == len(self.start), "lanes have other events"

    def to_json(self) -> dict[str, Any]:
        """Return how many events there are; `lostflops sql` returns the events themselves."""
        return {"kept": len(self.start), "left_out": self.left_out}


@dataclass(frozen=True, slots=True)
class Span:
    """Something that lasted, at offsets from the block's start."""

    row: int
    start: int
    stop: int
    kind: str
    name: str
    said: tuple[tuple[str, str], ...] = ()
    """More about it, as pairs of a name and a text."""
    meeting: int | None = None
    """Spans that share this number are one thing in several rows, such as a collective."""


@dataclass(frozen=True, slots=True)
class Spans:
    """The exact events of each row: those of a rank's lanes, or the passes of a pipeline's stages. Spans of a row may
    nest."""

    name: str
    title: str
    start: int
    stop: int
    rows: tuple[str, ...]
    items: tuple[Span, ...]
    left_out: int = 0
    """Number of spans that were not kept."""

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
    """A position of a knob: a value of a change, and the step time that is predicted with it."""

    value: str
    predicted_ns: int | None
    low_ns: int | None
    """Lower end of the range."""
    high_ns: int | None
    """Upper end of the range."""
    lines: tuple[tuple[str, int], ...] = ()
    """Time of the predicted step by line of the ledger, in ns."""
    why_not: str = ""
    """Why there is no prediction."""
    work: int = 1
    """Number of recorded steps whose work the predicted step does."""
    how: str = ""
    """How to set it in a job."""
    notes: tuple[str, ...] = ()
    """Assumptions of the prediction."""
    gain_interval: tuple[float, float] | None = None
    """Range of the share of time that it saves: narrower than that of the step, as steps vary with and without
    the change."""


@dataclass(frozen=True, slots=True)
class Knob:
    """A what-if with the values that were tried, in order."""

    change: str
    label: str
    settings: tuple[Setting, ...]
    now: int | None
    """Place of the measured value in `settings`; None if it is not one of them."""
    about: str = ""
    """Effect of the change, in words."""
    cost: str = ""
    """Costs or risks of the change."""
    is_bound: bool = False
    """Whether it is an upper limit that no setting reaches."""


@dataclass(frozen=True, slots=True)
class Knobs:
    """The measured step, and predictions of it with something changed."""

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
                        "gain_interval": one.gain_interval,
                        "lines": dict(one.lines),
                        "why_not": one.why_not,
                        "work": one.work,
                    }
                    for one in knob.settings
                ]
                for knob in self.items
            },
        }
