"""How right the diagnoses were. Nothing here runs or reads a job."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from math import prod
from statistics import median
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from clinic.patients import Patient

NOTHING: Final = "nothing"
HEALTHY: Final = "healthy"
NEAR: Final = 0.10
"""A predicted saving is right when it is within so much of the step of the measured one."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A cause that a diagnosis names, with the saving that it predicts, in parts of the step."""

    cause: str
    gain: float | None = None
    low: float | None = None
    high: float | None = None
    ranks: tuple[int, ...] = ()
    is_suspected: bool = False
    says: str = ""
    """The finding and its evidence, a line for each, where a diagnosis gives them."""
    probability: float | None = None
    """How often such findings are right, as it is printed."""
    kind: str | None = None
    strength: str | None = None
    """Kind of the saving, and strength of the evidence; None where results do not have them."""

    @classmethod
    def from_diagnosis(cls, told: dict[str, Any]) -> Finding:
        """Read a finding of `lostflops diagnose --json`."""
        saving = told.get("saving") or {}
        gain, low, high = (saving.get(key) for key in ("value", "low", "high"))
        ranks, is_suspected = tuple(told.get("ranks") or ()), told.get("level") == "suspected"
        says = "\n".join(each["what"] for each in (told, *told.get("evidence", ())) if "what" in each)
        known = told.get("probability"), saving.get("kind"), told.get("strength")
        return cls(told["cause"], gain, low, high, ranks, is_suspected, says, *known)

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "ranks": list(self.ranks)}

    @classmethod
    def from_json(cls, told: dict[str, Any]) -> Finding:
        return cls(**{**told, "ranks": tuple(told.get("ranks", ()))})

    @property
    def interval(self) -> tuple[float, float] | None:
        return None if self.low is None or self.high is None else (self.low, self.high)

    @property
    def is_about_zero(self) -> bool:
        """The interval contains zero: the fix may save nothing."""
        return self.interval is not None and self.interval[0] <= 0 <= self.interval[1]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The truth about a patient, and its findings in their order."""

    name: str
    causes: tuple[str, ...]
    is_real: bool
    findings: tuple[Finding, ...] = ()
    measured: float | None = None
    """What the cure saved, where it was run."""
    skipped: str = ""
    """Why the patient was not seen at all."""
    failed: str = ""
    """Why there was no diagnosis, which counts as a wrong one."""
    accepted: tuple[tuple[str, ...], ...] = ()
    """For each cause, the ids that name it; empty where each has one name only."""
    rank: int | None = None
    """The rank that a right finding names."""
    layer: str = ""
    """A pattern of the layer that a right finding names."""
    rounds: tuple[float, ...] = ()
    """The saving in each round of sick and cured runs, where they were run in turn without a recorder."""
    load: float | None = None
    """The load average of the machine when the patient came."""
    busy: int = 0
    """Cores that the clinic kept busy with other work."""

    @classmethod
    def of(cls, patient: Patient, *, busy: int = 0) -> Outcome:
        """Return what is known of a patient before it is seen."""
        return cls(
            patient.name,
            patient.causes,
            patient.is_real,
            accepted=patient.accepted,
            rank=patient.rank,
            layer=patient.layer,
            busy=busy,
        )

    @property
    def found(self) -> tuple[Finding, ...]:
        return tuple(one for one in self.findings if not one.is_suspected)

    @property
    def suspected(self) -> tuple[Finding, ...]:
        return tuple(one for one in self.findings if one.is_suspected)

    @property
    def names(self) -> tuple[tuple[str, ...], ...]:
        """The ids that name each cause."""
        return self.accepted or tuple((cause,) for cause in self.causes)

    @property
    def is_top_1(self) -> bool:
        """The first finding is the cause, or one of the causes."""
        return bool(self.found) and any(self.found[0].cause in ids for ids in self.names)

    @property
    def is_first_shown(self) -> bool:
        """The first finding on the screen is the cause, be it found or suspected."""
        return bool(self.findings) and any(self.findings[0].cause in ids for ids in self.names)

    @property
    def is_inside_if_shown(self) -> bool | None:
        """Whether the measured saving is in the range, or below the limit, of the first finding on the screen that
        names the only cause; None if no range was shown or nothing measured."""
        shown = next((one for one in self.findings if any(one.cause in ids for ids in self.names)), None)
        if len(self.names) != 1 or shown is None or shown.interval is None or self.measured is None:
            return None
        return shown.interval[0] <= self.measured <= shown.interval[1]

    @property
    def is_top_3(self) -> bool:
        """All causes are within the first three findings."""
        said = {one.cause for one in self.found[:3]}
        return bool(self.causes) and all(said.intersection(ids) for ids in self.names)

    @property
    def names_rank(self) -> bool:
        """The first finding is right, and about the rank at fault alone."""
        return self.is_top_1 and self.rank is not None and self.found[0].ranks == (self.rank,)

    @property
    def names_layer(self) -> bool:
        """The first finding is right, and it or its evidence names the layer at fault."""
        return self.is_top_1 and bool(self.layer and re.search(self.layer, self.found[0].says, re.IGNORECASE))

    @property
    def is_false_alarm(self) -> bool:
        return not self.causes and bool(self.found or self.failed)

    @property
    def named(self) -> list[Finding | None]:
        """For each cause, the first finding that names it."""
        return [next((one for one in self.found if one.cause in ids), None) for ids in self.names]

    @property
    def predicted(self) -> float | None:
        """What the fixes of the true causes save together, each of what the others leave; the cure fixes all. None
        where a cause was not found or has no price."""
        return _together([None if one is None else one.gain for one in self.named])

    @property
    def interval(self) -> tuple[float, float] | None:
        """The predicted saving's; of several causes, from all lows to all highs."""
        low = _together([None if one is None else one.low for one in self.named])
        high = _together([None if one is None else one.high for one in self.named])
        return None if low is None or high is None else (low, high)

    @property
    def error(self) -> float | None:
        """Predicted less measured saving, in parts of the step."""
        return None if self.predicted is None or self.measured is None else self.predicted - self.measured

    @property
    def is_near(self) -> bool:
        return self.error is not None and abs(self.error) <= NEAR

    @property
    def is_inside(self) -> bool:
        """The measured saving is within the interval that was shown."""
        if self.interval is None or self.measured is None:
            return False
        return self.interval[0] <= self.measured <= self.interval[1]

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "causes": list(self.causes),
            "accepted": [list(ids) for ids in self.accepted],
            "rank": self.rank,
            "layer": self.layer,
            "is_real": self.is_real,
            "found": [one.to_json() for one in self.findings],
            "predicted_gain": self.predicted,
            "measured_gain": self.measured,
            "rounds": list(self.rounds),
            "load": self.load,
            "busy": self.busy,
            "skipped": self.skipped,
            "failed": self.failed,
        }

    @classmethod
    def from_json(cls, told: dict[str, Any]) -> Outcome:
        return cls(
            name=told["name"],
            causes=tuple(told["causes"]),
            is_real=told["is_real"],
            findings=tuple(Finding.from_json(one) for one in told["found"]),
            measured=told["measured_gain"],
            skipped=told["skipped"],
            failed=told["failed"],
            accepted=tuple(tuple(ids) for ids in told.get("accepted", ())),
            rank=told.get("rank"),
            layer=told.get("layer", ""),
            rounds=tuple(told.get("rounds", ())),
            load=told.get("load"),
            busy=told.get("busy", 0),
        )


