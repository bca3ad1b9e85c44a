"""What an analysis says, and all that any renderer ever reads.

A `Result` is a verdict with blocks of evidence below it. Values are plain and raw (integers of ns, bytes
or FLOP); a unit beside each column or pair tells a renderer how to show them. This module knows neither
where results come from nor how they look.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from lostflops.pictures import Knobs, Spans, Strips
from lostflops.units import format_share

Value = str | int | float | bool | None
Unit = Literal["", "count", "ns", "bytes", "flop", "share", "time", "rate", "gbs"]
"""`count` is a number, `share` a part of 1, `time` a Unix time in ns, `rate` a number per something, `gbs` GB/s;
without a unit a value shows as it is."""


@dataclass(frozen=True, slots=True)
class Field:
    """A column of a table. `name` is its key in JSON, inside the object `within` where that is given; `label` is its
    heading where the name does not do. People see it if it is `shown`."""

    name: str
    unit: Unit = ""
    label: str = ""
    within: str = ""
    shown: bool = True


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under typed columns; `left_out` counts the rows that were not kept. People see the first `most_shown`, and
    nothing of what `more` adds to each row."""

    name: str
    title: str
    fields: tuple[Field, ...]
    rows: tuple[tuple[Value, ...], ...]
    left_out: int = 0
    most_shown: int | None = None
    more: tuple[Mapping[str, Any], ...] = ()

    def __post_init__(self) -> None:
        assert all(len(row) == len(self.fields) for row in self.rows), f"ragged table {self.name}"
        assert not self.more or len(self.more) == len(self.rows), f"{self.name} has more of other rows"

    def to_json(self) -> list[dict[str, Any]]:
        rows = [self._row_to_json(row) for row in self.rows]
        return [{**row, **more} for row, more in zip(rows, self.more, strict=True)] if self.more else rows

    def _row_to_json(self, row: tuple[Value, ...]) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for field, value in zip(self.fields, row, strict=True):
            place = result.setdefault(field.within, {}) if field.within else result
            place[field.name] = value
        return result


@dataclass(frozen=True, slots=True)
class Pair:
    """A figure, or a list of them; people see it if it is `shown`."""

    name: str
    value: Value | tuple[Value, ...]
    unit: Unit = ""
    label: str = ""
    shown: bool = True


@dataclass(frozen=True, slots=True)
class Pairs:
    """Single figures, each with its name."""

    name: str
    title: str
    items: tuple[Pair, ...]

    def to_json(self) -> dict[str, Any]:
        return {pair.name: list(pair.value) if isinstance(pair.value, tuple) else pair.value for pair in self.items}


@dataclass(frozen=True, slots=True)
class Section:
    """Single figures with the table that they are about: one object in JSON."""

    name: str
    title: str
    items: tuple[Pair, ...]
    table: Table

    def to_json(self) -> dict[str, Any]:
        return {**Pairs(self.name, "", self.items).to_json(), self.table.name: self.table.to_json()}


@dataclass(frozen=True, slots=True)
class HeatMap:
    """Values by row and place; None where there is none. `legend` says what a cell is. `columns` name the places where
    these mean the same in each row, and are the keys of values in JSON; so none is named twice. `down` says what rows
    are, `across` what places of a row are: titles of the axes."""

    name: str
    title: str
    rows: tuple[tuple[str, tuple[float | None, ...]], ...]
    unit: Unit
    legend: str
    columns: tuple[str, ...] = ()
    down: str = ""
    across: str = ""

    def __post_init__(self) -> None:
        assert len(set(self.columns)) == len(self.columns), f"{self.name} has two columns of one name"
        assert not self.columns or all(len(values) == len(self.columns) for _, values in self.rows), (
            f"rows of {self.name} have other columns"
        )

    def to_json(self) -> list[dict[str, Any]]:
        return [{"row": name, "values": self._values(values)} for name, values in self.rows]

    def _values(self, values: tuple[float | None, ...]) -> Any:
        return dict(zip(self.columns, values, strict=True)) if self.columns else list(values)


