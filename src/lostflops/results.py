"""What an analysis says, and all that any renderer ever reads.

A `Result` is a verdict with blocks of evidence below it. Values are plain and raw (integers of ns, bytes
or FLOP); a unit beside each column or pair tells a renderer how to show them. This module knows neither
where results come from nor how they look.
"""

from dataclasses import asdict, dataclass
from typing import Any, Literal

Value = str | int | float | bool | None
Unit = Literal["", "count", "ns", "bytes", "flop", "share", "time"]
"""`count` is a number, `share` a part of 1, `time` a Unix time in ns; without a unit a value shows as it is."""


@dataclass(frozen=True, slots=True)
class Field:
    """A column of a table. `name` is its key in JSON, `label` its heading where the name does not do."""

    name: str
    unit: Unit = ""
    label: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under typed columns; `left_out` counts the rows that were not kept."""

    name: str
    title: str
    fields: tuple[Field, ...]
    rows: tuple[tuple[Value, ...], ...]
    left_out: int = 0

    def __post_init__(self) -> None:
        assert all(len(row) == len(self.fields) for row in self.rows), f"ragged table {self.name}"

    def to_json(self) -> list[dict[str, Any]]:
        names = [field.name for field in self.fields]
        return [dict(zip(names, row, strict=True)) for row in self.rows]


@dataclass(frozen=True, slots=True)
class Pair:
    name: str
    value: Value
    unit: Unit = ""
    label: str = ""


@dataclass(frozen=True, slots=True)
class Pairs:
    """Single figures, each with its name."""

    name: str
    title: str
    items: tuple[Pair, ...]

    def to_json(self) -> dict[str, Any]:
        return {pair.name: pair.value for pair in self.items}


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the ledger; its parts say what it is made of."""

    name: str
    ns: int
    share: float
    parts: tuple["Line", ...] = ()


@dataclass(frozen=True, slots=True)
class Lines:
    """Ledger lines: exclusive, and together the whole."""

    name: str
    title: str
    items: tuple[Line, ...]

    def to_json(self) -> list[dict[str, Any]]:
        return [asdict(line) for line in self.items]


@dataclass(frozen=True, slots=True)
class Prediction:
    """What a change would do to the step time, kept so that a later run can score it."""

    id: str
    change: str
    predicted_ns: int
    low_ns: int
    high_ns: int
    replay_error: float
    date: str
    run: str

    def __post_init__(self) -> None:
        assert self.low_ns <= self.predicted_ns <= self.high_ns, f"interval of {self.id} excludes its own value"


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a finding rests on. An event is named by its rank and its number in table `events`."""

    what: str
    events: tuple[tuple[int, int], ...] = ()
    ranks: tuple[int, ...] = ()
    steps: tuple[int, ...] = ()
    sources: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Finding:
    """A cause of lost time: what it costs, why we think so, what would settle it, and the fix."""

    cause: str
    what: str
    lost_ns: int
    lost_share: float
    ranks: tuple[int, ...]
    evidence: tuple[Evidence, ...]
    confidence: float
    certain_if: str
    fix: str
    prediction: Prediction | None = None

    def __post_init__(self) -> None:
        assert 0 <= self.confidence <= 1, f"confidence of {self.cause} is {self.confidence}"


@dataclass(frozen=True, slots=True)
class Findings:
    name: str
    title: str
    items: tuple[Finding, ...]

    def to_json(self) -> list[dict[str, Any]]:
        return [asdict(finding) for finding in self.items]


Block = Table | Pairs | Lines | Findings


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

    def __post_init__(self) -> None:
        taken = {"schema", "title", "verdict", "notes"}
        for block in self.blocks:
            assert block.name not in taken, f"two parts of {self.name} are called {block.name}"
            taken.add(block.name)

    def to_json(self) -> dict[str, Any]:
        """Plain data: a key for each block beside the verdict, raw values, no hint for humans."""
        return {
            "schema": f"lostflops.{self.name}/1",
            "title": self.title,
            "verdict": self.verdict,
            "notes": list(self.notes),
            **{block.name: block.to_json() for block in self.blocks},
        }
