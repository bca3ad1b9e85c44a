"""Answers as data: what an analysis returns, and all that a renderer reads.

A `Result` is a verdict with blocks of evidence below it. Values are plain (integers in ns, bytes or FLOP); the unit
of a column or pair says how to show them. This module knows neither where results come from nor how they look.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from lostflops.core.errors import UsageError
from lostflops.core.estimate import Estimate, Kind, Strength
from lostflops.core.notebook import as_html
from lostflops.core.pictures import Knobs, Spans, Strips
from lostflops.core.units import format_ns

Value = str | int | float | bool | None
Unit = Literal["", "count", "ns", "bytes", "flop", "flops", "share", "time", "rate", "gbs"]
"""`count` is a number, `share` a part of 1, `time` a Unix time in ns, `rate` a number per second or a ratio, `gbs`
GB/s; a value without a unit is shown unchanged."""


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
    """A column of a table."""

    name: str
    """Its key in JSON."""
    unit: Unit = ""
    label: str = ""
    """Its heading, if it differs from the name."""
    within: str = ""
    """Name of the JSON object that holds the key; empty if the row itself does."""
    shown: bool = True
    """If false, only JSON has the column."""
    has_bars: bool = False
    """A page draws its values as bars from zero."""


@dataclass(frozen=True, slots=True)
class Table(_Block):
    """Rows under typed columns."""

    name: str
    title: str
    fields: tuple[Field, ...]
    rows: tuple[tuple[Value, ...], ...]
    left_out: int = 0
    """Number of rows that were not kept."""
    most_shown: int | None = None
    """Number of rows that screens show, from the first; None for all."""
    more: tuple[Mapping[str, Any], ...] = ()
    """Further keys of each row in JSON."""

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
    """A figure, or a list of figures."""

    name: str
    value: Value | tuple[Value, ...]
    unit: Unit = ""
    label: str = ""
    shown: bool = True
    """If false, only JSON has the figure."""


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
    """Values by row and column."""

    name: str
    title: str
    rows: tuple[tuple[str, tuple[float | None, ...]], ...]
    """Name and values of each row; None is a cell without a value."""
    unit: Unit
    legend: str
    """Meaning of a cell."""
    columns: tuple[str, ...] = ()
    """Unique names, and keys of the values in JSON; empty if columns do not mean the same in every row."""
    down: str = ""
    """Title of the vertical axis."""
    across: str = ""
    """Title of the horizontal axis."""

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
    """Points of a plot. Series whose names are equal up to a colon belong together."""

    name: str
    drawn: Literal["marks", "line"]
    """`marks` if the points are measured, `line` if they are computed."""
    points: tuple[tuple[float, float], ...]
    """Pairs of x and y."""


@dataclass(frozen=True, slots=True)
class Band:
    """A range of x that a plot shades."""

    name: str
    start: float
    stop: float


@dataclass(frozen=True, slots=True)
class Mark:
    """An x that a plot marks by a line."""

    name: str
    at: float


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
    bands: tuple[Band, ...] = ()
    """Shaded ranges of x; other parts of the result have them in JSON, as for the marks."""
    marks: tuple[Mark, ...] = ()

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
    """Call stacks with their samples."""

    name: str
    title: str
    items: tuple[tuple[tuple[str, ...], int, int], ...]
    """Frames from the outermost, number of samples, and the time of these samples in ns."""
    kinds: dict[str, str]
    """Kind of each frame."""

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
    """Lines of the ledger: exclusive, with the sum `total_ns`."""

    name: str
    title: str
    items: tuple[Line, ...]
    total_ns: int
    per: int = 1
    """Number of units; screens show the time per unit."""
    unit: str = ""
    """Name of the unit, such as `step`."""

    def __post_init__(self) -> None:
        held = sum(line.ns for line in self.items)
        assert held == self.total_ns, f"{self.name} does not close: {held} of {self.total_ns} ns"

    def to_json(self) -> dict[str, Any]:
        return {"total_ns": self.total_ns, "lines": [line.to_json() for line in self.items]}


@dataclass(frozen=True, slots=True)
class Portion:
    """Bytes of a whole, with their parts."""

    name: str
    bytes: int
    count: int
    """Number of pieces."""
    parts: tuple["Portion", ...] = ()

    def __post_init__(self) -> None:
        held = sum(part.bytes for part in self.parts)
        assert not self.parts or held == self.bytes, f"{self.name} does not close: {held} of {self.bytes} bytes"


@dataclass(frozen=True, slots=True)
class Portions(_Block):
    """Portions of `total` bytes: exclusive and complete."""

    name: str
    title: str
    key: str
    """Key of a portion's name in JSON."""
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
    """Bytes over time, in columns of equal length."""

    name: str
    title: str
    start: int
    stop: int
    at: tuple[int, ...]
    """The moment that each column shows: the one with the most bytes in it."""
    total: tuple[int, ...]
    """Sum of the rows in each column."""
    rows: tuple[tuple[str, tuple[int, ...]], ...]
    marks: tuple[tuple[int, int], ...] = ()
    """Numbers of steps, or of what `marked` says, each with its start time."""
    marked: str = "step"
    """Name of what is marked."""
    top: int | None = None
    """Time of the peak."""

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
    """A step down."""

    name: str
    points: float
    """Percent of the whole."""


