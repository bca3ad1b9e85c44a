"""All answers about a run, in the order in which a performance engineer reads them.

A question that cannot be answered does not affect the others: the page says why its answer is missing.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import wraps
from typing import TYPE_CHECKING, Final

from lostflops.account.ledger.accounts import made_once
from lostflops.account.ledger.few_steps import is_large
from lostflops.account.ledger.mfu import Claims
from lostflops.core.errors import LostflopsError
from lostflops.core.results import Page, Result
from lostflops.explain.advise.diagnose import diagnose, diagnosed_once
from lostflops.explain.advise.summary import LARGE, pipeline_with_findings, ranks_with_findings, report_with_findings
from lostflops.explain.analyze.comm import comm
from lostflops.explain.analyze.contents import contents
from lostflops.explain.analyze.kernels import kernels
from lostflops.explain.analyze.lateness import lateness
from lostflops.explain.analyze.memory import memory
from lostflops.explain.analyze.overlap import overlap
from lostflops.explain.analyze.pipeline import pipeline
from lostflops.explain.analyze.quality import quality
from lostflops.explain.analyze.ranks import ranks
from lostflops.explain.analyze.report import report
from lostflops.explain.analyze.steps import steps
from lostflops.explain.analyze.timeline import timeline
from lostflops.predict.whatif.baseline import replayed_once
from lostflops.show.pages.glossary import GLOSSARY
from lostflops.show.pages.knobs import knobs
from lostflops.show.pages.stacks import flame

if TYPE_CHECKING:
    from lostflops.store.run import Run


Question = Callable[["Run"], Result]
Progress = Callable[[int, int], None]

STANDING: Final = "quality"
MOST_KERNELS: Final = 1_000
OPEN: Final = 3
"""This many findings are shown at once; the others need a click."""
_NEXT: Final = {
    "report": "diagnose {}",
    "ranks": "ranks {}",
    "lateness": "ranks {} --by-step",
    "steps": "steps {}",
    "comm": "comm {}",
    "overlap": "comm {} --overlap",
    "kernels": "kernels {}",
    "pipeline": "pipeline {}",
    "memory": "memory {}",
    "flame": "flame {}",
    "knobs": "whatif {} --list",
    "quality": "info {}",
}
"""Commands that show more about a result in a terminal."""
_UNTRIED: Final = "knobs"
"""A page about a large run does not have this result, but a terminal can still show it."""


@wraps(report)
def _report(run: Run, said: Claims | None = None) -> Result:
    return report_with_findings(report(run, said=said), run, shown=False)


@wraps(ranks)
def _ranks(run: Run) -> Result:
    return ranks_with_findings(ranks(run), run)


@wraps(pipeline)
def _pipeline(run: Run) -> Result:
    answer = pipeline(run)
    return pipeline_with_findings(answer, run) if answer.blocks else answer


@wraps(kernels)
def _all_kernels(run: Run) -> Result:
    """Return kernels, also those that a terminal leaves out: a page has room for them."""
    return kernels(run, limit=MOST_KERNELS)


def causes(run: Run) -> Result:
    name = shlex.quote(run.name)
    if is_large(run):
        return Result("diagnosis", "Diagnosis", LARGE, next_command=f"lostflops diagnose {name}")
    found = diagnose(run, most=OPEN)
    following = f"explain {name} 1" if found.blocks[0].to_json() else f"whatif {name} --all"
    return replace(found, next_command=f"lostflops {following}")


def trust(run: Run) -> Result:
    held, judged = contents(run), quality(run)
    return replace(
        judged,
        verdict=f"{held.verdict} {judged.verdict}",
        blocks=(*judged.blocks, *held.blocks),
        notes=(*held.notes, *judged.notes),
    )


QUESTIONS: tuple[Question, ...] = (
    _report,
    causes,
    _ranks,
    lateness,
    steps,
    timeline,
    comm,
    overlap,
    _all_kernels,
    _pipeline,
    memory,
    flame,
    knobs,
    trust,
)


def questions_for(said: Claims) -> tuple[Question, ...]:
    """Return all questions, with what the user claims about peaks, FLOPs and tokens."""

    @wraps(report)
    def report_with_claims(run: Run) -> Result:
        return _report(run, said)

    return tuple(report_with_claims if question is _report else question for question in QUESTIONS)


def page_of(run: Run, questions: Sequence[Question] = QUESTIONS, progress: Progress | None = None) -> Page:
    results, missing = [], []
    with made_once(), replayed_once(), diagnosed_once():
        for done, question in enumerate(questions):
            if progress:
                progress(done, len(questions))
            try:
                results.append(_with_next(question(run), run.name))
            except LostflopsError as error:
                missing.append((question.__name__, str(error)))
    return Page(run.path.name, tuple(results), GLOSSARY, tuple(missing), STANDING)


def _with_next(result: Result, run: str) -> Result:
    """Add the next command, with the run by its name alone: readers of the page need not know where it is on a disk. An
    empty result has no more to show in a terminal."""
    words = _NEXT.get(result.name)
    if words is None:
        return result
    told = result.blocks or result.name == _UNTRIED
    return replace(result, next_command=f"lostflops {words.format(shlex.quote(run))}" if told else "")
