"""Add the findings of a run to the answer of another question, so that all verbs show the same ones."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from lostflops.account.job.headline import describe_recording
from lostflops.account.ledger.few_steps import is_large
from lostflops.core.results import Figure, Finding, Findings, Pair, Pairs, Result, Table
from lostflops.core.units import format_percent, pluralise
from lostflops.explain.advise.diagnosis import (
    LOCATED,
    SMALL,
    Diagnosis,
    says,
    stored_diagnosis,
    tabulate_located,
    verdict,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lostflops.store.run import Run

FIRST: Final = 3
_OF_RANKS: Final = ("straggler", "work_imbalance", "expert_imbalance")
_OF_PIPELINES: Final = ("stage_imbalance", "few_microbatches", "straggler", "work_imbalance")
_SMALL: Final = "Fixing that saves less than 3% of the step."
MOST_WORDS: Final = 15
_CLAUSE: Final = re.compile(r"(?<=[.:]) |, and ")
NOT_IN_DETAIL: Final = "No steps were recorded in detail."
LARGE: Final = "This run is large: causes are only checked by lostflops diagnose."


def report_with_findings(answer: Result, run: Run, *, shown: bool = True) -> Result:
    """Add the first findings to a report. If they are not `shown`, or nothing was found, the verdict says so."""

    def sentence(found: Diagnosis) -> str:
        is_complete = shown if found.findings else not found.wall
        cause = "" if is_complete else verdict(found)
        return " ".join(filter(None, (answer.verdict, cause, describe_recording(run))))

    return _with_findings(answer, run, sentence, shown=shown)


def ranks_with_findings(answer: Result, run: Run) -> Result:
    """Name the late rank as the diagnosis does; say so if a late rank costs little."""

    def sentence(found: Diagnosis) -> str:
        first = next((one for one in found.findings if one.ranks and one.saving), None)
        if first is not None:
            return says(first)
        small = any(one.outcome == SMALL for one in found.checked if one.cause in _OF_RANKS)
        return f"{answer.verdict} {_SMALL}" if small else answer.verdict

    return _with_findings(answer, run, sentence, shown=False)


def pipeline_with_findings(answer: Result, run: Run) -> Result:
    """Add the first finding about the pipeline to the bubble."""

    def sentence(found: Diagnosis) -> str:
        first = next((one for one in found.findings if one.cause in _OF_PIPELINES), None)
        return f"{answer.verdict} {says(first)}" if first is not None else answer.verdict

    return _with_findings(answer, run, sentence, shown=False)


def ranking_with_findings(answer: Result, run: Run) -> Result:
    """Add the findings after the changes that were tried."""
    made = _with_findings(answer, run, lambda _: answer.verdict, shown=True)
    blocks = sorted(made.blocks, key=lambda block: isinstance(block, Findings))
    return replace(made, blocks=tuple(blocks))


def card(report: Result) -> Result:
    """Return a report in a few lines: the verdict, the first findings with what each saves, and what was recorded."""
    found = next((block for block in report.blocks if isinstance(block, Findings)), None)
    told = [_headline(one) for one in found.items[:FIRST]] if found is not None else []
    tables = [one for one in (*report.blocks, *report.more) if isinstance(one, Table) and one.name == LOCATED]
    located = [row["what"] for table in tables for row in table.to_json()]
    told += [f"Located: {what}" for what in located[: FIRST - len(told)]]
    advice = tuple(Pair(str(number), text) for number, text in enumerate(told, 1))
    blocks = (Pairs("advice", "", advice),) if advice else ()
    return replace(report, blocks=blocks, notes=())


def headline(findings: Sequence[Finding], compute: float | None) -> str:
    """Return the verdict in at most `MOST_WORDS` words: the first cause that costs time and what its fix saves, else
    the share of compute, if known.

    >>> headline((), 0.54)
    'No cause of lost time was found; compute takes 54% of the time.'
    """
    first = next((one for one in findings if one.saving), None)
    if first is None or first.saving is None:
        where = NOT_IN_DETAIL if compute is None else f"Compute takes {format_percent(compute)} of the time."
        return f"No cause of lost time was found; {where[0].lower()}{where[1:]}"
    verb = "may save" if first.is_suspected else "saves"
    saves = f"fixing it {verb} {first.saving.text('').split(' (')[0]}."
    clause = _CLAUSE.split(first.what)[0].rstrip(".:")
    if len(f"{clause} {saves}".split()) > MOST_WORDS:
        clause = clause.split(" (")[0]
    if len(f"{clause} {saves}".split()) > MOST_WORDS:
        where = f" on {pluralise(len(first.ranks), 'rank')}" if first.ranks else ""
        clause = f"{first.cause.replace('_', ' ').capitalize()}{where}"
    return f"{clause}: {saves}"


def _headline(one: Finding) -> str:
    """Return a finding in a line or two: its first clause, and what its fix saves.

    >>> from lostflops.core.estimate import Estimate, Strength
    >>> saving = Estimate.measured(0.21, 0.14, "steps")
    >>> told = "gc", "found", "gc", "It pauses: often. And long.", 0, 0.0, 0.0, None, (), (), Strength.STRONG, None
    >>> _headline(Finding(*told, "", "", {}, saving))
    'It pauses. Fixing it saves 21% of the step (7 to 35%).'
    """
    clause = _CLAUSE.split(one.what)[0].rstrip(".:")
    return says(replace(one, what=clause + ")" * (clause.count("(") - clause.count(")")) + "."))


def _with_findings(answer: Result, run: Run, sentence: Callable[[Diagnosis], str], *, shown: bool) -> Result:
    """Add all findings to the JSON, and if `shown` the first few, in short, to what people see."""
    found = stored_diagnosis(run)
    if found is None:
        if is_large(run):
            return replace(answer, notes=(*answer.notes, LARGE), more=(*answer.more, Figure("findings", None)))
        # Here: all rules take as long to load as the rest of a report takes.
        from lostflops.explain.advise.diagnose import diagnosis_of  # noqa: PLC0415

        found = diagnosis_of(run)
    block = Findings("findings", "What to do", found.findings, FIRST, is_brief=True)
    is_shown = shown and bool(found.findings)
    located = (tabulate_located(found),) if answer.name == "report" else ()
    return replace(
        answer,
        verdict=sentence(found),
        blocks=(block, *answer.blocks) if is_shown else answer.blocks,
        more=(*answer.more, *(() if is_shown else (block,)), *located),
    )
