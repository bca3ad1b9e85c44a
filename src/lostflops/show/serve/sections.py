"""Sections of a live page, in groups: what is asked first, and what the page says while it waits.

A group is worked out at once, with one ledger, one replay and one diagnosis. The verdict comes first, without causes,
then the timeline. The diagnosis takes longest, and completes the verdict.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from lostflops.explain.analyze.timeline import MOST_EVENTS, timeline
from lostflops.show.pages import comparison
from lostflops.show.pages.overview import NAME as OVERVIEW
from lostflops.show.pages.overview import overview_without_causes
from lostflops.show.pages.page import QUESTIONS

if TYPE_CHECKING:
    from lostflops.core.results import Result
    from lostflops.show.pages.page import Question
    from lostflops.store.run import Run


_MANY_EVENTS: Final = 5_000_000
"""In a run with more events than this, finding the longest ones takes seconds."""


@dataclass(frozen=True, slots=True)
class SectionGroup:
    """Sections that are asked for together."""

    name: str
    doing: str
    """What the page says while it waits."""
    sections: tuple[str, ...]
    questions: Mapping[str, Question]
    """By the section that each is for."""


def _timeline(run: Run, progress: Callable[[int, int], None] | None = None) -> Result:
    """Return the timeline; if there are many events, without them: pages ask for events by rank and time."""
    ((events,),) = run.rows("select coalesce(sum(events), 0) from ranks")
    return timeline(run, most=0 if events > _MANY_EVENTS else MOST_EVENTS, progress=progress)


def _ask(name: str, doing: str, *sections: str) -> SectionGroup:
    asked = sections or (name,)
    return SectionGroup(name, doing, asked, {section: QUESTIONS[section] for section in asked})


GROUPS: Final = (
    SectionGroup("verdict", "Computing where the time went", (OVERVIEW,), {OVERVIEW: overview_without_causes}),
    SectionGroup("timeline", "Drawing the timeline", ("timeline",), {"timeline": _timeline}),
    _ask("trust", "Checking data quality", "quality"),
    _ask("steps", "Comparing steps"),
    _ask("diagnosis", "Diagnosing", OVERVIEW, "diagnosis", "report", "ranks", "pipeline"),
    _ask("lateness", "Finding late ranks by step"),
    _ask("comm", "Summing communication"),
    _ask("overlap", "Measuring overlap"),
    _ask("kernels", "Summing kernels"),
    _ask("memory", "Reading memory events"),
    _ask("flame", "Reading stack samples"),
    _ask("knobs", "Predicting the gain of changes"),
)
"""In the order in which a page asks."""

COMPARED: Final = {name: title for name, title in comparison.SECTIONS.items() if name != "findings_a"}
"""Sections of a page with a second run, below those of the first, which has its own diagnosis."""
COMPARISON: Final = SectionGroup("comparison", "Comparing with run B", tuple(COMPARED), {})
"""Asked for last; its results are those of `comparison_page`."""
