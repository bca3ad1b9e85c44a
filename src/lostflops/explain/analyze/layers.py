"""What does the communication of each FSDP unit and each layer cost, and is there enough compute to hide it?

Exposed times of both tables sum to the communication lines of the ledger. What no layer asked for has a row of its own.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from lostflops.account.ledger.by_rank import Progress, by_rank
from lostflops.account.ledger.layers import LAYERS, LayerCalls, RankLayers
from lostflops.account.ledger.scope import scope
from lostflops.core.results import Field, Result, Table, Value
from lostflops.core.units import format_ns, format_share, pluralise

if TYPE_CHECKING:
    from lostflops.account.ledger.windows import WindowKind
    from lostflops.store.run import Run

MOST_ROWS: Final = 20
NO_LAYER: Final = "(no layer)"
HIDDEN, WAITS, NOTHING, LONGER, FITS = (
    "hidden",
    "waits for late ranks",
    "no compute beside it",
    "longer than compute",
    "shorter than compute",
)
_LITTLE: Final = 0.05
"""A smaller share of exposed time is not worth a change."""
_HALF: Final = 0.5
_LARGER: Final = "prefetch cannot hide it all; try larger units, a larger batch per rank, or HSDP"
_GATHER_EARLIER: Final = "gather it earlier (lostflops whatif RUN --change prefetch=1)"
_REDUCE_EARLIER: Final = (
    "it starts late or queues behind other communication, which lostflops open RUN shows; prefetch does not move it"
)

_UNMATCHED: Final = """
    select count(*) from collectives c left join arrivals a using (rank, event)
    where c.rank in ({ranks}) and a.wait is null and c.event is not null"""


@dataclass(slots=True)
class _Sums:
    """Sums over all ranks, in ns."""

    calls: int = 0
    hidden: int = 0
    exposed: int = 0
    waited: int = 0
    moving: int = 0
    beside: int = 0

    def add(self, call: LayerCalls) -> None:
        self.calls += call.calls
        self.hidden += call.hidden
        self.exposed += call.exposed
        self.waited += call.waited
        self.moving += call.moving
        self.beside += call.beside

    @property
    def limit(self) -> str:
        """Whether the calls are hidden, and if not why."""
        time = self.hidden + self.exposed
        if self.exposed <= _LITTLE * time:
            return HIDDEN
        if self.waited > _HALF * self.exposed:
            return WAITS
        if not self.beside:
            return NOTHING
        return LONGER if self.moving > self.beside else FITS


Key = tuple[str, str, str]


def layers(
    run: Run,
    *,
    window: WindowKind | None = None,
    ranks: Sequence[int] = (),
    steps: Sequence[int] = (),
    limit: int = MOST_ROWS,
    progress: Progress | None = None,
) -> Result:
    asked = scope(run, window, ranks, steps)
    units: dict[Key, _Sums] = defaultdict(_Sums)
    others: dict[Key, _Sums] = defaultdict(_Sums)
    compute: Counter[tuple[str, str]] = Counter()
    exposed = 0
    for found in by_rank(LAYERS, run, asked, progress):
        exposed += found.exposed
        _add(found, units, others, compute)
    tables = _units(units, limit), _layers(others, compute, limit)
    shown = tuple(table for table in tables if table.rows)
    return Result(
        name="layers",
        title="Communication by unit and layer",
        verdict=_verdict(units, others, exposed),
        blocks=shown,
        more=tuple(table for table in tables if not table.rows),
        notes=_notes(run, asked.ranks) if shown else (),
    )


def _add(
    found: RankLayers, units: dict[Key, _Sums], others: dict[Key, _Sums], compute: Counter[tuple[str, str]]
) -> None:
    for call in found.calls:
        sums = units if call.is_unit else others
        sums[call.layer or NO_LAYER, call.phase or "unknown", call.op].add(call)
    for layer, phase, ns in found.compute:
        compute[layer or NO_LAYER, phase] += ns


def _verdict(units: dict[Key, _Sums], others: dict[Key, _Sums], exposed: int) -> str:
    if not units and not others:
        return "No communication ran in this window."
    known = {key: sums for key, sums in (*units.items(), *others.items()) if key[0] != NO_LAYER}
    if not known:
        return (
            f"The {format_ns(exposed)} of exposed communication has no layer: the trace names neither FSDP units nor "
            "modules. `lostflops run` records modules unless --with leaves them out; synthetic runs name no modules."
        )
    own = sum(sums.exposed for sums in known.values())
    part = f"{format_ns(own)} ({format_share(own / exposed)}) of the" if own < exposed else "All"
    says = f"{part} {format_ns(exposed)} of exposed communication belongs to a unit or layer"
    movable = {key: sums for key, sums in units.items() if sums.limit in (LONGER, FITS)}
    if not movable:
        return f"{says}."
    unit, phase, op = key = max(movable, key=lambda key: (movable[key].exposed, key))
    worst = movable[key]
    times = f"{format_ns(worst.moving)}, and the compute that could hide it {format_ns(worst.beside)}"
    return f"{says}. The {op} of {unit} in {phase} takes {times}: {_advise(op, worst.limit)}."


def _advise(op: str, limit: str) -> str:
    """Return what to do about the calls of a unit. A reduction cannot be fetched early: its gradients come when they
    come."""
    if limit == LONGER:
        return _LARGER
    return _REDUCE_EARLIER if "reduce" in op else _GATHER_EARLIER


def _units(units: dict[Key, _Sums], limit: int) -> Table:
    rows: list[tuple[Value, ...]] = [
        (*key, sums.calls, sums.moving, sums.beside, sums.hidden, sums.exposed, sums.waited, sums.limit)
        for key, sums in units.items()
    ]
    fields = (*_KEY[0], *_TIMES, Field("limit", shown=False))
    return Table("units", "By FSDP unit, all ranks", fields, _sort(rows, 7), most_shown=limit)


def _layers(others: dict[Key, _Sums], compute: Counter[tuple[str, str]], limit: int) -> Table:
    rows: list[tuple[Value, ...]] = [
        (*key, sums.calls, sums.moving, compute.get(key[:2]), sums.hidden, sums.exposed, sums.waited)
        for key, sums in others.items()
    ]
    return Table("layers", "By layer, all ranks", (*_KEY[1], *_TIMES), _sort(rows, 7), most_shown=limit)


def _sort(rows: list[tuple[Value, ...]], column: int) -> tuple[tuple[Value, ...], ...]:
    return tuple(sorted(rows, key=lambda row: (-int(row[column] or 0), *map(str, row[:3]))))


_KEY: Final = tuple((Field(first), Field("pass"), Field("op")) for first in ("unit", "layer"))
_TIMES: Final = (
    Field("calls", "count", shown=False),
    Field("transfer_ns", "ns", "transfer"),
    Field("compute_ns", "ns", "compute"),
    Field("hidden_ns", "ns", "hidden"),
    Field("exposed_ns", "ns", "exposed"),
    Field("wait_ns", "ns", "of it wait", shown=False),
)


def _notes(run: Run, ranks: Sequence[int]) -> tuple[str, ...]:
    unmatched = run.rows(_UNMATCHED.format(ranks=", ".join(map(str, ranks))))[0][0]
    compute = (
        "For a unit, `compute` is what could hide its calls: the compute of the unit before a gather, or after a "
        "reduction. For a layer, it is the layer's own compute, which cannot hide a tensor-parallel call. `hidden` and "
        "`exposed` include waits for late ranks, `transfer` does not."
    )
    if not unmatched:
        return (compute,)
    calls = pluralise(unmatched, "call")
    return compute, f"{calls} could not be matched with other ranks: the transfer time may include waiting."
