"""Which activities of a device run alone, and which overlap?

Activities are compute, each communication operation, and copies. Every busy nanosecond of a rank belongs to one
combination of them, so combinations sum to the busy lines of the ledger. Overlap with another activity counts for each
activity that runs, so these times do not add up if three run at the same time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from lostflops.account.ledger.answers import ledgers
from lostflops.account.ledger.by_rank import Progress
from lostflops.account.ledger.scope import scope
from lostflops.account.ledger.together import COMPUTE, COPY
from lostflops.core.results import Field, HeatMap, Result, Table
from lostflops.core.units import format_ns, format_share, pluralise

if TYPE_CHECKING:
    from lostflops.account.ledger.windows import WindowKind
    from lostflops.store.run import Run

MOST_SHOWN = 12
ALONE = "alone"

Sums = Mapping[tuple[str, ...], int]


def overlap(
    run: Run,
    *,
    window: WindowKind | None = None,
    ranks: Sequence[int] = (),
    steps: Sequence[int] = (),
    progress: Progress | None = None,
) -> Result:
    asked = scope(run, window, ranks, steps)
    sums: Counter[tuple[str, ...]] = Counter()
    for ledger in ledgers(run, asked, progress):
        sums.update(ledger.together)
    names = _activities(sums)
    whose = "all ranks" if asked.ranks == run.ranks else pluralise(len(asked.ranks), "rank")
    blocks = _table(sums, names, whose), _matrix(sums, names), _combinations(sums)
    return Result(
        name="overlap",
        title="Overlap",
        verdict=_verdict(sums, names, whose),
        blocks=blocks if sums else (),
        more=() if sums else blocks,
    )


def _activities(sums: Sums) -> list[str]:
    """List activities: compute first, copies last."""
    known = {name for names in sums for name in names}
    between = sorted(known - {COMPUTE, COPY}, key=lambda name: (-_time(sums, name), name))
    return [name for name in (COMPUTE, *between, COPY) if name in known]


def _time(sums: Sums, *running: str) -> int:
    """Return all time in which these activities run, possibly with others."""
    return sum(ns for names, ns in sums.items() if set(running) <= set(names))


def _verdict(sums: Sums, names: Sequence[str], whose: str) -> str:
    talking = [name for name in names if name not in (COMPUTE, COPY)]
    if not sums:
        return "Nothing ran in this window."
    if not talking:
        return "No communication ran, so there is nothing to hide."
    exposed = {name: _time(sums, name) - _time(sums, name, COMPUTE) for name in talking}
    worst = max(talking, key=lambda name: exposed[name])
    whole = _time(sums, worst)
    hidden = format_share(1 - exposed[worst] / whole) if whole else "none"
    return (
        f"The most exposed operation is {worst}: {format_ns(exposed[worst])} of its {format_ns(whole)} on {whose} runs "
        f"without compute (compute hides {hidden})."
    )


def _table(sums: Sums, names: Sequence[str], whose: str) -> Table:
    fields = (
        Field("activity"),
        Field("ns", "ns", "time"),
        Field("alone_ns", "ns", "alone"),
        Field("under_compute_ns", "ns", "hidden"),
        Field("under_compute", "share", "of it"),
        Field("under_comm_ns", "ns", "with comm"),
        Field("under_copy_ns", "ns", "with copy"),
    )
    rows = []
    for name in names:
        whole, hidden = _time(sums, name), _time(sums, name, COMPUTE)
        others = [
            sum(ns for held, ns in sums.items() if name in held and set(held) & wanted)
            for wanted in (set(names) - {COMPUTE, COPY, name}, {COPY})
        ]
        covered = (None, None) if name == COMPUTE else (hidden, hidden / whole if whole else None)
        copied = None if name == COPY else others[1]
        rows.append((name, whole, sums.get((name,), 0), *covered, others[0], copied))
    return Table("activities", f"By activity, {whose} (hidden = under compute)", fields, tuple(rows))


def _matrix(sums: Sums, names: Sequence[str]) -> HeatMap:
    rows = []
    for name in names:
        whole = _time(sums, name) or 1
        under = [None if other == name else _time(sums, name, other) / whole for other in names]
        rows.append((name, (sums.get((name,), 0) / whole, *under)))
    legend = "share of the row's time in which it runs alone, or together with the activity of the column"
    return HeatMap(
        "under", "Which activities overlap", tuple(rows), "share", legend, (ALONE, *names), "activity", "together with"
    )


def _combinations(sums: Sums) -> Table:
    whole = sum(sums.values()) or 1
    ordered = sorted(sums.items(), key=lambda item: (-item[1], item[0]))
    rows = tuple((" + ".join(names), ns, ns / whole) for names, ns in ordered)
    fields = (Field("running"), Field("ns", "ns", "time"), Field("share", "share", "share of busy time"))
    return Table("combinations", "What runs at the same time", fields, rows, most_shown=MOST_SHOWN)
