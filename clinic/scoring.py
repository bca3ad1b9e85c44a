"""How right the diagnoses were. Nothing here runs or reads a job."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Final

NOTHING: Final = "nothing"
HEALTHY: Final = "healthy"
NEAR: Final = 0.10
"""A predicted gain is right when it is within so much of the step of the measured one."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What is true of a patient beside what was found: causes with their predicted gains, the first finding first.

    `measured` is what the cure gained, where it was run; `skipped` says why the patient was not seen at all, and
    `failed` why there was no diagnosis, which counts as a wrong one.
    """

    name: str
    causes: tuple[str, ...]
    is_real: bool
    found: tuple[tuple[str, float | None], ...] = ()
    measured: float | None = None
    skipped: str = ""
    failed: str = ""

    @property
    def is_top_1(self) -> bool:
        """The first finding is the cause, or one of the causes."""
        return bool(self.found) and self.found[0][0] in self.causes

    @property
    def is_top_3(self) -> bool:
        """All causes are within the first three findings."""
        return bool(self.causes) and {*self.causes} <= {cause for cause, _ in self.found[:3]}

    @property
    def is_false_alarm(self) -> bool:
        return not self.causes and bool(self.found or self.failed)

    @property
    def predicted(self) -> float | None:
        """What the fixes of the true causes gain together, each of what the others leave; the cure fixes all. None
        where a cause was not found or has no price."""
        gains = dict(reversed(self.found))
        own = [gains.get(cause) for cause in self.causes]
        told = [gain for gain in own if gain is not None]
        return 1 - prod(1 - gain for gain in told) if told and len(told) == len(own) else None

    @property
    def error(self) -> float | None:
        """Predicted less measured gain, in parts of the step."""
        return None if self.predicted is None or self.measured is None else self.predicted - self.measured

    @property
    def row(self) -> str:
        """Of the confusion matrix: which of several causes it stands for is the one that was found."""
        if not self.causes:
            return HEALTHY
        return self.column if self.is_top_1 else self.causes[0]

    @property
    def column(self) -> str:
        return self.found[0][0] if self.found else NOTHING

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "causes": list(self.causes),
            "is_real": self.is_real,
            "found": [{"cause": cause, "gain": gain} for cause, gain in self.found],
            "predicted_gain": self.predicted,
            "measured_gain": self.measured,
            "skipped": self.skipped,
            "failed": self.failed,
        }

    @classmethod
    def from_json(cls, told: dict[str, Any]) -> Outcome:
        return cls(
            name=told["name"],
            causes=tuple(told["causes"]),
            is_real=told["is_real"],
            found=tuple((one["cause"], one["gain"]) for one in told["found"]),
            measured=told["measured_gain"],
            skipped=told["skipped"],
            failed=told["failed"],
        )


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
    """`near` counts cured jobs whose predicted gain was right, of all whose gain was measured: a cause that was not
    found has no prediction, and is not near."""

    top_1: Count
    top_3: Count
    false_alarms: Count
    near: Count
    skipped: int

    @classmethod
    def of(cls, outcomes: Sequence[Outcome]) -> Score:
        seen = [one for one in outcomes if not one.skipped]
        sick = [one for one in seen if one.causes]
        healthy = [one for one in seen if not one.causes]
        cured = [one for one in sick if one.measured is not None]
        return cls(
            Count(sum(one.is_top_1 for one in sick), len(sick)),
            Count(sum(one.is_top_3 for one in sick), len(sick)),
            Count(sum(one.is_false_alarm for one in healthy), len(healthy)),
            Count(sum(one.error is not None and abs(one.error) <= NEAR for one in cured), len(cured)),
            len(outcomes) - len(seen),
        )

    def to_json(self) -> dict[str, Any]:
        counts = {"top_1": self.top_1, "top_3": self.top_3, "false_alarms": self.false_alarms, "near": self.near}
        told = {name: {"count": count.right, "of": count.of, "share": count.share} for name, count in counts.items()}
        return {**told, "skipped": self.skipped}


def confusion(outcomes: Sequence[Outcome]) -> dict[str, Counter[str]]:
    """By true cause, how often each cause was the first finding."""
    matrix: dict[str, Counter[str]] = {}
    for one in outcomes:
        if not one.skipped:
            matrix.setdefault(one.row, Counter())[one.column] += 1
    return matrix
