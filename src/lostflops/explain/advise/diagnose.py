"""Why is the run slow, what would fix it, and what would each fix save?

Each rule looks for one cause. The time that rules claim is shared out so that no nanosecond is claimed twice; each fix
is priced by a what-if on the replayed run. A cause is found if the evidence is enough, suspected if the evidence points
one way and more data is needed, and not checked if the run lacks the data. Every verb that names causes uses this
module.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import msgspec

from lostflops.account.job.headline import describe_job
from lostflops.account.ledger.few_steps import describe_chosen_steps
from lostflops.account.ledger.lines import WAIT_LINES
from lostflops.account.ledger.windows import inferred_steps
from lostflops.core.errors import UnknownCost, UsageError
from lostflops.core.estimate import Strength
from lostflops.core.results import Finding, Result
from lostflops.core.units import format_share
from lostflops.explain.advise.case import Case
from lostflops.explain.advise.claim import NotChecked
from lostflops.explain.advise.diagnosis import (
    FOUND,
    NAMED_BETTER,
    NOT_CHECKED,
    NOTHING,
    SMALL,
    SUSPECTED,
    Checked,
    Diagnosis,
    as_result,
    diagnosis_code,
    stored_diagnosis,
)
from lostflops.explain.advise.findings import Priced, describe_job_hours, finding, price_claim
from lostflops.explain.advise.located import locate, without_named
from lostflops.explain.advise.rules import RULES
from lostflops.store.derived import add_tables, data_digest
from lostflops.store.tables import DIAGNOSIS, FINDINGS

if TYPE_CHECKING:
    from lostflops.account.ledger.by_rank import Progress
    from lostflops.explain.advise.claim import Claim, Place
    from lostflops.explain.advise.rule import Rule
    from lostflops.predict.whatif.run_facts import LearnTimes
    from lostflops.store.run import Run


_FAILED: Final = "the rule failed"
_LEFT: Final = 0.1
"""A claim is dropped if other findings leave less than this part of its time: it would name the same loss again."""
_NEARLY_HALF: Final = 0.4
"""A more exact claim replaces another if it saves at least this part of the other's saving."""


@dataclass(frozen=True, slots=True)
class ExaminedCase:
    """Findings of a case, each with the claim that it was made from."""

    case: Case
    items: tuple[tuple[Finding, Priced], ...]
    checked: tuple[Checked, ...]
    excess: int
    """Compute time that findings claim, in ns."""


def diagnosis_of(run: Run, progress: Progress | None = None) -> Diagnosis:
    """Diagnose a run in the same way for every verb that shows findings: once, and then read what the run stores."""
    return run.keep("diagnosis", lambda: stored_diagnosis(run) or _diagnose_and_store(run, progress))


def _diagnose_and_store(run: Run, progress: Progress | None) -> Diagnosis:
    found = diagnosis(Case(run, progress=progress))
    # A rule may fail for want of memory: the next diagnosis tries again.
    is_complete = not any(one.why.startswith(_FAILED) for one in found.checked)
    if is_complete and run.manifest.generation and not run.steps and run.address == str(run.path):
        rows = [
            (number, one.id, one.level, one.cause, one.what, one.fix, diagnosis_code(), one.lost_ns)
            + ((None,) * 3 if one.saving is None else (one.saving.value, one.saving.low, one.saving.high))
            for number, one in enumerate(found.findings, 1)
        ]
        columns = [list(values) for values in zip(*rows, strict=True)] or [[] for _ in FINDINGS.columns]
        document = {"code": [diagnosis_code()], "document": [msgspec.json.encode(found).decode()]}
        listed = dict(zip(FINDINGS.column_names(), columns, strict=True))
        add_tables(run.path, data_digest(run.manifest), {FINDINGS: listed, DIAGNOSIS: document})
    return found


def diagnosis(case: Case, *, usd_per_hour: float | None = None, rules: Sequence[Rule] = RULES) -> Diagnosis:
    found = examine(case, usd_per_hour=usd_per_hour, rules=rules)
    return Diagnosis(
        findings=tuple(one for one, _ in found.items),
        whatifs=tuple(priced.stored for _, priced in found.items),
        checked=found.checked,
        job=describe_job(case.run.whole, case.total),
        wall=case.wall,
        lines=dict(case.total.lines),
        excess=found.excess,
        notes=(*_case_notes(case), *describe_job_hours(case.run)),
        located=without_named(locate(case.total), [one for one, _ in found.items]),
    )


