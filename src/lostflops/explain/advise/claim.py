"""Claim of a rule: a cause, the time attributed to it, and the fix that saves it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lostflops.account.ledger.lines import LINES
from lostflops.core.errors import UnknownCost
from lostflops.core.estimate import Estimate, Strength
from lostflops.core.results import Evidence

Place = tuple[int, str]
"""A rank and a line of its ledger."""


class NotChecked(UnknownCost):
    """A rule cannot check its cause, because the run lacks data. `record` is what to add to `lostflops run` so that the
    next run has it, such as `--with memory`; empty if no recording would help."""

    def __init__(self, why: str, record: str = "") -> None:
        super().__init__(why)
        self.record = record


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A cause that a rule found: the evidence, the time attributed to it, the fix and what prices it.

    The saving is that of its what-ifs, else the rule's own estimate, else at most the attributed time. A claim with
    none of them costs no time yet, such as growing memory, and is reported as a warning.
    """

    cause: str
    what: str
    taken: Mapping[Place, int]
    """Time of the ledger that it claims, in ns over the whole window; of `compute` only what exceeds the time that the
    work needs."""
    evidence: tuple[Evidence, ...]
    strength: Strength
    certain_if: str
    """How to confirm it."""
    fix: str
    changes: tuple[str, ...] = ()
    """What-ifs, such as `bucket_mb=25`, that together do what the fix does, and price it."""
    saving: Estimate | None = None
    """The rule's own estimate, if no what-if prices the fix."""
    ranks: tuple[int, ...] = ()
    """Ranks that have the cause; empty if all have it."""
    instead_of: tuple[str, ...] = ()
    """Causes that name the same loss less exactly. Their claims about the same ranks are dropped if this one is found
    and gains at least nearly half as much."""
    suspected: str = ""
    """Why this is suspected and not found, in one sentence; empty if the evidence is enough."""
    record: str = ""
    """Flags of `lostflops run` that record what is needed to confirm it, such as `--steps 8:20`."""

    def __post_init__(self) -> None:
        assert self.evidence, f"{self.cause} is claimed without evidence"
        assert all(line in LINES and ns >= 0 for (_, line), ns in self.taken.items()), f"{self.cause} claims no line"
        assert not self.changes or self.saving is None, f"{self.cause} has two prices"

    @property
    def costs_time(self) -> bool:
        return bool(self.changes or self.taken or self.saving)