@dataclass(frozen=True, slots=True)
class Waterfall(_Block):
    """The way from 100% down to what is left: the bars sum to 100."""

    name: str
    title: str
    value: float | None
    """Share that is left, which is the last bar; None if unknown."""
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
"""Largest difference between the gain and the change in step time if both are for the same work. Changes such as a
larger batch change the work of a step: the saving is then not the difference of step times."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """The what-if that prices a fix; a later run can score it. The run may have no steps: then times are 0."""

    id: str
    change: str
    measured_ns: int
    """The step time before the change."""
    predicted_ns: int
    """The step time with the change."""
    low_ns: int
    """Lower end of its range."""
    high_ns: int
    """Upper end of its range."""
    replay_error: float


@dataclass(frozen=True, slots=True)
class Evidence:
    """A reason for a finding."""

    what: str
    events: tuple[tuple[int, int], ...] = ()
    """Pairs of a rank and a number in table `events`."""
    ranks: tuple[int, ...] = ()
    steps: tuple[int, ...] = ()
    sources: tuple[str, ...] = ()


Level = Literal["found", "suspected"]
"""`found`: the evidence is enough. `suspected`: it points one way, and more data is needed."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A cause of lost time: what it costs, the evidence, how to confirm it, and the fix."""

    id: str
    """The cause with the ranks that it is on, such as `straggler:4`: the same in every verb."""
    level: Level
    cause: str
    what: str
    lost_ns: int
    lost_share: float
    rank_hours: float
    """Hours that the fix saves in a day of training, summed over all ranks."""
    usd: float | None
    """Price of these hours; None if unknown."""
    ranks: tuple[int, ...]
    evidence: tuple[Evidence, ...]
    strength: Strength
    probability: float | None
    """How often such a finding was right, counted on jobs with known causes; None if that was not counted."""
    certain_if: str
    fix: str
    lines: Mapping[str, int]
    """Time attributed to it by line of the ledger, in ns over all ranks; together `lost_ns`."""
    saving: Estimate | None = None
    """What its fix saves; None if it costs no time yet, such as growing memory, which costs none until it runs out."""
    prediction: Prediction | None = None
    """The what-if that the saving comes from, or None."""
    doubt: str = ""
    """Why it is suspected and not found."""
    record: str = ""
    """Flags of `lostflops run` that record what is needed to confirm it."""

    def __post_init__(self) -> None:
        assert self.level == "found" or self.doubt, f"{self.id} is suspected for no reason"
        assert self.is_suspected or self.saving is None or self.saving.is_gain, f"{self.id} may save nothing"

    @property
    def is_suspected(self) -> bool:
        return self.level == "suspected"

    @property
    def saves(self) -> str:
        """Return what its fix saves, in words."""
        return "no time yet" if self.saving is None else self.saving.text()

    @property
    def odds(self) -> str:
        """Return how often such a finding was right, in words; empty if unknown."""
        return "" if self.probability is None else f"about {100 * self.probability:.0f}%, by outcomes of other jobs"

    @property
    def step_times(self) -> str:
        """Return the step time before and after, if both are for the same work; empty for a limit, or if unknown."""
        times, saving = self.prediction, self.saving
        if saving is None or saving.kind == Kind.BOUND or not saving.is_gain or times is None or not times.measured_ns:
            return ""
        is_same_work = abs(1 - times.predicted_ns / times.measured_ns - saving.value) < _SAME_WORK
        return f"from {format_ns(times.measured_ns)} to {format_ns(times.predicted_ns)}" if is_same_work else ""


@dataclass(frozen=True, slots=True)
class FindingPlace:
    """Where to look for a finding. Times are ns from the start of the timeline."""

    rank: int
    """Rank with the stall."""
    line: str
    """Ledger line of the stall."""
    stall: tuple[int, int]
    """Start and stop of the stall: a long stretch of time that the finding costs."""
    event: int | None
    """Event of `rank` that took most of the stall."""
    victim: int | None
    """Rank that waited longest for `rank`, if one did."""
    wait: tuple[int, int] | None
    """Start and stop of its wait."""
    between: tuple[int, ...] = ()
    """Ranks that it waited for, which in turn waited, the last of them for `rank`."""
    more: int | None = None
    """Time that `rank` spent more on `line` than the rank that waited for it, in the same step."""


@dataclass(frozen=True, slots=True)
class Findings(_Block):
    """Findings: first those that are found, then by saving."""

    name: str
    title: str
    items: tuple[Finding, ...]
    most_shown: int | None = None
    """Number of findings that screens show, from the first; None for all."""
    is_brief: bool = False
    """Screens show only the heading, the saving and the fix of each."""
    places: tuple[FindingPlace | None, ...] = ()
    """Where pages show each, from the first."""

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
    run: str = "RUN"
    """The run, as the commands that a renderer names write it."""
    version: int = 1
    """Version of its JSON: it increases whenever a key is renamed, removed or changes its meaning."""

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
    """All answers about a run, in reading order."""

    title: str
    results: tuple[Result, ...]
    glossary: Mapping[str, str]
    """Explanations of words."""
    missing: tuple[tuple[str, str], ...] = ()
    """Answers that failed, each with the reason."""
    standing: str = ""
    """Name of the result whose verdict stays in sight."""