def examine(case: Case, *, usd_per_hour: float | None = None, rules: Sequence[Rule] = RULES) -> ExaminedCase:
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
    offered.sort(key=lambda one: (bool(one.doubt), -one.value))
    got = share_out_time([replace(one.claim, suspected=one.doubt) for one in offered], case.lines)
    taken = [one for one, part in zip(offered, got, strict=True) if _is_taken(one.claim, part)]
    if taken:  # two findings never save the same time
        checked = [_mark_taken(one, offered, taken) for one in checked]
        offered = [one for one in offered if one not in taken]
        got = share_out_time([replace(one.claim, suspected=one.doubt) for one in offered], case.lines)
    made = _with_own_ids([finding(case, one, part, usd_per_hour) for one, part in zip(offered, got, strict=True)])
    sure = [part for one, part in zip(made, got, strict=True) if not one.is_suspected]
    excess = sum(ns for part in sure for (_, line), ns in part.items() if line == "compute")
    return ExaminedCase(case, tuple(zip(made, offered, strict=True)), tuple(checked), excess)


def _is_taken(claim: Claim, part: Mapping[Place, int]) -> bool:
    """Return whether claims that are served first leave next to nothing of the time that a claim is about."""
    own = sum(ns for (_, line), ns in claim.taken.items() if line not in WAIT_LINES)
    left = sum(ns for (_, line), ns in part.items() if line not in WAIT_LINES)
    return own > 0 and left < _LEFT * own


def _mark_taken(one: Checked, offered: Sequence[Priced], taken: Sequence[Priced]) -> Checked:
    """Mark a rule as named better if the time of all that it found belongs to other findings."""
    own = [found for found in offered if found.claim.cause == one.cause]
    if not own or not all(found in taken for found in own):
        return one
    return replace(one, outcome=NAMED_BETTER, why="its time belongs to findings with more evidence")


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
    is_large = other.value >= _NEARLY_HALF * one.value
    is_as_sure = [*Strength].index(other.strength) <= [*Strength].index(one.strength)
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
    chance = {False: "", True: ", which may be chance"}
    saves = [f"saves {format_share(one.value)}{chance[one.is_chance]}" for one in claims]
    return "; ".join(f"{one.claim.what} ({said})" for one, said in zip(claims, saves, strict=True))


def _claims(case: Case, rule: Rule) -> tuple[list[Claim], Checked | None]:
    """Return the claims of a rule, or why it could not check its cause."""
    try:
        return list(rule.find(case)), None
    except (UnknownCost, UsageError) as error:
        record = error.record if isinstance(error, NotChecked) else ""
        return [], Checked(rule.cause, NOT_CHECKED, str(error), record)
    except Exception as error:  # noqa: BLE001 - one rule that fails must not take all findings with it; it is shown
        return [], Checked(rule.cause, NOT_CHECKED, f"{_FAILED}: {type(error).__name__}: {error}")


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
    return as_result(run, found, most, keep=keep)


def _case_notes(case: Case) -> Iterator[str]:
    if case.run.steps:
        yield describe_chosen_steps(case.run)
    if note := inferred_steps(case.run):
        yield note
    if case.why_unpriced:
        yield f"Savings are upper limits, because the run cannot be replayed: {case.why_unpriced}"


def share_out_time(claims: Sequence[Claim], ledger: Mapping[int, Mapping[str, int]]) -> list[dict[Place, int]]:
    """Return the time that each claim gets, in the order of `claims`. The claim with the strongest evidence is served
    first, of equals the largest; a line of a rank never gives more time than it has."""
    left = {(rank, line): ns for rank, lines in ledger.items() for line, ns in lines.items()}
    got: list[dict[Place, int]] = [{} for _ in claims]
    for number in sorted(range(len(claims)), key=lambda at: _first(claims[at])):
        for place, ns in claims[number].taken.items():
            taken = min(ns, left.get(place, 0))
            if taken:
                left[place] -= taken
                got[number][place] = taken
    return got


def _first(claim: Claim) -> tuple[bool, int, int]:
    return bool(claim.suspected), [*Strength].index(claim.strength), -sum(claim.taken.values())
