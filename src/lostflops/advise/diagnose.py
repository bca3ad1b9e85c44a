"""Why is the run slow, what would fix it, and what would each fix gain?

Rules look at the run one by one, each for one cause. What they claim of the ledger is shared out so that no nanosecond
is claimed twice; each fix is priced by a what-if on the replayed run; the largest gain comes first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from lostflops.advise.case import Case
from lostflops.advise.findings import Priced, finding, priced
from lostflops.advise.rules import RULES
from lostflops.advise.sharing import shared
from lostflops.errors import UnknownCost, UsageError
from lostflops.ledger.few_steps import told
from lostflops.predict.answers import predictions
from lostflops.results import Field, Figure, Finding, Findings, Result, Table
from lostflops.units import counted, format_share

if TYPE_CHECKING:
    from lostflops.advise.claim import Claim, Rule
    from lostflops.ledger.by_rank import Progress
    from lostflops.predict.answers.facts_of import Told
    from lostflops.store.run import Run

FOUND: Final = "found"
NOTHING: Final = "nothing"
SMALL: Final = "too small"
UNCERTAIN: Final = "too uncertain"
CANNOT_TELL: Final = "cannot tell"
_NEARLY_HALF: Final = 0.4
"""Of what a claim gains that a more exact one must gain to take its place."""


@dataclass(frozen=True, slots=True)
class Looked:
    """What came of one rule."""

    cause: str
    outcome: str
    why: str = ""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Findings, the largest gain first, each with what it was made from."""

    case: Case
    items: tuple[tuple[Finding, Priced], ...]
    looked: tuple[Looked, ...]
    excess: int
    """What findings claim of compute, in ns."""

    @property
    def findings(self) -> tuple[Finding, ...]:
        return tuple(found for found, _ in self.items)


def diagnosis(case: Case, *, usd_per_hour: float | None = None, rules: Sequence[Rule] = RULES) -> Diagnosis:
    looked: list[Looked] = []
    offered: list[Priced] = []
    for rule in rules:
        own, why = _claims(case, rule)
        seen = [priced(case, claim) for claim in own]
        worth = [one for one in seen if one.is_worth_it]
        offered += worth
        outcome = FOUND if worth else _missed(seen) if seen else CANNOT_TELL if why else NOTHING
        looked.append(Looked(rule.cause, outcome, why or "; ".join(one.says for one in seen if not one.is_worth_it)))
    offered = [one for one in offered if not any(_is_named_better(one, other) for other in offered)]
    offered.sort(key=lambda one: -one.prediction.gain)
    got = shared([one.claim for one in offered], case.lines)
    made = [finding(case, one, part, usd_per_hour) for one, part in zip(offered, got, strict=True)]
    excess = sum(ns for part in got for (_, line), ns in part.items() if line == "compute")
    return Diagnosis(case, tuple(zip(made, offered, strict=True)), tuple(looked), excess)


def _is_named_better(one: Priced, other: Priced) -> bool:
    """Whether the other claim names the same loss more exactly: a straggler that writes checkpoints is a checkpoint."""
    about = not other.claim.ranks or set(one.claim.ranks) <= set(other.claim.ranks)
    is_large = other.prediction.gain >= _NEARLY_HALF * one.prediction.gain
    return one.claim.cause in other.claim.instead_of and about and is_large


def _missed(seen: Sequence[Priced]) -> str:
    return UNCERTAIN if any(one.is_uncertain for one in seen) else SMALL


def _claims(case: Case, rule: Rule) -> tuple[list[Claim], str]:
    """And why the run does not tell, where it does not."""
    try:
        return list(rule.find(case)), ""
    except (UnknownCost, UsageError) as error:
        return [], str(error)


def diagnose(
    run: Run,
    times: Told | None = None,
    *,
    usd_per_hour: float | None = None,
    most: int | None = None,
    keep: bool = False,
    progress: Progress | None = None,
    rules: Sequence[Rule] = RULES,
) -> Result:
    """`most` are the findings that people see; their what-ifs are kept in the run where it says so, for a later run to
    score."""
    case = Case(run, times, progress)
    found = diagnosis(case, usd_per_hour=usd_per_hour, rules=rules)
    return Result(
        name="diagnosis",
        title="Diagnosis",
        verdict=_verdict(found),
        blocks=(Findings("findings", "Findings", found.findings, most),),
        notes=(*_notes(found), *(kept(run, found.items[:most]) if keep else ())),
        more=(
            _looked(found.looked),
            Figure("lost_ns", lost_ns(found)),
            Figure("wall_ns", case.wall),
        ),
    )


def kept(run: Run, items: Sequence[tuple[Finding, Priced]]) -> Iterator[str]:
    """What is advised is held to: the what-ifs of findings become predictions of the run. Says where that fails."""
    try:
        for _, one in items:
            if one.stored is not None:
                predictions.keep(one.stored)
    except OSError as error:
        yield f"The predictions were not stored, so that no run can score them: {run.path}: {error.strerror}."


def lost_ns(found: Diagnosis) -> int:
    """All that is not compute, and what of compute a finding shows to be in excess."""
    case = found.case
    return case.wall - case.total.lines["compute"] + found.excess


def _verdict(found: Diagnosis) -> str:
    if not found.case.wall:
        return "Cannot tell: no rank recorded any time."
    if not found.items:
        compute = format_share(found.case.total.share("compute"))
        unsure = [one.cause for one in found.looked if one.outcome == UNCERTAIN]
        says = f"Nothing stands out: the ranks compute for {compute} of the time, and no rule found a cause worth 3%"
        return (
            f"{says} for certain; the gain of some is less than its doubt ({', '.join(unsure)})."
            if unsure
            else f"{says}."
        )
    first = found.findings[0]
    others = f" {counted(len(found.items) - 1, 'other cause')} found." if len(found.items) > 1 else ""
    if found.items[0][1].claim.is_warning:
        return f"{first.what} It costs no time yet, and no rule found a cause worth 3%.{others}"
    gain = first.prediction
    assert gain is not None
    about = "at most" if found.items[0][1].is_bound else "about"
    return f"{first.what} Fixing it gains {about} {format_share(gain.gain)} of the step.{others}"


def _notes(found: Diagnosis) -> Iterator[str]:
    if found.case.run.steps:
        yield told(found.case.run)
    if found.case.why_unpriced:
        yield f"Gains are bounds by the ledger, because the run cannot be replayed: {found.case.why_unpriced}"
    if len(found.items) > 1:
        yield "Gains are of each fix alone, and do not add up."
    unsure = [one.cause for one in found.looked if one.outcome == CANNOT_TELL]
    if unsure:
        yield f"Not looked for, because the run does not tell: {', '.join(unsure)}."


def _looked(rows: Sequence[Looked]) -> Table:
    fields = (Field("cause"), Field("outcome"), Field("why"))
    return Table("looked", "Looked for", fields, tuple((one.cause, one.outcome, one.why) for one in rows))
