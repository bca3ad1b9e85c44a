"""Answers as data: what an analysis returns, and all that a renderer reads.

A `Result` is a verdict with blocks of evidence below it. Values are plain (integers in ns, bytes or FLOP); the unit
of a column or pair says how to show them. This module knows neither where results come from nor how they look.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from lostflops.core.errors import UsageError
from lostflops.core.notebook import as_html
from lostflops.core.pictures import Knobs, Spans, Strips
from lostflops.core.units import format_interval, format_ns, format_percent

Value = str | int | float | bool | None
Unit = Literal["", "count", "ns", "bytes", "flop", "share", "time", "rate", "gbs"]
"""`count` is a number, `share` a part of 1, `time` a Unix time in ns, `rate` a number per second or ratio, `gbs` GB/s;
a value without a unit is shown unchanged."""


class _Block:
    """A part of an answer."""

    __slots__ = ()

    def _repr_html_(self) -> str | None:
        """Show it in a notebook."""
        return as_html(self)

    def to_pandas(self) -> Any:
        """Return its rows as a pandas DataFrame."""
        return to_pandas(self)


@dataclass(frozen=True, slots=True)
class Field:
    """A column of a table. `name` is its key in JSON, inside the object `within` if given; `label` is its heading if it
    differs from the name. Only JSON has columns that are not `shown`."""

    name: str
    unit: Unit = ""
    label: str = ""
    within: str = ""
    shown: bool = True


@dataclass(frozen=True, slots=True)
class Table(_Block):
    """Rows under typed columns; `left_out` counts rows that were not kept. Screens show the first `most_shown`; `more`
    adds keys to each row in JSON."""

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
    """A figure, or a list of figures. Only JSON has figures that are not `shown`."""

    name: str
    value: Value | tuple[Value, ...]
    unit: Unit = ""
    label: str = ""
    shown: bool = True


@dataclass(frozen=True, slots=True)
class Pairs(_Block):
    """Single figures, each with its name."""

    name: str
    title: str
    items: tuple[Pair, ...]

    def to_json(self) -> dict[str, Any]:
        return {pair.name: list(pair.value) if isinstance(pair.value, tuple) else pair.value for pair in self.items}

    def __getattr__(self, name: str) -> Any:
        """Return the value of the figure of this name."""
        for pair in () if name.startswith("_") else self.items:
            if pair.name == name:
                return pair.value
        raise AttributeError(f"{type(self).__name__} has no figure {name!r}")

    def __dir__(self) -> list[str]:
        return [*object.__dir__(self), *(pair.name for pair in self.items)]


@dataclass(frozen=True, slots=True)
class Section(_Block):
    """Single figures with the table that they describe: one object in JSON."""

    name: str
    title: str
    items: tuple[Pair, ...]
    table: Table

    def to_json(self) -> dict[str, Any]:
        return {**Pairs(self.name, "", self.items).to_json(), self.table.name: self.table.to_json()}


@dataclass(frozen=True, slots=True)
class HeatMap(_Block):
    """Values by row and column; None if a cell has no value. `legend` says what a cell is. `columns`, if they mean the
    same in every row, are unique names and the keys of values in JSON. `down` and `across` are the titles of the
    axes."""

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
    """Points by x and y: `marks` if measured, a `line` if computed. Series whose names are equal up to a colon belong
    together."""

    name: str
    drawn: Literal["marks", "line"]
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class Plot(_Block):
    """Series over a common x. Axes are fields, which have units; each can be logarithmic."""

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
class Stacks(_Block):
    """Stacks: frames from the outermost, number of samples, and the time of these samples. `kinds` has the kind of each
    frame."""

    name: str
    title: str
    items: tuple[tuple[tuple[str, ...], int, int], ...]
    kinds: dict[str, str]

    def to_json(self) -> list[dict[str, Any]]:
        return [{"stack": list(frames), "samples": samples, "ns": ns} for frames, samples, ns in self.items]


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the ledger with its parts."""

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
class Lines(_Block):
    """Lines of the ledger: exclusive, with the sum `total_ns`. Screens show them per `unit`, of which there are
    `per`."""

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
    """Bytes of a whole, in `count` pieces, with their parts."""

    name: str
    bytes: int
    count: int
    parts: tuple["Portion", ...] = ()

    def __post_init__(self) -> None:
        held = sum(part.bytes for part in self.parts)
        assert not self.parts or held == self.bytes, f"{self.name} does not close: {held} of {self.bytes} bytes"