def _together(shares: Sequence[float | None]) -> float | None:
    """Return what is saved where each saves its share of what the others leave; None where one is unknown."""
    known = [share for share in shares if share is not None]
    return 1 - prod(1 - share for share in known) if known and len(known) == len(shares) else None


@dataclass(frozen=True, slots=True)
class Count:
    """So many of so many."""

    right: int
    of: int

    @property
    def share(self) -> float | None:
        return self.right / self.of if self.of else None

    def __str__(self) -> str:
        return f"{self.right} of {self.of}" + ("" if self.share is None else f" ({self.share:.0%})")


@dataclass(frozen=True, slots=True)
class Score:
    """`near` and `inside` count jobs whose first finding is right and whose saving was measured; `inside` only those
    with an interval. `width` is the median over intervals of findings in sick jobs, and `about_zero` counts those that
    contain zero."""

    top_1: Count
    top_3: Count
    false_alarms: Count
    near: Count
    skipped: int
    inside: Count = Count(0, 0)
    width: float | None = None
    about_zero: Count = Count(0, 0)
    rank: Count = Count(0, 0)
    layer: Count = Count(0, 0)
    first_shown: Count = Count(0, 0)
    inside_if_shown: Count = Count(0, 0)
    """Of suspected findings too."""
    unnamed: Count = Count(0, 0)
    """Sick jobs with a fault that no rule can name."""
    suspicions: Count = Count(0, 0)
    """Healthy jobs with any finding."""

    @classmethod
    def of(cls, outcomes: Sequence[Outcome]) -> Score:
        seen = [one for one in outcomes if not one.skipped]
        sick = [one for one in seen if one.causes]
        healthy = [one for one in seen if not one.causes]
        cured = [one for one in sick if one.is_top_1 and one.measured is not None]
        of_a_rank = [one for one in sick if one.rank is not None]
        shown = [finding for one in sick for finding in one.found if finding.interval is not None]
        widths = [high - low for low, high in (finding.interval or (0.0, 0.0) for finding in shown)]
        return cls(
            count(one.is_top_1 for one in sick),
            count(one.is_top_3 for one in sick),
            count(one.is_false_alarm for one in healthy),
            count(one.is_near for one in cured),
            len(outcomes) - len(seen),
            count(one.is_inside for one in cured if one.interval is not None),
            median(widths) if widths else None,
            count(finding.is_about_zero for finding in shown),
            count(one.names_rank for one in of_a_rank),
            count(one.names_layer for one in sick if one.layer),
            count(one.is_first_shown for one in sick),
            count(one.is_inside_if_shown for one in sick if one.is_inside_if_shown is not None),
            count(not any(one.names) for one in sick),
            count(bool(one.findings) for one in healthy),
        )


def count(verdicts: Iterable[bool]) -> Count:
    every = list(verdicts)
    return Count(sum(every), len(every))
