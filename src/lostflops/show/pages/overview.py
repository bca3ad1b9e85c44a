"""The first screen of a page: a headline of a few words, the ledger, and what to do first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from lostflops.account.job.answers import headline_of_job
from lostflops.account.ledger.mfu import Claims
from lostflops.core.results import Findings, Lines, Result
from lostflops.core.units import format_percent
from lostflops.explain.advise.summary import FIRST, LARGE, NOT_IN_DETAIL, headline, report_with_findings
from lostflops.explain.analyze.report import is_of_job, report
from lostflops.show.pages.places import places_of

if TYPE_CHECKING:
    from lostflops.store.run import Run

Progress = Callable[[int, int], None]

NAME: Final = "overview"
TITLE: Final = "Overview"


def overview(run: Run, said: Claims | None = None, progress: Progress | None = None) -> Result:
    """Return the headline with the ledger and the first findings."""
    plain = _report(run, said, progress)
    answer = report_with_findings(plain, run, shown=True)
    found = next((block for block in answer.blocks if isinstance(block, Findings)), None)
    items = found.items if found is not None else ()
    ledger = _ledger(answer)
    first = tuple(items[:FIRST])
    cards = Findings("advice", "What to do", items, FIRST, is_brief=True, places=places_of(run, first))
    unchecked = LARGE in answer.notes
    return Result(
        NAME,
        TITLE,
        headline_of_job(run) or (_without_causes(ledger) if unchecked else headline(items, _compute(ledger))),
        blocks=(*ledger, cards) if items else ledger,
        notes=(plain.verdict, *([LARGE] if unchecked else [])),
    )


def overview_without_causes(run: Run, progress: Progress | None = None) -> Result:
    """Return what is known before the diagnosis, which takes longer."""
    answer = _report(run, None, progress)
    ledger = _ledger(answer)
    return Result(NAME, TITLE, headline_of_job(run) or _without_causes(ledger), ledger, (answer.verdict,))


def report_in_full(run: Run, said: Claims | None = None, progress: Progress | None = None) -> Result:
    """Return the rest of the report, with the whole job: the overview has its ledger."""
    answer = report_with_findings(_report(run, said, progress), run, shown=False)
    job = tuple(block for block in answer.more if is_of_job(block))
    rest = tuple(block for block in answer.blocks if not isinstance(block, Lines))
    return replace(answer, blocks=(*job, *rest), more=tuple(block for block in answer.more if block not in job))


def _report(run: Run, said: Claims | None, progress: Progress | None) -> Result:
    return run.keep(("report of a page", said), lambda: report(run, said=said, progress=progress))


def _ledger(answer: Result) -> tuple[Lines, ...]:
    """Return the ledger, if it has any time: steps that were only timed have none."""
    return tuple(block for block in answer.blocks if isinstance(block, Lines) and block.total_ns)


def _compute(ledger: tuple[Lines, ...]) -> float | None:
    return ledger[0].items[0].share if ledger else None


def _without_causes(ledger: tuple[Lines, ...]) -> str:
    share = _compute(ledger)
    return NOT_IN_DETAIL if share is None else f"Compute takes {format_percent(share)} of the time."
