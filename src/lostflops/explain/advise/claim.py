"""Claim of a rule: a cause, the time attributed to it, and the fix that saves it."""

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
    next run has it, such as `--with memory`; empty if no recording would help."""

    def __init__(self, why: str, record: str = "") -> None:
        super().__init__(why)
        self.record = record


@dataclass(frozen=True, slots=True)
class Gain:
    """Share of the step that a fix saves, for the same work; zero for a cause that costs no time yet, such as growing
    memory."""

    share: float
    low: float
    """Lower end of the 90% interval."""
    high: float
    """Upper end of the 90% interval."""
    basis: str
    """Source of the estimate, in words."""

    def __post_init__(self) -> None:
        assert self.low <= self.share <= self.high <= 1, f"gain of {self.share} is not from {self.low} to {self.high}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A cause that a rule found: the evidence, the time attributed to it, the fix and what prices it."""

    cause: str
    what: str
    taken: Mapping[Place, int]
    """Time of the ledger that it claims, in ns over the whole window; of `compute` only what exceeds the time that the
    work needs."""
    evidence: tuple[Evidence, ...]
    confidence: float
    """How often a claim with this evidence is right."""
    certain_if: str
    """How to confirm it."""
    fix: str
    changes: tuple[str, ...] = ()
    """What-ifs, such as `bucket_mb=25`, that together do what the fix does, and price it."""
    gain: Gain | None = None
    """The rule's own estimate, if no what-if prices the fix."""
    ranks: tuple[int, ...] = ()
    """Ranks that have the cause; empty if all have it."""
    instead_of: tuple[str, ...] = ()
    """Causes that name the same loss less exactly. Their claims about the same ranks are dropped if this one is found
    and gains at least nearly half as much."""
    is_warning: bool = False
    """It costs no time, but is reported anyway."""
    suspected: str = ""
    """Why this is suspected and not found, in one sentence; empty if the evidence is enough."""
    record: str = ""
    """Flags of `lostflops run` that record what is needed to confirm it, such as `--steps 8:20`."""

    def __post_init__(self) -> None:
        assert self.evidence, f"{self.cause} is claimed without evidence"
        assert 0 <= self.confidence <= 1, f"confidence of {self.cause} is {self.confidence}"
        assert all(line in LINES and ns >= 0 for (_, line), ns in self.taken.items()), f"{self.cause} claims no line"
        assert bool(self.changes) != (self.gain is not None), f"{self.cause} has no price, or two"