@dataclass(frozen=True, slots=True)
class Series:
    """Points by x and y, drawn as `marks` where they were measured and as a `line` where they were computed. Names that
    are the same up to a colon are about one thing."""

    name: str
    drawn: Literal["marks", "line"]
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class Plot:
    """Series over a common x. Axes are fields, so that a renderer knows units; each can be logarithmic."""

    name: str
    title: str
    x: Field
    y: Field
    series: tuple[Series, ...]
    log_x: bool = True
    log_y: bool = True

    def to_json(self) -> list[dict[str, Any]]:
        return [
            {
                "series": series.name,
                self.x.name: [x for x, _ in series.points],
                self.y.name: [y for _, y in series.points],
            }
            for series in self.series
        ]


@dataclass(frozen=True, slots=True)
class Stacks:
    """Stacks, each as its frames from the outermost, how often it was seen, and the time that it stands for. `kinds`
    tells what each frame is."""

    name: str
    title: str
    items: tuple[tuple[tuple[str, ...], int, int], ...]
    kinds: dict[str, str]

    def to_json(self) -> list[dict[str, Any]]:
        return [{"stack": list(frames), "samples": samples, "ns": ns} for frames, samples, ns in self.items]


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the ledger; its parts say what it is made of."""

    name: str
    ns: int
    share: float
    parts: tuple["Line", ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {
            "line": self.name,
            "ns": self.ns,
            "share": self.share,
            "parts": [part.to_json() for part in self.parts],
        }


@dataclass(frozen=True, slots=True)
class Lines:
    """Ledger lines: exclusive, and together `total_ns`. People are shown each divided by `per` of what `unit` says."""

    name: str
    title: str
    items: tuple[Line, ...]
    total_ns: int
    per: int = 1
    unit: str = ""

    def __post_init__(self) -> None:
        held = sum(line.ns for line in self.items)
        assert held == self.total_ns, f"{self.name} does not close: {held} of {self.total_ns} ns"

    def to_json(self) -> dict[str, Any]:
        return {"total_ns": self.total_ns, "lines": [line.to_json() for line in self.items]}


@dataclass(frozen=True, slots=True)
class Portion:
    """Some bytes of a whole, in `count` pieces; its parts say what they are made of."""

    name: str
    bytes: int
    count: int
    parts: tuple["Portion", ...] = ()

    def __post_init__(self) -> None:
        held = sum(part.bytes for part in self.parts)
        assert not self.parts or held == self.bytes, f"{self.name} does not close: {held} of {self.bytes} bytes"


@dataclass(frozen=True, slots=True)
class Portions:
    """What `total` bytes are made of: exclusive, and nothing left over. `key` is what JSON calls a portion."""

    name: str
    title: str
    key: str
    items: tuple[Portion, ...]
    total: int

    def __post_init__(self) -> None:
        held = sum(item.bytes for item in self.items)
        assert held == self.total, f"{self.name} does not close: {held} of {self.total} bytes"

    def share(self, portion: Portion) -> float:
        return portion.bytes / self.total if self.total else 0.0

    def to_json(self) -> list[dict[str, Any]]:
        return [
            {
                self.key: item.name,
                "bytes": item.bytes,
                "share": self.share(item),
                "parts": [{"name": part.name, "bytes": part.bytes, "count": part.count} for part in item.parts],
            }
            for item in self.items
        ]


@dataclass(frozen=True, slots=True)
class Timeline:
    """Bytes over time, from `start` to `stop` in columns of equal length. A column is the moment `at` in it when most
    was there: rows sum to `total` in each. `marks` are numbers of what `marked` says and when each begins; `top` is the
    moment of the most bytes of all."""

    name: str
    title: str
    start: int
    stop: int
    at: tuple[int, ...]
    total: tuple[int, ...]
    rows: tuple[tuple[str, tuple[int, ...]], ...]
    marks: tuple[tuple[int, int], ...] = ()
    marked: str = "step"
    top: int | None = None

    def __post_init__(self) -> None:
        sums = tuple(sum(held) for held in zip(*(values for _, values in self.rows), strict=True))
        assert not self.rows or sums == self.total, f"rows of {self.name} do not sum to its total"

    def to_json(self) -> dict[str, Any]:
        return {
            "start_ns": self.start,
            "stop_ns": self.stop,
            "at_ns": list(self.at),
            "bytes": list(self.total),
            "owners": {name: list(values) for name, values in self.rows},
            f"{self.marked}s": [{self.marked: number, "at_ns": time} for number, time in self.marks],
        }


@dataclass(frozen=True, slots=True)
class Bar:
    """A step down; `points` are percent of the whole."""

    name: str
    points: float


@dataclass(frozen=True, slots=True)
class Waterfall:
    """From 100% down to what is left: the bars sum to 100, and the last is `value` where that is known."""

    name: str
    title: str
    value: float | None
    reason: str
    convention: str
    bars: tuple[Bar, ...]

    def __post_init__(self) -> None:
        total = sum(bar.points for bar in self.bars)
        assert not self.bars or abs(total - 100) < 1e-6, f"the bars of {self.name} sum to {total}"

    def to_json(self) -> dict[str, Any]:
        return {
            "value": self.value,
            "reason": self.reason,
            "convention": self.convention,
            "waterfall": [{"line": bar.name, "points": bar.points} for bar in self.bars],
        }


@dataclass(frozen=True, slots=True)
class Prediction:
    """What a fix would do to the step time: `gain` is the part of a step that it saves, for the same work, with its 90%
    interval. `id` is that of the what-if which a later run can score, with its change; None where the gain rests on
    something else, which `basis` says. Times are None where the run has no steps."""

    gain: float
    gain_low: float
    gain_high: float
    basis: str
    id: str | None = None
    change: str = ""
    predicted_ns: int | None = None
    low_ns: int | None = None
    high_ns: int | None = None
    replay_error: float | None = None
    is_bound: bool = False
    """`gain` is an upper limit: the run cannot be replayed, and nothing else says how much of it a fix saves."""

    def __post_init__(self) -> None:
        assert self.gain_low <= self.gain <= self.gain_high, f"interval of {self.change} excludes its own value"

    @property
    def may_be_zero(self) -> bool:
        return not self.is_bound and self.gain_low <= 0

    @property
    def saving(self) -> str:
        """The gain in words, the same in every verb and view.

        >>> Prediction(0.21, 0.07, 0.35, "a replay").saving
        '21.0% of the step (90% interval 7.0% to 35.0%)'
        >>> Prediction(0.21, -0.1, 0.35, "a replay").saving
        'up to 35.0% of the step, and may be zero'
        >>> Prediction(0.21, 0, 0.21, "its time", is_bound=True).saving
        'at most 21.0% of the step'
        """
        if self.is_bound:
            return f"at most {format_share(self.gain)} of the step"
        if self.may_be_zero:
            return f"up to {format_share(max(self.gain_high, 0.0))} of the step, and may be zero"
        low, high = format_share(self.gain_low), format_share(self.gain_high)
        return f"{format_share(self.gain)} of the step (90% interval {low} to {high})"


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a finding rests on. An event is named by its rank and its number in table `events`."""

    what: str
    events: tuple[tuple[int, int], ...] = ()
    ranks: tuple[int, ...] = ()
    steps: tuple[int, ...] = ()
    sources: tuple[str, ...] = ()


