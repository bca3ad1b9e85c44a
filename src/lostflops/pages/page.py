"""All that can be said of a run, in the order in which a performance engineer reads it.

A question that cannot be answered does not take the others with it: the page says why it is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from lostflops.advise.summary import with_findings
from lostflops.analyze.comm import comm
from lostflops.analyze.kernels import kernels
from lostflops.analyze.memory import memory
from lostflops.analyze.pipeline import pipeline
from lostflops.analyze.quality import quality
from lostflops.analyze.ranks import ranks
from lostflops.analyze.report import report
from lostflops.analyze.steps import steps
from lostflops.errors import LostflopsError
from lostflops.pages.glossary import GLOSSARY
from lostflops.results import Page, Result

if TYPE_CHECKING:
    from lostflops.store.run import Run

Question = Callable[["Run"], Result]


def _report(run: Run) -> Result:
    return with_findings(report(run), run)


QUESTIONS: tuple[Question, ...] = (_report, ranks, steps, comm, kernels, pipeline, memory, quality)


def page_of(run: Run, questions: Sequence[Question] = QUESTIONS) -> Page:
    results, missing = [], []
    for question in questions:
        try:
            results.append(question(run))
        except LostflopsError as error:
            missing.append((question.__name__.strip("_"), str(error)))
    return Page(run.path.name, tuple(results), GLOSSARY, tuple(missing))
