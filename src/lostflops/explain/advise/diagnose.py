"""Why is the run slow, what would fix it, and what would each fix save?

Each rule looks for one cause. The time that rules claim is shared out so that no nanosecond is claimed twice; each fix
is priced by a what-if on the replayed run. A cause is found if the evidence is enough, suspected if the evidence points
one way and more data is needed, and not checked if the run lacks the data. Every verb that names causes uses this
module.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from lostflops.account.ledger.few_steps import describe_chosen_steps
from lostflops.account.ledger.windows import inferred_steps
from lostflops.account.pace.headline import describe_job, describe_recording
from lostflops.core.errors import UnknownCost, UsageError
from lostflops.core.results import Field, Figure, Finding, Findings, Result, Table
from lostflops.core.units import format_percent, format_share, pluralise
from lostflops.explain.advise.case import Case
from lostflops.explain.advise.claim import NotChecked
from lostflops.explain.advise.findings import SMALLEST, Priced, finding, price_claim
from lostflops.explain.advise.rules import RULES
from lostflops.predict.whatif import predictions

if TYPE_CHECKING:
    from lostflops.account.ledger.by_rank import Progress
    from lostflops.explain.advise.claim import Claim, Place
    from lostflops.explain.advise.rule import Rule
    from lostflops.predict.whatif.run_facts import LearnTimes
    from lostflops.store.run import Run


FOUND: Final = "found"
SUSPECTED: Final = "suspected"
NOTHING: Final = "nothing"
SMALL: Final = "too small"
NOT_CHECKED: Final = "not checked"
NAMED_BETTER: Final = "named better"
_NEXT_RUN: Final = "lostflops run {} -- COMMAND"
_LARGEST_LEFT: Final = 0.01
"""A loss without a cause is named only if it takes at least this share of the time of all ranks."""
_NEARLY_HALF: Final = 0.4
"""A more exact claim replaces another if it saves at least this part of the other's saving."""


@dataclass(frozen=True, slots=True)
class Checked:
    """Outcome of one rule."""

    cause: str
    outcome: str
    why: str = ""
    record: str = ""
    """Flags of `lostflops run` that record the missing data."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Findings, each with the claim that it was made from: certain ones first, then by what their fix saves."""

    case: Case
    items: tuple[tuple[Finding, Priced], ...]
    checked: tuple[Checked, ...]
    excess: int
    """Compute time that findings claim, in ns."""

    @property
    def findings(self) -> tuple[Finding, ...]:
        return tuple(one for one, _ in self.items)

    @property
    def found(self) -> tuple[Finding, ...]:
        return tuple(one for one in self.findings if not one.is_suspected)

    @property
    def suspected(self) -> tuple[Finding, ...]:
        return tuple(one for one in self.findings if one.is_suspected)


_kept: ContextVar[dict[int, tuple[Run, Diagnosis]] | None] = ContextVar("diagnoses", default=None)
"""Diagnoses by the identity of the run, which is kept too, so that no other run can get its identity."""


@contextmanager
def diagnosed_once() -> Iterator[None]:
    """Diagnose a run once for all answers inside the block that show findings, also those in a nested block."""
    outer = _kept.get()
    token = _kept.set({} if outer is None else outer)
    try:
        yield
    finally:
        _kept.reset(token)


def diagnosis_of(run: Run, progress: Progress | None = None) -> Diagnosis:
    """Diagnose a run in the same way for every verb that shows findings."""
    kept = _kept.get()
    if kept is None:
        return diagnosis(Case(run, progress=progress))
    if id(run) not in kept:
        kept[id(run)] = run, diagnosis(Case(run, progress=progress))
    return kept[id(run)][1]


def diagnosis(case: Case, *, usd_per_hour: float | None = None, rules: Sequence[Rule] = RULES) -> Diagnosis:
    checked: list[Checked] = []
    offered: list[Priced] = []
    for rule in rules:
        claims, failed = _claims(case, rule)
        seen = [price_claim(case, claim) for claim in claims]
        named = [one for one in seen if not one.is_small]
        offered += named
        checked.append(
            failed or Checked(rule.cause, _outcome(seen, named), _small([one for one in seen if one.is_small]))
        )
    better = {id(one): _better_name(one, offered) for one in offered}
    checked = [
        _mark_named_better(one, [found for found in offered if found.claim.cause == one.cause], better)
        for one in checked
    ]
    offered = [one for one in offered if not better[id(one)]]
    offered.sort(key=lambda one: (bool(one.doubt), -one.prediction.gain))
    got = share_out_time([replace(one.claim, suspected=one.doubt) for one in offered], case.lines)
    made = _with_own_ids([finding(case, one, part, usd_per_hour) for one, part in zip(offered, got, strict=True)])
    sure = [part for one, part in zip(made, got, strict=True) if not one.is_suspected]
    excess = sum(ns for part in sure for (_, line), ns in part.items() if line == "compute")
    return Diagnosis(case, tuple(zip(made, offered, strict=True)), tuple(checked), excess)