Level = Literal["found", "suspected"]
"""`found`: the evidence is enough. `suspected`: it points one way, and more data is needed."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A cause of lost time: what it costs, why we think so, what would settle it, and the fix. `rank_hours` are what
    a day of training loses by it on all ranks, `usd` what these cost where a price is known."""

    id: str
    """The cause with the ranks that it is on, such as `straggler:4`: the same in every verb."""
    level: Level
    cause: str
    what: str
    lost_ns: int
    lost_share: float
    rank_hours: float
    usd: float | None
    ranks: tuple[int, ...]
    evidence: tuple[Evidence, ...]
    confidence: float
    certain_if: str
    fix: str
    lines: Mapping[str, int]
    """Time attributed to it by line of the ledger, in ns over all ranks; together `lost_ns`."""
    prediction: Prediction | None = None
    doubt: str = ""
    """Why it is suspected and not found."""
    record: str = ""
    """Flags of `lostflops run` that record what would settle a suspicion."""

    def __post_init__(self) -> None:
        assert 0 <= self.confidence <= 1, f"confidence of {self.cause} is {self.confidence}"
        assert self.level == "found" or self.doubt, f"{self.id} is suspected for no reason"
        assert self.is_suspected or self.prediction is None or not self.costs_time or not self.prediction.may_be_zero, (
            f"{self.id} is found, and its saving may be zero"
        )

    @property
    def is_suspected(self) -> bool:
        return self.level == "suspected"

    @property
    def costs_time(self) -> bool:
        """Whether its fix shortens the step: growing memory, for one, costs nothing until it runs out."""
        return self.prediction is not None and self.prediction.gain_high > 0

    @property
    def saving(self) -> str:
        """What its fix saves, in words."""
        return self.prediction.saving if self.prediction is not None and self.costs_time else "no time yet"


