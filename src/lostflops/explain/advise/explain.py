"""One finding in full: its evidence event by event, what the fix changes, and how to confirm it."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Final

from lostflops.core.errors import UsageError
from lostflops.core.results import Block, Field, Findings, Result, Table
from lostflops.core.units import pluralise
from lostflops.explain.advise.case import Case
from lostflops.explain.advise.diagnose import examine
from lostflops.explain.advise.diagnosis import store_predictions
from lostflops.explain.advise.rules import RULES
from lostflops.predict.whatif.answer import answer, parse_change
from lostflops.predict.whatif.whatif import tabulate_answer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lostflops.account.ledger.by_rank import Progress
    from lostflops.core.results import Evidence
    from lostflops.explain.advise.findings import Priced
    from lostflops.explain.advise.rule import Rule
    from lostflops.predict.whatif.run_facts import LearnTimes
    from lostflops.store.run import Run

MOST_EVENTS: Final = 5


def explain(
    run: Run,
    number: int,
    times: LearnTimes | None = None,
    *,
    usd_per_hour: float | None = None,
    progress: Progress | None = None,
    rules: Sequence[Rule] = RULES,
) -> Result:
    """Explain finding `number` of the diagnosis, counted from 1."""
    case = Case(run, times, progress)
    found = examine(case, usd_per_hour=usd_per_hour, rules=rules)
    if not 1 <= number <= len(found.items):
        there = f"the run has {pluralise(len(found.items), 'finding')}" if found.items else "nothing was found"
        raise UsageError(f"no finding {number}: {there}. lostflops diagnose {shlex.quote(run.address)} lists them")
    chosen, one = found.items[number - 1]
    about = next(rule.about for rule in rules if rule.cause == chosen.cause)
    events = _events(run, chosen.evidence)
    return Result(
        name="explanation",
        version=3,
        title=f"Finding {number} of {len(found.items)}: {chosen.cause}",
        verdict=about,
        blocks=(
            Findings("findings", "", (chosen,)),
            _build_attribution_table(one, case),
            *([events] if events.rows else []),
            *_build_whatif_blocks(case, one),
        ),
        more=() if events.rows else (events,),
        notes=tuple(store_predictions(run, [one.stored])),
    )


def _build_attribution_table(one: Priced, case: Case) -> Table:
    """Tabulate by line the time that is attributed, and the total of the line."""
    claimed: dict[str, int] = {}
    for (_, line), ns in one.claim.taken.items():
        claimed[line] = claimed.get(line, 0) + ns
    rows = tuple((line, ns, case.total.lines[line], ns / (case.wall or 1)) for line, ns in claimed.items())
    fields = (
        Field("line"),
        Field("claimed_ns", "ns", "attributed"),
        Field("line_ns", "ns", "line total"),
        Field("share", "share", "of all ranks' time"),
    )
    return Table("claimed", "Time attributed to this cause", fields, rows)


def _events(run: Run, evidence: Sequence[Evidence]) -> Table:
    """Tabulate the first events that the evidence names, as recorded in the trace."""
    rows = []
    for item in evidence:
        for rank, event in item.events[:MOST_EVENTS]:
            found = run.rows(f"select step, name, dur, source from events where rank = {rank} and event = {event}")
            rows += [(rank, event, *row) for row in found]
    fields = (Field("rank"), Field("event"), Field("step"), Field("name"), Field("dur", "ns"), Field("source"))
    return Table("events", "Events", fields, tuple(rows))


def _build_whatif_blocks(case: Case, one: Priced) -> tuple[Block, ...]:
    if one.stored is None or case.baseline is None:
        return ()
    return tabulate_answer(answer(case.baseline, [parse_change(text) for text in one.claim.changes]))