def _better_name(one: Priced, offered: Sequence[Priced]) -> str:
    """Return the cause that names the loss of a claim more exactly, and is itself not named better; empty if there is
    none."""
    for other in offered:
        if _is_named_better(one, other) and not any(_is_named_better(other, third) for third in offered):
            return other.claim.cause
    return ""


def _mark_named_better(one: Checked, own: Sequence[Priced], better: Mapping[int, str]) -> Checked:
    """Mark a rule as named better if other causes name all that it found."""
    names = [better[id(found)] for found in own]
    return replace(one, outcome=NAMED_BETTER, why=f"named by {names[0]}") if names and all(names) else one


def _is_named_better(one: Priced, other: Priced) -> bool:
    """Return whether the other claim names the same loss more exactly: a straggler that writes checkpoints is a
    checkpoint."""
    about = not other.claim.ranks or set(one.claim.ranks) <= set(other.claim.ranks)
    is_large = other.prediction.gain >= _NEARLY_HALF * one.prediction.gain
    is_as_sure = bool(one.doubt) or not other.doubt
    return one.claim.cause in other.claim.instead_of and about and is_large and is_as_sure


def _with_own_ids(made: Sequence[Finding]) -> list[Finding]:
    """Number findings of one cause on the same ranks: `copies`, `copies#2`."""
    before: dict[str, int] = {}
    numbered = []
    for one in made:
        before[one.id] = before.get(one.id, 0) + 1
        numbered.append(one if before[one.id] == 1 else replace(one, id=f"{one.id}#{before[one.id]}"))
    return numbered


def _outcome(seen: Sequence[Priced], named: Sequence[Priced]) -> str:
    if any(not one.doubt for one in named):
        return FOUND
    return SUSPECTED if named else SMALL if seen else NOTHING


def _small(claims: Sequence[Priced]) -> str:
    return "; ".join(f"{one.claim.what} (saves {format_share(one.prediction.gain)})" for one in claims)


def _claims(case: Case, rule: Rule) -> tuple[list[Claim], Checked | None]:
    """Return the claims of a rule, or why it could not check its cause."""
    try:
        return list(rule.find(case)), None
    except (UnknownCost, UsageError) as error:
        record = error.record if isinstance(error, NotChecked) else ""
        return [], Checked(rule.cause, NOT_CHECKED, str(error), record)
    except Exception as error:  # noqa: BLE001 - one rule that fails must not take all findings with it; it is shown
        return [], Checked(rule.cause, NOT_CHECKED, f"the rule failed: {type(error).__name__}: {error}")


def diagnose(
    run: Run,
    times: LearnTimes | None = None,
    *,
    usd_per_hour: float | None = None,
    most: int | None = None,
    keep: bool = False,
    progress: Progress | None = None,
    rules: Sequence[Rule] = RULES,
) -> Result:
    """Diagnose a run. Screens show the first `most` findings; `keep` stores their what-ifs in the run, for a later run
    to score."""
    if times is None and usd_per_hour is None and rules is RULES:
        found = diagnosis_of(run, progress)
    else:
        found = diagnosis(Case(run, times, progress), usd_per_hour=usd_per_hour, rules=rules)
    case = found.case
    return Result(
        name="diagnosis",
        version=2,
        title="Diagnosis",
        verdict=" ".join(filter(None, (describe_job(run, case.total), in_short(found), describe_recording(run)))),
        blocks=(Findings("findings", "Findings", found.findings, most),),
        notes=(*_notes(found), *(store_predictions(run, found.items[:most]) if keep else ())),
        more=(
            _build_checked_table(found.checked),
            Figure("lost_ns", lost_ns(found)),
            Figure("wall_ns", case.wall),
        ),
    )


def store_predictions(run: Run, items: Sequence[tuple[Finding, Priced]]) -> Iterator[str]:
    """Store the what-ifs of findings as predictions of the run; yield a note if that fails."""
    try:
        for _, one in items:
            if one.stored is not None:
                predictions.keep(one.stored)
    except OSError as error:
        yield f"Predictions were not stored, so no later run can score them: {run.path}: {error.strerror}."


def lost_ns(found: Diagnosis) -> int:
    """Return all time that is not compute, and the part of compute that findings claim."""
    case = found.case
    return case.wall - case.total.lines["compute"] + found.excess


