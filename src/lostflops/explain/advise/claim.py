"""What a rule says: a cause, the time that it claims, and how that would be won back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lostflops.account.ledger.lines import LINES
from lostflops.core.errors import UnknownCost
from lostflops.core.results import Evidence

Place = tuple[int, str]
"""A rank and a line of its ledger."""


class NotChecked(UnknownCost):
    """A rule cannot check its cause, because the run lacks data. `record` is what to add to `lostflops run` so that the
    next run has it, such as `--with memory`; empty where no recording would help."""

    def __init__(self, why: str, record: str = "") -> None:
        super().__init__(why)
        self.record = record


@dataclass(frozen=True, slots=True)
class Gain:
    """What part of the step a fix saves, for the same work, and between what it should lie in nine of ten cases;
    `basis` says what that rests on. Of a cause that costs no time yet, such as growing memory, it is nothing."""

    share: float
    low: float
    high: float
    basis: str

    def __post_init__(self) -> None:
        assert self.low <= self.share <= self.high <= 1, f"gain of {self.share} is not from {self.low} to {self.high}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """`taken` is the time that it claims of the ledger, in ns over the whole window; of `compute` only what exceeds
    what the work needs. `ranks` are those where the cause is, empty where it is everywhere. `changes` are what-ifs,
    such as `bucket_mb=25`, that together do what the fix does, and price it; `gain` is the rule's own price where no
    what-if says it. `confidence` is how often a claim with this evidence is right; `certain_if` what would
    settle it."""

    cause: str
    what: str
    taken: Mapping[Place, int]
    evidence: tuple[Evidence, ...]
    confidence: float
    certain_if: str
    fix: str
    changes: tuple[str, ...] = ()
    gain: Gain | None = None
    ranks: tuple[int, ...] = ()
    instead_of: tuple[str, ...] = ()
    """Causes that would name the same loss less exactly; their claims about the same ranks are dropped where this one
    is found and gains at least nearly half as much."""
    is_warning: bool = False
    """It costs no time, and is to be said all the same."""
    suspected: str = ""
    """Why this is suspected and not found, in one sentence; empty where the evidence is enough."""
    record: str = ""
    """Flags of `lostflops run` that record what would settle a suspicion, such as `--steps 8:20`."""

    def __post_init__(self) -> None:
        assert self.evidence, f"{self.cause} is claimed without evidence"
        assert 0 <= self.confidence <= 1, f"confidence of {self.cause} is {self.confidence}"
        assert all(line in LINES and ns >= 0 for (_, line), ns in self.taken.items()), f"{self.cause} claims no line"
        assert bool(self.changes) != (self.gain is not None), f"{self.cause} has no price, or two"