@dataclass(frozen=True, slots=True)
class Findings:
    """Those that are found first, the largest gain first; people see the first `most_shown`, and of each only what it
    is, what its fix saves and the fix where the block `is_brief`."""

    name: str
    title: str
    items: tuple[Finding, ...]
    most_shown: int | None = None
    is_brief: bool = False

    def to_json(self) -> list[dict[str, Any]]:
        return [asdict(finding) for finding in self.items]

    def _repr_html_(self) -> str:
        """How a notebook shows it."""
        from lostflops.report.notebook import findings_html  # noqa: PLC0415 - a result need not know how it looks

        return findings_html(self)


@dataclass(frozen=True, slots=True)
class Figure:
    """One value under a key of its own, or an object of several, for programs."""

    name: str
    value: Value | tuple[Value, ...] | Mapping[str, Any]

    def to_json(self) -> Any:
        return list(self.value) if isinstance(self.value, tuple) else self.value


Picture = Strips | Spans | Knobs
Block = Table | Pairs | Section | HeatMap | Plot | Stacks | Lines | Portions | Timeline | Waterfall | Findings | Picture


@dataclass(frozen=True, slots=True)
class Result:
    """The answer to one question.

    >>> span = Pairs("span", "", (Pair("dur", 2_000_000_000, "ns"),))
    >>> Result("span", "Time span", "The run lasts 2 s.", (span,)).to_json()["span"]
    {'dur': 2000000000}
    """

    name: str
    title: str
    verdict: str
    blocks: tuple[Block, ...] = ()
    notes: tuple[str, ...] = ()
    next_command: str = ""
    other_command: str = ""
    """What may be typed instead of the next command."""
    more: tuple[Block | Figure, ...] = ()
    """What only programs read: it stands in JSON beside the blocks, and on no screen."""

    def __post_init__(self) -> None:
        taken = {"schema", "title", "verdict", "notes"}
        for block in (*self.blocks, *self.more):
            assert block.name not in taken, f"two parts of {self.name} are called {block.name}"
            taken.add(block.name)

    def to_json(self) -> dict[str, Any]:
        """Plain data: a key for each block beside the verdict, raw values, no hint for humans."""
        return {
            "schema": f"lostflops.{self.name}/1",
            "title": self.title,
            "verdict": self.verdict,
            "notes": list(self.notes),
            **{block.name: block.to_json() for block in (*self.blocks, *self.more)},
        }

    def _repr_html_(self) -> str:
        """How a notebook shows it: the one place where a result knows that it can be drawn."""
        from lostflops.report.notebook import html  # noqa: PLC0415 - only a notebook asks

        return html(self)


@dataclass(frozen=True, slots=True)
class Page:
    """All that is said of a run, in the order in which to read it. `glossary` explains words that appear in results;
    `missing` names what could not be answered, and why; `standing` the result whose verdict stays in sight."""

    title: str
    results: tuple[Result, ...]
    glossary: Mapping[str, str]
    missing: tuple[tuple[str, str], ...] = ()
    standing: str = ""
