"""Add the findings of a run to the answer of another question, so that all verbs show the same ones."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from lostflops.advise.diagnose import SMALL, Diagnosis, diagnosis_of, says, verdict
from lostflops.ledger.few_steps import is_large
from lostflops.results import Figure, Finding, Findings, Pair, Pairs, Result
from lostflops.units import counted, format_share

if TYPE_CHECKING:
    from collections.abc import Callable

    from lostflops.store.run import Run

FIRST: Final = 3
_OF_RANKS: Final = ("straggler", "work_imbalance")
_OF_PIPELINES: Final = ("stage_imbalance", "few_microbatches", "straggler", "work_imbalance")
_SMALL: Final = "Fixing that would save less than 3% of the step."
_CLAUSE: Final = re.compile(r"(?<=[.:]) |, and ")
LARGE: Final = "Causes were not checked, because the run is large: lostflops diagnose names them."


def report_with_findings(answer: Result, run: Run, *, shown: bool = True) -> Result:
    """The report, with the first findings; with the verdict of the diagnosis where they are not `shown`, or none is."""

    def sentence(found: Diagnosis) -> str:
        is_told = not found.case.wall if not found.findings else shown
        return answer.verdict if is_told else f"{answer.verdict} {verdict(found)}"

    return _with_findings(answer, run, sentence, shown=shown)


def ranks_with_findings(answer: Result, run: Run) -> Result:
    """Who is late, as the diagnosis says it. A rank that is late but costs little is said to cost little."""

    def sentence(found: Diagnosis) -> str:
        first = next((one for one in found.findings if one.ranks and one.costs_time), None)
        if first is not None:
            return says(first)
        small = any(one.outcome == SMALL for one in found.checked if one.cause in _OF_RANKS)
        return f"{answer.verdict} {_SMALL}" if small else answer.verdict

    return _with_findings(answer, run, sentence, shown=False)


def pipeline_with_findings(answer: Result, run: Run) -> Result:
    """The bubble, with the first finding about the pipeline."""

    def sentence(found: Diagnosis) -> str:
        first = next((one for one in found.findings if one.cause in _OF_PIPELINES), None)
        return f"{answer.verdict} {says(first)}" if first is not None else answer.verdict

    return _with_findings(answer, run, sentence, shown=False)


def ranking_with_findings(answer: Result, run: Run) -> Result:
    """Every change that was tried, and after them the findings that some of them fix."""
    made = _with_findings(answer, run, lambda _: answer.verdict, shown=True)
    blocks = sorted(made.blocks, key=lambda block: isinstance(block, Findings))
    return replace(made, blocks=tuple(blocks))


def card(report: Result) -> Result:
    """Return a report in a few lines: the verdict, the first findings with what each saves, and what was recorded."""
    found = next((block for block in report.blocks if isinstance(block, Findings)), None)
    first = found.items[:FIRST] if found is not None else ()
    advice = tuple(Pair(str(number), _headline(one)) for number, one in enumerate(first, 1))
    blocks = (Pairs("advice", "", advice),) if advice else ()
    return replace(report, verdict=f"{report.verdict} {_recorded(report)}", blocks=blocks, notes=())


def _headline(one: Finding) -> str:
    """Return a finding in a line or two: its first clause, and what its fix saves.

    >>> from lostflops.results import Prediction
    >>> saving = Prediction(0.21, 0.07, 0.35, "a replay")
    >>> told = "gc", "found", "gc", "It pauses: often. And long.", 0, 0.0, 0.0, None, (), (), 1.0, "", "", {}
    >>> _headline(Finding(*told, saving))
    'It pauses. Fixing it saves 21.0% of the step (90% interval 7.0% to 35.0%).'
    """
    what = _CLAUSE.split(one.what)[0].rstrip(".:")
    return (
        f"Suspected: {what}. May save {one.saving}." if one.is_suspected else f"{what}. Fixing it saves {one.saving}."
    )


def _recorded(report: Result) -> str:
    """Return how much was recorded, and what that cost."""
    recorded = report.to_json().get("recorded")
    if recorded is None:
        return "Step times were not recorded."
    deep = f", {recorded['profiled_steps']} in detail" if recorded["profiled_steps"] else ""
    share = recorded["collector_share"]
    cost = "" if share is None else f", at a cost of {format_share(share)}"
    return f"Recorded {counted(recorded['steps'], 'step')}{deep}{cost}."


def _with_findings(answer: Result, run: Run, sentence: Callable[[Diagnosis], str], *, shown: bool) -> Result:
    """Add all findings to the JSON, and for people the first few in short where `shown`."""
    if is_large(run):
        return replace(answer, notes=(*answer.notes, LARGE), more=(*answer.more, Figure("findings", None)))
    found = diagnosis_of(run)
    block = Findings("findings", "What to do about it", found.findings, FIRST, is_brief=True)
    is_shown = shown and bool(found.findings)
    return replace(
        answer,
        verdict=sentence(found),
        blocks=(block, *answer.blocks) if is_shown else answer.blocks,
        more=answer.more if is_shown else (*answer.more, block),
    )