@dataclass(frozen=True, slots=True)
class Portions(_Block):
    """Portions of `total` bytes: exclusive and complete. `key` is the name of a portion in JSON."""

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
class Timeline(_Block):
    """Bytes over time, from `start` to `stop` in columns of equal length. A column shows the moment `at` with the most
    bytes in it; rows sum to `total`. `marks` are numbers of `marked` and their start times; `top` is the peak."""

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
class Waterfall(_Block):
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


_SAME_WORK = 0.005
"""Changes such as a larger batch change the work of a step: the saving is then not the difference of step times."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """The effect of a fix on the step time: `gain` is the share of a step that it saves, for the same work, with its
    90% interval. `id` and `change` are those of the what-if, which a later run can score; `id` is null if the gain
    has another `basis`. Times are null if the run has no steps."""

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
    """`gain` is an upper limit: the run cannot be replayed, and there is no other estimate."""
    measured_ns: int | None = None
    """The step time before the change."""

    def __post_init__(self) -> None:
        assert self.gain_low <= self.gain <= self.gain_high, f"interval of {self.change} excludes its own value"

    @property
    def may_be_zero(self) -> bool:
        return not self.is_bound and self.gain_low <= 0

    @property
    def step_times(self) -> str:
        """Return the step time before and after, if both are for the same work.

        >>> Prediction(0.1, 0.05, 0.2, "", predicted_ns=90_000_000, measured_ns=100_000_000).step_times
        'from 100 ms to 90.0 ms'
        """
        if self.predicted_ns is None or not self.measured_ns or self.may_be_zero:
            return ""
        is_same_work = abs(1 - self.predicted_ns / self.measured_ns - self.gain) < _SAME_WORK
        return f"from {format_ns(self.measured_ns)} to {format_ns(self.predicted_ns)}" if is_same_work else ""

    @property
    def saving(self) -> str:
        """Return the gain in words, the same in every verb and view.

        >>> Prediction(0.21, 0.07, 0.35, "a replay").saving
        '21% of the step (90% interval 7 to 35%)'
        >>> Prediction(0.21, -0.1, 0.35, "a replay").saving
        'up to 35% of the step, and may be zero'
        >>> Prediction(0.21, 0, 0.21, "its time", is_bound=True).saving
        'at most 21% of the step'
        """
        if self.is_bound:
            return f"at most {format_percent(self.gain)} of the step"
        if self.may_be_zero:
            return f"up to {format_percent(max(self.gain_high, 0.0))} of the step, and may be zero"
        interval = format_interval(self.gain_low, self.gain_high)
        return f"{format_percent(self.gain)} of the step (90% interval {interval})"


@dataclass(frozen=True, slots=True)
class Evidence:
    """A reason for a finding. An event is a rank and a number in table `events`."""

    what: str
    events: tuple[tuple[int, int], ...] = ()
    ranks: tuple[int, ...] = ()
    steps: tuple[int, ...] = ()
    sources: tuple[str, ...] = ()


Level = Literal["found", "suspected"]
"""`found`: the evidence is enough. `suspected`: it points one way, and more data is needed."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A cause of lost time: what it costs, the evidence, how to confirm it, and the fix. `rank_hours` is what the fix
    saves in a day of training on all ranks; `usd` is the price of these hours, if known."""

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
    """Flags of `lostflops run` that record what is needed to confirm it."""

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
        """Return whether its fix shortens the step: growing memory, for example, costs nothing until it runs out."""
        return self.prediction is not None and self.prediction.gain_high > 0

    @property
    def saving(self) -> str:
        """Return what its fix saves, in words."""
        return self.prediction.saving if self.prediction is not None and self.costs_time else "no time yet"


@dataclass(frozen=True, slots=True)
class Findings(_Block):
    """Findings: first those that are certain, then by gain. Screens show the first `most_shown`, and if it `is_brief`
    only the heading, the saving and the fix of each."""

    name: str
    title: str
    items: tuple[Finding, ...]
    most_shown: int | None = None
    is_brief: bool = False

    def to_json(self) -> list[dict[str, Any]]:
        return [asdict(finding) for finding in self.items]


@dataclass(frozen=True, slots=True)
class Figure:
    """One value, or an object of several, for programs."""

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
    """An alternative to the next command."""
    more: tuple[Block | Figure, ...] = ()
    """Parts that only programs see."""
    folded: tuple[str, ...] = ()
    """Names of blocks that only a page shows; a terminal shows them with `--full`."""
    version: int = 1
    """Version of its JSON: one more whenever a key is renamed, removed or changes its meaning."""

    def __post_init__(self) -> None:
        taken = {"schema", "title", "verdict", "notes"}
        for block in (*self.blocks, *self.more):
            assert block.name not in taken, f"two parts of {self.name} are called {block.name}"
            taken.add(block.name)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Return the findings of this answer, if any."""
        found = [block for block in (*self.blocks, *self.more) if isinstance(block, Findings)]
        return found[0].items if found else ()

    def __getattr__(self, name: str) -> Any:
        """Return the part of this name: a block, or the value of a figure."""
        if not name.startswith("_"):
            for part in (*self.blocks, *self.more):
                if part.name == name:
                    return part.to_json() if isinstance(part, Figure) else part
        known = ", ".join(sorted(self._parts())) if not name.startswith("_") else ""
        raise AttributeError(f"{self.name!r} has no part {name!r}" + (f"; it has {known}" if known else ""))

    def __dir__(self) -> list[str]:
        return [*object.__dir__(self), *self._parts()]

    def _parts(self) -> set[str]:
        return {part.name for part in (*self.blocks, *self.more)}

    def to_pandas(self, name: str = "") -> Any:
        """Return a part as a pandas DataFrame: the one of this name, or the first table. Needs pandas."""
        if name:
            return to_pandas(getattr(self, name))
        tables = [block for block in (*self.blocks, *self.more) if isinstance(block, Table)]
        if not tables:
            raise UsageError(f"{self.name} has no table; its parts are {', '.join(sorted(self._parts())) or 'none'}")
        return to_pandas(tables[0])

    @property
    def first_blocks(self) -> tuple[Block, ...]:
        """Return the blocks that are not folded."""
        return tuple(block for block in self.blocks if block.name not in self.folded)

    def to_json(self) -> dict[str, Any]:
        """Return plain data: the verdict and a key for each block, with raw values."""
        return {
            "schema": f"lostflops.{self.name}/{self.version}",
            "title": self.title,
            "verdict": self.verdict,
            "notes": list(self.notes),
            **{block.name: block.to_json() for block in (*self.blocks, *self.more)},
        }

    def _repr_html_(self) -> str | None:
        """Show it in a notebook."""
        return as_html(self)


def to_pandas(part: Any) -> Any:
    """Return the rows of a block as a DataFrame; a block of single figures is a row."""
    try:
        import pandas as pd  # noqa: PLC0415 - an answer does not need it
    except ImportError:
        raise UsageError("pandas is not installed: pip install pandas") from None
    rows = part.to_json() if hasattr(part, "to_json") else part
    if isinstance(part, Lines):
        rows = [{"line": line.name, "ns": line.ns, "share": line.share} for line in part.items]
    return pd.json_normalize(rows)


@dataclass(frozen=True, slots=True)
class Page:
    """All answers about a run, in reading order. `glossary` explains words; `missing` lists answers that failed, and
    why; `standing` is the result whose verdict stays in sight."""

    title: str
    results: tuple[Result, ...]
    glossary: Mapping[str, str]
    missing: tuple[tuple[str, str], ...] = ()
    standing: str = ""
