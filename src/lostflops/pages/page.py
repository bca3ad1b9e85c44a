"""All that can be said of a run, in the order in which a performance engineer reads it.

A question that cannot be answered does not take the others with it: the page says why it is missing.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from lostflops.analyze.comm import comm
from lostflops.analyze.kernels import kernels
from lostflops.analyze.lateness import lateness
from lostflops.analyze.memory import memory
from lostflops.analyze.overlap import overlap
from lostflops.analyze.pipeline import pipeline
from lostflops.analyze.ranks import ranks
from lostflops.analyze.report import report
from lostflops.analyze.steps import steps
from lostflops.analyze.timeline import timeline
from lostflops.errors import LostflopsError
from lostflops.ledger.accounts import made_once
from lostflops.ledger.mfu import Claims
from lostflops.pages.causes import causes
from lostflops.pages.glossary import GLOSSARY
from lostflops.pages.knobs import knobs
from lostflops.pages.stacks import flame
from lostflops.pages.trust import trust
from lostflops.results import Page, Result

if TYPE_CHECKING:
    from lostflops.store.run import Run

Question = Callable[["Run"], Result]
Progress = Callable[[int, int], None]

STANDING: Final = "quality"
_VERBS: Final = {
    "report": "diagnose",
    "ranks": "ranks",
    "steps": "steps",
    "comm": "comm",
    "kernels": "kernels",
    "pipeline": "pipeline",
    "memory": "memory",
    "quality": "info",
}
"""Where a terminal tells more about a result."""


QUESTIONS: tuple[Question, ...] = (
    report,
    causes,
    ranks,
    lateness,
    steps,
    timeline,
    comm,
    overlap,
    kernels,
    pipeline,
    memory,
    flame,
    knobs,
    trust,
)


def questions_for(said: Claims) -> tuple[Question, ...]:
    """All questions, with what the user claims of peaks, FLOPs and tokens."""

    def _report_with_claims(run: Run) -> Result:
        return report(run, said=said)

    return tuple(_report_with_claims if question is report else question for question in QUESTIONS)


def page_of(run: Run, questions: Sequence[Question] = QUESTIONS, progress: Progress | None = None) -> Page:
    results, missing = [], []
    with made_once():
        for done, question in enumerate(questions):
            if progress:
                progress(done, len(questions))
            try:
                results.append(_with_next(question(run), run.path.name))
            except LostflopsError as error:
                missing.append((question.__name__.strip("_"), str(error)))
    return Page(run.path.name, tuple(results), GLOSSARY, tuple(missing), STANDING)


def _with_next(result: Result, run: str) -> Result:
    """The run by its name alone: where it lies on somebody's disk is not for whoever gets the page."""
    verb = _VERBS.get(result.name)
    return replace(result, next_command=f"lostflops {verb} {shlex.quote(run)}") if verb else result
