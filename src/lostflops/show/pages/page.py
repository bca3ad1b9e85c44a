"""All answers about a run, in the order in which a performance engineer reads them.

A question that cannot be answered does not affect the others: the page says why its answer is missing.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial, wraps
from inspect import signature
from typing import TYPE_CHECKING, Final

from lostflops.account.ledger.few_steps import is_large
from lostflops.account.ledger.mfu import Claims
from lostflops.core.errors import LostflopsError
from lostflops.core.results import Block, Findings, Page, Result
from lostflops.explain.advise.diagnose import diagnose
from lostflops.explain.advise.diagnosis import stored_diagnosis
from lostflops.explain.advise.summary import LARGE, pipeline_with_findings, ranks_with_findings
from lostflops.explain.analyze.comm import comm
from lostflops.explain.analyze.contents import contents
from lostflops.explain.analyze.kernels import kernels
from lostflops.explain.analyze.lateness import lateness
from lostflops.explain.analyze.memory import memory
from lostflops.explain.analyze.overlap import overlap
from lostflops.explain.analyze.pipeline import pipeline
from lostflops.explain.analyze.quality import quality
from lostflops.explain.analyze.ranks import ranks
from lostflops.explain.analyze.steps import steps
from lostflops.explain.analyze.timeline import timeline
from lostflops.predict.whatif.baseline import replayed_once
from lostflops.show.pages.glossary import GLOSSARY
from lostflops.show.pages.knobs import knobs
from lostflops.show.pages.overview import NAME as OVERVIEW
from lostflops.show.pages.overview import TITLE as OVERVIEW_TITLE
from lostflops.show.pages.overview import overview, report_in_full
from lostflops.show.pages.places import places_of
from lostflops.show.pages.stacks import flame

if TYPE_CHECKING:
    from lostflops.store.run import Run


Question = Callable[..., Result]
"""Called with the run, and with `progress` if it has such a parameter."""
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


@wraps(ranks)
def _ranks(run: Run, progress: Progress | None = None) -> Result:
    return ranks_with_findings(ranks(run, progress=progress), run)


@wraps(pipeline)
def _pipeline(run: Run) -> Result:
    answer = pipeline(run)
    return pipeline_with_findings(answer, run) if answer.blocks else answer


@wraps(kernels)
def _all_kernels(run: Run, progress: Progress | None = None) -> Result:
    """Return kernels, also those that a terminal leaves out: a page has room for them."""
    return kernels(run, limit=MOST_KERNELS, progress=progress)


def causes(run: Run, progress: Progress | None = None) -> Result:
    name = shlex.quote(run.name)
    if stored_diagnosis(run) is None and is_large(run):
        return Result("diagnosis", "Diagnosis", LARGE, next_command=f"lostflops diagnose {name}")
    found = _with_places(diagnose(run, most=OPEN, progress=progress), run)
    following = f"explain {name} 1" if found.blocks[0].to_json() else f"whatif {name} --all"
    return replace(found, next_command=f"lostflops {following}")


def _with_places(answer: Result, run: Run) -> Result:
    """Add to findings where they are on the timeline."""

    def placed(block: Block) -> Block:
        return replace(block, places=places_of(run, block.items)) if isinstance(block, Findings) else block

    return replace(answer, blocks=tuple(map(placed, answer.blocks)))


def trust(run: Run) -> Result:
    held, judged = contents(run), quality(run)
    return replace(
        judged,
        verdict=f"{held.verdict} {judged.verdict}",
        blocks=(*judged.blocks, *held.blocks),
        notes=(*held.notes, *judged.notes),
    )


QUESTIONS: Final[Mapping[str, Question]] = {
    OVERVIEW: overview,
    "timeline": timeline,
    "diagnosis": causes,
    "report": report_in_full,
    "ranks": _ranks,
    "lateness": lateness,
    "steps": steps,
    "comm": comm,
    "overlap": overlap,
    "kernels": _all_kernels,
    "pipeline": _pipeline,
    "memory": memory,
    "flame": flame,
    "knobs": knobs,
    "quality": trust,
}
"""All questions, in the order of the page, by the name of their result."""
TITLES: Final = {
    OVERVIEW: OVERVIEW_TITLE,
    "timeline": "Timeline",
    "diagnosis": "Diagnosis",
    "report": "Where the time went",
    "ranks": "Late ranks",
    "lateness": "Lateness",
    "steps": "Steps",
    "comm": "Communication",
    "overlap": "Overlap",
    "kernels": "Kernels",
    "pipeline": "Pipeline",
    "memory": "Memory",
    "flame": "Host time",
    "knobs": "What if",
    "quality": "Data quality",
}
"""Title of each result: a live page shows them before there is any."""


def questions_for(said: Claims) -> Mapping[str, Question]:
    """Return all questions, with what the user claims about peaks, FLOPs and tokens."""
    return {
        name: partial(question, said=said) if "said" in signature(question).parameters else question
        for name, question in QUESTIONS.items()
    }


def page_of(
    run: Run,
    questions: Mapping[str, Question] = QUESTIONS,
    progress: Progress | None = None,
    progress_in_question: Progress | None = None,
) -> Page:
    """Answer these questions. `progress` counts questions, `progress_in_question` the ranks that one has read."""
    results, missing = [], []
    with replayed_once():
        for done, (name, question) in enumerate(questions.items()):
            if progress:
                progress(done, len(questions))
            try:
                has_progress = progress_in_question and "progress" in signature(question).parameters
                more = {"progress": progress_in_question} if has_progress else {}
                results.append(_with_next(question(run, **more), run.name))
            except LostflopsError as error:
                missing.append((TITLES.get(name, name), str(error)))
    return Page(run.path.name, tuple(results), GLOSSARY, tuple(missing), STANDING)


def _with_next(result: Result, run: str) -> Result:
    """Add the next command, with the run by its name alone: readers of the page need not know where it is on a disk. An
    empty result has no more to show in a terminal."""
    words = _NEXT.get(result.name)
    if words is None:
        return result
    told = result.blocks or result.name == _UNTRIED
    return replace(result, next_command=f"lostflops {words.format(shlex.quote(run))}" if told else "")
