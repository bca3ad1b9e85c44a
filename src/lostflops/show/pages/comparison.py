"""The page of two runs, or of two groups of runs: which is faster, where, what changed, and the findings of each.

Step times, lines, kernels and collectives are those of all runs of a side. Strips and findings are those of its first
run. A part that cannot be answered does not affect the others.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from lostflops.core.errors import LostflopsError
from lostflops.core.results import Block, Figure, Finding, Findings, Page, Pair, Pairs, Result, Table
from lostflops.explain.compare.aligned_steps import aligned_steps
from lostflops.explain.compare.change import MARGIN
from lostflops.explain.compare.comparable import REFUSED
from lostflops.explain.compare.compare_runs import compare_runs
from lostflops.explain.compare.step_plot import name_runs
from lostflops.explain.compare.wording import format_signed_ns
from lostflops.show.pages.glossary import GLOSSARY
from lostflops.show.pages.page import OPEN, causes
from lostflops.store.run import Run

if TYPE_CHECKING:
    from lostflops.account.ledger.by_rank import Progress
    from lostflops.explain.compare.sides import OpenRun

MOST_KERNELS: Final = 1_000
SECTIONS: Final = {
    "diff": "B compared with A",
    "aligned_steps": "Median steps of A and B",
    "changed_kernels": "Kernels that changed",
    "changed_collectives": "Collectives that changed",
    "comparable": "Can the runs be compared?",
    "findings_a": "Findings of A",
    "findings_b": "Findings of B",
}
"""Title of each result, in the order of the page."""
_KERNELS: Final = ("kernels",)
_COLLECTIVES: Final = ("collectives", "collective_sizes")
_FACTS: Final = ("differing", "same")
_DRAWN: Final = ("compared_steps",)
"""Parts that a terminal does not show."""


def comparison_page(
    before: Sequence[Path],
    after: Sequence[Path],
    *,
    margin: float = MARGIN,
    anyway: bool = False,
    progress: Progress | None = None,
    open_run: OpenRun = Run.open,
) -> Page:
    """Return all answers about two groups of runs; raise UsageError if they cannot be compared."""
    answer = compare_runs(
        before,
        after,
        margin=margin,
        anyway=anyway,
        most_kernels=MOST_KERNELS,
        progress=progress,
        open_run=open_run,
    )
    results, missing = list(_split(answer, before, after)), []
    with open_run(before[0]) as first, open_run(after[0]) as second:
        for name, question in _list_questions(first, second).items():
            try:
                results.append(question())
            except LostflopsError as error:
                missing.append((SECTIONS[name], str(error)))
    results.sort(key=lambda result: list(SECTIONS).index(result.name))
    title = f"{_name_side(before)} and {_name_side(after)}"
    return Page(title, tuple(_note_first_run(results, before, after)), GLOSSARY, tuple(missing))


def _list_questions(before: Run, after: Run) -> dict[str, Callable[[], Result]]:
    return {
        "aligned_steps": lambda: aligned_steps(before, after),
        "findings_a": lambda: _find_causes("findings_a", before),
        "findings_b": lambda: _find_causes("findings_b", after),
    }


def _split(answer: Result, before: Sequence[Path], after: Sequence[Path]) -> Iterator[Result]:
    """Yield the answer of `diff` as several results, so that the page leads to each."""
    held = {block.name: block for block in (*answer.blocks, *answer.more) if not isinstance(block, Figure)}
    first = [block for block in answer.blocks if block.name not in (*_KERNELS, *_COLLECTIVES, *_FACTS)]
    drawn = [held[name] for name in _DRAWN if name in held]
    yield replace(answer, blocks=(*first, *drawn), more=())
    per = "per second" if answer.steps_from == "none" else "per step"
    for name, wanted in (("changed_kernels", _KERNELS), ("changed_collectives", _COLLECTIVES)):
        tables = [table for one in wanted if isinstance(table := held.get(one), Table)]
        if tables:
            shown = tuple(table for table in tables if table.rows)
            yield Result(name, SECTIONS[name], describe_changes(tables[0], per), shown)
    yield _judge_facts(held, _name_runs(before, after))


def describe_changes(table: Table, per: str) -> str:
    """Say how many kernels or collectives changed, how many are new or gone, and which changed most."""
    rows = table.to_json()
    if not rows:
        return "Nothing changed by a visible part of a step."
    words = Counter(row["change"] for row in rows)
    special = ", ".join(f"{words[word]} {word}" for word in ("new", "gone") if words[word])
    count = f"{len(rows) + table.left_out:,} changed" + (f" ({special})" if special else "")
    first = rows[0]
    name = first.get("short") or first.get("collective") or first["op"]
    return f"{count}; the largest difference is {name}, {format_signed_ns(first['delta_ns'])} {per} and rank."


def _judge_facts(held: Mapping[str, Block], runs: Pairs) -> Result:
    facts = [held[name] for name in _FACTS if name in held]
    differing = [row["fact"] for block in facts if isinstance(block, Table) for row in block.to_json()]
    verdict = "No recorded setting differs between A and B."
    if others := [fact for fact in differing if fact in REFUSED]:
        verdict = f"These are different jobs: {', '.join(others)} differ{'s' if len(others) == 1 else ''}."
    elif differing:
        verdict = f"The job is the same, but {', '.join(differing)} differ: this may be the change under test."
    shown = [block for block in facts if (block.rows if isinstance(block, Table) else block.to_json())]
    return Result("comparable", SECTIONS["comparable"], verdict, (runs, *shown))


def _name_runs(before: Sequence[Path], after: Sequence[Path]) -> Pairs:
    items = [
        Pair(key, name_runs(side), label=label) for key, label, side in (("before", "A", before), ("after", "B", after))
    ]
    return Pairs("runs", "Runs", tuple(items))


def _find_causes(name: str, run: Run) -> Result:
    """Return the first findings of a run. Evidence and changes lead to a timeline and to what-ifs of the run, which
    this page does not have, or has of the other run."""
    found = causes(run)
    items = tuple(_without_ways_on(one) for one in found.findings[:OPEN])
    blocks = (Findings("findings", "", items),) if found.blocks else ()
    following = f"lostflops diagnose {shlex.quote(run.name)}"
    return replace(found, name=name, title=SECTIONS[name], blocks=blocks, notes=(), more=(), next_command=following)


def _without_ways_on(finding: Finding) -> Finding:
    stored = finding.prediction
    return replace(finding, evidence=(), prediction=None if stored is None else replace(stored, change=""))


def _note_first_run(results: Sequence[Result], before: Sequence[Path], after: Sequence[Path]) -> Iterator[Result]:
    """Add the name of the run to results that are not about all runs of a side."""
    for result in results:
        asked = {"aligned_steps": (before, after), "findings_a": (before,), "findings_b": (after,)}.get(result.name, ())
        firsts = [name_runs(side)[0] for side in asked if len(side) > 1]
        note = f"Of the first run of each side with several: {', '.join(firsts)}."
        yield replace(result, notes=(*result.notes, note)) if firsts else result


def _name_side(paths: Sequence[Path]) -> str:
    """Return the name of the run, or of the first run and the number of others.

    >>> _name_side([Path("runs/a-1"), Path("runs/a-2")])
    'a-1 (+1)'
    """
    return paths[0].name + (f" (+{len(paths) - 1})" if len(paths) > 1 else "")