def verdict(found: Diagnosis) -> str:
    """Name the first finding and what its fix saves; if there is none, the first suspicion or the largest loss without
    a cause."""
    if found.found:
        return " ".join(filter(None, (says(found.found[0]), _others(found))))
    if found.suspected:
        first = found.suspected[0]
        more = f" To confirm, record: {_NEXT_RUN.format(first.record)}." if first.record else ""
        return f"No cause is certain yet. {says(first)} {first.doubt}{more}"
    return _nothing(found)


def in_short(found: Diagnosis) -> str:
    """Count the findings and say what fixing the first saves, if the findings themselves follow."""
    unsure = f", {len(found.suspected)} suspected" if found.suspected else ""
    if not found.found:
        return f"No cause is certain yet{unsure}." if unsure else _nothing(found)
    first = found.found[0]
    which = "it" if len(found.found) == 1 else "the first"
    if not first.costs_time:
        return f"No cause of lost time found{unsure}; {pluralise(len(found.found), 'warning')} below."
    return f"{pluralise(len(found.found), 'cause')} found{unsure}. Fixing {which} saves {first.saving}."


def _nothing(found: Diagnosis) -> str:
    if not found.case.wall:
        return "No cause found. No steps were recorded in detail, so most causes could not be checked."
    return f"No cause found that costs {SMALLEST:.0%} of the step or more. {_describe_largest_loss(found)}"


def says(one: Finding) -> str:
    """Return a finding in words, with what its fix saves: the same in every verb."""
    if one.is_suspected:
        return f"Suspected: {one.what}" + (f" Fixing it may save {one.saving}." if one.costs_time else "")
    return f"{one.what} Fixing it saves {one.saving}." if one.costs_time else f"{one.what} It costs no time yet."


def _others(found: Diagnosis) -> str:
    more, unsure = len(found.found) - 1, len(found.suspected)
    parts = ([f"{pluralise(more, 'other cause')} found"] if more else []) + ([f"{unsure} suspected"] if unsure else [])
    return f"{', '.join(parts)}." if parts else ""


def _describe_largest_loss(found: Diagnosis) -> str:
    """Describe the largest loss that no finding explains."""
    lost = {line: ns for line, ns in found.case.total.lines.items() if line != "compute"}
    line = max(lost, key=lambda name: lost[name], default="")
    share = lost.get(line, 0) / found.case.wall
    if share < _LARGEST_LEFT:
        return f"Compute takes {format_percent(found.case.total.share('compute'))} of the time."
    return f"The largest loss without a cause is {line}: {format_percent(share)} of the time of all ranks."


def _notes(found: Diagnosis) -> Iterator[str]:
    if found.case.run.steps:
        yield describe_chosen_steps(found.case.run)
    if note := inferred_steps(found.case.run):
        yield note
    if found.case.why_unpriced:
        yield f"Savings are upper limits, because the run cannot be replayed: {found.case.why_unpriced}"
    if len(found.items) > 1:
        yield "Each saving is for that fix alone; savings do not add up."
    yield from not_checked(found)


def not_checked(found: Diagnosis) -> Iterator[str]:
    """Yield the causes that the run has no data for, grouped by what would record it."""
    by_flags: dict[str, list[str]] = {}
    for one in found.checked:
        if one.outcome == NOT_CHECKED:
            by_flags.setdefault(f"needs `lostflops run {one.record}`" if one.record else one.why, []).append(one.cause)
    for why, causes in sorted(by_flags.items(), reverse=True):
        yield f"Not checked ({why.removesuffix('.')}): {', '.join(causes)}."


def _build_checked_table(rows: Sequence[Checked]) -> Table:
    fields = (Field("cause"), Field("outcome"), Field("why"), Field("record"))
    return Table("checked", "Checked", fields, tuple((one.cause, one.outcome, one.why, one.record) for one in rows))


def share_out_time(claims: Sequence[Claim], ledger: Mapping[int, Mapping[str, int]]) -> list[dict[Place, int]]:
    """Return the time that each claim gets, in the order of `claims`. The most certain claim is served first, of equals
    the largest; a line of a rank never gives more time than it has."""
    left = {(rank, line): ns for rank, lines in ledger.items() for line, ns in lines.items()}
    got: list[dict[Place, int]] = [{} for _ in claims]
    for number in sorted(range(len(claims)), key=lambda at: _first(claims[at])):
        for place, ns in claims[number].taken.items():
            taken = min(ns, left.get(place, 0))
            if taken:
                left[place] -= taken
                got[number][place] = taken
    return got


def _first(claim: Claim) -> tuple[bool, float, int]:
    return bool(claim.suspected), -claim.confidence, -sum(claim.taken.values())
