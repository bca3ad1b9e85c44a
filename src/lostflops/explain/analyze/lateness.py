"""In which steps and phases is each rank late?

Arrivals in collectives, on the common clock, show when a rank was late, whatever the cause. Its own time (outside
communication), compared with ranks that do the same work, shows where the rank itself is slow, and needs no clock.
Ranks are in the order of the mesh.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from lostflops.account.align.answers import clock_of
from lostflops.account.align.mesh import Mesh, recognise
from lostflops.account.late.arrivals import by_step
from lostflops.account.late.comparison import OWN_LINES, Comparison, Floats, usual
from lostflops.account.late.ranks import Judgement, choose_ranks, compare_ranks, judge_ranks
from lostflops.account.late.words import describe, nobody
from lostflops.account.ledger.answers import ledgers
from lostflops.account.ledger.by_rank import Progress
from lostflops.account.ledger.phases import PHASES
from lostflops.account.ledger.scope import scope
from lostflops.core.results import HeatMap, Result

if TYPE_CHECKING:
    from lostflops.account.ledger.accounts import RankLedger
    from lostflops.account.ledger.windows import WindowKind
    from lostflops.store.run import Run

MOST_RANKS: Final = 1000
"""If there are more ranks, those that waited least are compared with a sample of their peers."""
MOST_STEPS: Final = 1000
"""If there are more steps, the first ones are shown."""
WHOLE: Final = "all that was recorded"
_QUEUED: Final = OWN_LINES.index("idle.dependency")

Late = Mapping[tuple[int, int], float]


def lateness(
    run: Run,
    *,
    window: WindowKind | None = None,
    steps: Sequence[int] = (),
    mesh: Mapping[str, int] | None = None,
    progress: Progress | None = None,
) -> Result:
    asked = scope(run, window, (), steps)
    order = recognise(run, mesh)
    some = replace(asked, ranks=choose_ranks(run, asked, order, MOST_RANKS))
    phases: dict[int, Floats] = {}
    profiles = []
    for ledger in ledgers(run, some, progress):
        profiles.append(ledger.profile)
        phases[ledger.rank] = _by_phase(ledger)
    judged = judge_ranks(run, asked, order, profiles=profiles)
    found, dark = judged.comparison, compare_ranks(run, order, profiles)[1]
    late = {key: ns for key, ns in by_step(run, asked, clock_of(run)).items() if key[0] in phases}
    maps = _arrivals(order, late), _excess(order, found), _phases(order, found, phases, dark)
    shown = [one for one in maps if any(ns is not None for _, values in one.rows for ns in values)]
    return Result(
        name="lateness",
        title="Lateness",
        verdict=_verdict(judged, maps[2]),
        blocks=tuple(shown),
        notes=tuple(_notes(found, late, len(asked.ranks))),
        more=tuple(one for one in maps if one not in shown),
    )


def _by_phase(ledger: RankLedger) -> Floats:
    """Return the rank's own time per step, by phase and line."""
    steps = max(len(ledger.window.number), 1)
    none = dict.fromkeys(OWN_LINES, 0)
    return np.array([[ledger.phases.get(phase, none)[line] / steps for line in OWN_LINES] for phase in PHASES])


def _arrivals(order: Mesh, late: Late) -> HeatMap:
    known = sorted({step for _, step in late})[:MOST_STEPS]
    ranks = {rank for rank, _ in late}
    rows = [
        (_name_rank(order, rank), tuple(_above(late.get((rank, step))) for step in known))
        for rank in order.ranks
        if rank in ranks
    ]
    legend = "mean lateness after the median arrival in collectives, by rank and step; 0 if not late"
    columns = tuple(map(str, known))
    return HeatMap("arrivals_by_step", "Arrivals by step", tuple(rows), "ns", legend, columns, _rows(order), "step")


def _excess(order: Mesh, found: Comparison) -> HeatMap:
    columns = tuple(WHOLE if step < 0 else str(step) for step in found.steps[:MOST_STEPS].tolist())
    rows = [
        (_name_rank(order, rank), tuple(map(_above, values)))
        for rank, values in zip(found.ranks.tolist(), _alike(found, found.by_step[:, :MOST_STEPS]), strict=True)
    ]
    legend = "time outside communication above the median of ranks that do the same work, by rank and step; 0 if below"
    title = "Extra time compared with peers, by step"
    return HeatMap("excess_by_step", title, tuple(rows), "ns", legend, columns, _rows(order), "step")


def _phases(order: Mesh, found: Comparison, phases: Mapping[int, Floats], dark: frozenset[int]) -> HeatMap:
    """Return the extra time by phase. If the record of a collective is missing, its time looks like queued work: such
    ranks are compared without queued work."""
    ranks = found.ranks.tolist()
    own = np.stack([phases[rank] for rank in ranks]) if ranks else np.empty((0, len(PHASES), len(OWN_LINES)))
    told = np.array([rank not in dark for rank in ranks], np.bool_)
    whole, without = own.sum(axis=2), np.delete(own, _QUEUED, axis=2).sum(axis=2)
    excess = np.where(
        told[:, np.newaxis], whole - usual(whole, found.cohort, told), without - usual(without, found.cohort)
    )
    rows = [
        (_name_rank(order, rank), tuple(map(_above, values)))
        for rank, values in zip(ranks, _alike(found, excess), strict=True)
    ]
    legend = "time outside communication above the median of ranks that do the same work, by rank and phase"
    legend += " (mean of steps); 0 if below"
    title = "Extra time compared with peers, by phase"
    return HeatMap("excess_by_phase", title, tuple(rows), "ns", legend, PHASES, _rows(order), "phase of training")


def _alike(found: Comparison, values: Floats) -> list[list[float | None]]:
    """Return the values; None if a rank has no peers, or not all of them recorded the step."""
    known = (np.bincount(found.cohort)[found.cohort] > 1)[:, np.newaxis] & ~np.isnan(values)
    return [
        [ns if is_known else None for ns, is_known in zip(*row, strict=True)]
        for row in zip(values.tolist(), known.tolist(), strict=True)
    ]


def _above(ns: float | None) -> float | None:
    return None if ns is None else max(0.0, float(round(ns)))


def _rows(order: Mesh) -> str:
    return "rank (position in the mesh)" if len(order.dimensions) > 1 else "rank"


def _name_rank(order: Mesh, rank: int) -> str:
    place = order.places_of([rank])[0].tolist() if len(order.dimensions) > 1 else []
    at = ",".join(f"{kind}{at}" for (kind, _), at in zip(order.dimensions, place, strict=False))
    return f"{rank} ({at})" if at else str(rank)


def _verdict(judged: Judgement, phases: HeatMap) -> str:
    found = judged.comparison
    if found.ranks.size < 2:
        return "Fewer than two ranks recorded any time, so there is nothing to compare."
    if not judged.late:
        return nobody(judged)
    first = judged.late[0]
    _, values = phases.rows[found.place(first.rank)]
    beyond = [value or 0.0 for value in values]
    phase = PHASES[int(np.argmax(beyond))]
    part = f" Most of it is in {phase}." if phase != "other" and 2 * max(beyond) > sum(beyond) else ""
    return describe(first) + part


def _notes(found: Comparison, late: Late, ranks_in_all: int) -> Iterator[str]:
    if ranks_in_all > MOST_RANKS:
        yield f"{found.ranks.size:,} of {ranks_in_all:,} ranks are shown: those that waited least, and a sample."
    if (more := max(found.steps.size, len({step for _, step in late})) - MOST_STEPS) > 0:
        yield f"Only the first {MOST_STEPS:,} steps are shown; {more:,} are left out."
