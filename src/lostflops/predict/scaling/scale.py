"""How long would a step take with other numbers of ranks, how efficiently, with how much exposed communication?

The steps of a run are replayed with transfers as they would be in larger or smaller groups. Work per rank stays the
same (weak scaling), or that of the whole job does, and compute divides (strong scaling).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from lostflops.core.errors import UnknownCost, UsageError
from lostflops.core.results import Field, Pair, Pairs, Plot, Result, Series, Table, Value
from lostflops.core.units import format_ns, format_share, pluralise
from lostflops.predict.costs.times import OPS, CommTimes
from lostflops.predict.scaling.answers import ReplayCheck, ScaleAnswer, ScalingModel, kind_of
from lostflops.predict.scaling.growth import Growing, MeshLayout, layout
from lostflops.predict.scaling.own_times import OwnTimes
from lostflops.predict.scaling.retime import KEPT, CallKind, Factor, Retiming
from lostflops.predict.scaling.step_timelines import MOST_RANKS, check_communicates, timelines

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lostflops.account.ledger.by_rank import Progress
    from lostflops.predict.scaling.timeline import StepTimeline
    from lostflops.store.run import Run

MOST_KINDS: Final = 12
_MOST_KEPT: Final = 0.5
_LARGE_ERROR: Final = 0.05
"""If the relative error of the replay is larger, the answer is called a guess."""


@dataclass(frozen=True, slots=True)
class _Replayed:
    """Data for all blocks and notes of the result."""

    layout: MeshLayout
    check: ReplayCheck
    answers: tuple[ScaleAnswer, ...]
    timelines: tuple[StepTimeline, ...]
    strong: bool


def scale(
    run: Run,
    ranks: Sequence[int],
    times: Callable[[OwnTimes], CommTimes],
    *,
    strong: bool = False,
    mesh: Mapping[str, int] | None = None,
    ranks_per_host: int | None = None,
    progress: Progress | None = None,
) -> Result:
    """Predict steps at other numbers of ranks. `times` gets the times of the run's own collectives, and returns the
    source of times for other groups."""
    check_communicates(run)
    arranged = layout(run, mesh, ranks_per_host)
    wanted = sorted({*ranks, arranged.world})
    for count in wanted:
        arranged.check(count)
    if len(wanted) == 1:
        raise UsageError(
            f"the run already has {arranged.world:,} ranks: give other numbers with --ranks, such as 16,64"
        )
    grows = Growing(arranged)
    steps = tuple(timelines(run, lambda call: grows.link(call.group), progress))
    if not any(kind.op in OPS and grows(kind.group) for kind in _kinds(steps)):
        raise UnknownCost("no collective of a data-parallel group was recorded in whole steps: nothing can be scaled")
    backend = run.rows("select max(backend) from ranks")[0][0]
    own = OwnTimes.of(steps, grows.recorded_group, backend)
    model = ScalingModel(steps, Retiming(grows, times(own)), world=arranged.world, strong=strong)
    answers = tuple(_answer(model, arranged, count) for count in wanted)
    found = _Replayed(arranged, model.check, answers, steps, strong)
    if (kept := _kept_share(found)) > _MOST_KEPT:
        raise UnknownCost(
            f"{format_share(kept)} of the transfers of data-parallel groups have no recorded operation and size, "
            "so their growth cannot be predicted. Record with collective metadata, as lostflops run does"
        )
    return _result(found)


def _answer(model: ScalingModel, arranged: MeshLayout, ranks: int) -> ScaleAnswer:
    try:
        return model.answer(ranks, -(-ranks // arranged.per_host))
    except UnknownCost as error:
        raise UnknownCost(
            f"{ranks:,} ranks, {arranged.per_host:,} per host: {error}. Then give --calibration FILE. If hosts will "
            "have another number of ranks, give --ranks-per-host."
        ) from None


def _kinds(steps: Sequence[StepTimeline]) -> set[CallKind]:
    return {kind_of(call) for one in steps for call in one.calls}


def _result(found: _Replayed) -> Result:
    return Result(
        name="scale",
        title="Strong scaling" if found.strong else "Weak scaling",
        verdict=_verdict(found),
        blocks=(_table(found), _collectives(found), _plot(found), _replay(found)),
        notes=tuple(_notes(found)),
    )


def _verdict(found: _Replayed) -> str:
    last = found.answers[-1]
    where = last if last.ranks > found.layout.world else found.answers[0]
    says = "the speed-up over the run is" if found.strong else "throughput per rank is"
    value = f"{where.speedup:.2f}" if found.strong else f"{format_share(where.efficiency)} of the run's"
    return (
        f"On {where.ranks:,} ranks a step takes {format_ns(round(where.step))} "
        f"({format_ns(round(where.low))} to {format_ns(round(where.high))}), {says} {value}; "
        f"{format_share(where.exposed / where.step)} of the step is exposed communication."
    )


def _table(found: _Replayed) -> Table:
    fields = (
        Field("ranks"),
        Field("hosts", "count", shown=False),
        Field("step_ns", "ns", "step"),
        Field("low_ns", "ns", "from"),
        Field("high_ns", "ns", "to"),
        Field("exposed_ns", "ns", "exposed"),
        Field("exposed_share", "share", shown=False),
        Field("efficiency", "share", "of ideal" if found.strong else "per rank"),
        Field("efficiency_alone", "share", "vs no communication", shown=not found.strong),
        Field("speedup", "rate", "speed-up", shown=found.strong),
        Field("algorithm"),
        Field("source", shown=False),
        Field("extrapolated", shown=False),
    )
    rows = tuple(_row(answer, measured=answer.ranks == found.layout.world) for answer in found.answers)
    return Table("ranks", "By number of ranks", fields, rows)


def _row(answer: ScaleAnswer, *, measured: bool) -> tuple[Value, ...]:
    factors = [factor for factor in answer.factors.values() if factor.group is not None]
    return (
        answer.ranks,
        answer.hosts,
        *(round(value) for value in (answer.step, answer.low, answer.high, answer.exposed)),
        answer.exposed / answer.step,
        answer.efficiency,
        answer.alone,
        answer.speedup,
        "measured" if measured else _join_distinct(factor.algorithm for factor in factors),
        "the run" if measured else _join_distinct(factor.source for factor in factors),
        _join_distinct(factor.reach for factor in factors),
    )


def _join_distinct(words: Iterator[str]) -> str:
    return ", ".join(dict.fromkeys(word for word in words if word))


def _collectives(found: _Replayed) -> Table:
    """Tabulate the collectives that grow, those with the most time first."""
    calls: dict[CallKind, list[float]] = {}
    for one in found.timelines:
        for call, queued in zip(one.calls, one.queued, strict=True):
            calls.setdefault(kind_of(call), []).append(queued.alone)
    each = sum(len(one.steps) for one in found.timelines)
    rows: list[tuple[Value, ...]] = []
    for kind in found.answers[0].factors:
        own = calls[kind]
        mean = sum(own) / len(own)
        at = [_after(answer.factors[kind], mean) for answer in found.answers]
        rows.append((kind.op, kind.group, kind.size, len(own) / each, round(mean), *at))
    rows.sort(key=lambda row: -float(row[3] or 0) * float(row[4] or 0))
    shown = [answer.ranks for answer in found.answers]
    fields = (
        Field("op"),
        Field("group"),
        Field("bytes", "bytes", "size"),
        Field("per_step", "rate", "per step"),
        Field("transfer_ns", "ns", "transfer"),
        *(
            Field(str(ranks), "ns", f"at {ranks:,}", within="at", shown=ranks in (shown[0], shown[-1]))
            for ranks in shown
        ),
    )
    title = "Collectives that grow, each with the link to itself"
    return Table("collectives", title, fields, tuple(rows), most_shown=MOST_KINDS)


def _after(factor: Factor, mean: float) -> int:
    return round(factor.apply(mean, "value"))


def _plot(found: _Replayed) -> Plot:
    def line(name: str, value: Callable[[ScaleAnswer], float]) -> Series:
        return Series(name, "line", tuple((answer.ranks, value(answer)) for answer in found.answers))

    series = (
        Series("measured", "marks", ((found.layout.world, found.check.measured),)),
        line("step", lambda answer: answer.step),
        line("at least", lambda answer: answer.low),
        line("at most", lambda answer: answer.high),
        line("exposed communication", lambda answer: answer.exposed),
    )
    title = "Step time by number of ranks"
    return Plot("plot", title, Field("ranks", "count"), Field("step_ns", "ns", "step"), series, log_y=False)


def _replay(found: _Replayed) -> Pairs:
    check = found.check
    items = (
        Pair("steps", check.steps, "count"),
        Pair("measured_ns", round(check.measured), "ns", "measured step"),
        Pair("replayed_ns", round(check.replayed), "ns", "replayed"),
        Pair("error", check.error / check.measured, "share"),
        Pair("spread_ns", round(check.spread), "ns", "uncertainty of the median"),
        Pair("without_communication_ns", round(check.progress), "ns", "without communication"),
    )
    return Pairs("replay", "The run, replayed without changes", items)


def _notes(found: _Replayed) -> Iterator[str]:
    arranged, check = found.layout, found.check
    if check.error > _LARGE_ERROR * check.measured:
        yield (
            f"The replay is {format_share(check.error / check.measured)} off the measured step: the model does not fit "
            "this run, and its answers are guesses."
        )
    sources = _join_distinct(factor.source for answer in found.answers for factor in answer.factors.values())
    if sources:
        yield f"Transfer times at other numbers of ranks: {sources}; scaled to the run's own times."
    fixed = ", ".join(f"{kind}={size}" for kind, size in arranged.mesh.dimensions if kind != arranged.kind)
    yield (
        f"Replicas are added ({arranged.kind}); "
        + (f"unchanged: {fixed}, with transfers and waits; " if fixed else "")
        + f"{pluralise(arranged.per_host, 'rank')} per host."
    )
    yield "Waits for late ranks stay as measured; in reality, the last of more ranks arrives later."
    yield from _unmet(found.timelines)
    if found.answers[0].ranks < arranged.world:
        yield "With fewer ranks, the gain for queued collectives is left out: real steps would be shorter."
    if found.strong:
        yield (
            "Only compute is divided by the ranks; host time, copies and message sizes stay the same. Kernels are "
            "assumed to be as efficient with less work. The interval includes waits that change with compute."
        )
    yield from arranged.mesh.notes
    yield from _left_out(found)


def _unmet(timelines: Sequence[StepTimeline]) -> Iterator[str]:
    calls = [call for one in timelines for call in one.calls]
    if unmet := sum(not call.met for call in calls):
        yield (
            f"In {pluralise(unmet, 'call')} of {len(calls):,}, a member was not recorded, so the wait is unknown: the "
            "shortest call of a kind is assumed not to have waited. Record all ranks to be sure."
        )


def _kept_share(found: _Replayed) -> float:
    """Return the part of the transfer time of growing groups that cannot be retimed."""
    factors, kept, whole = found.answers[-1].factors, 0.0, 0.0
    for one in found.timelines:
        for call, queued in zip(one.calls, one.queued, strict=True):
            if (factor := factors.get(kind_of(call))) is not None:
                whole += queued.alone
                kept += queued.alone if factor.group is None else 0
    return kept / whole if whole else 0.0


def _left_out(found: _Replayed) -> Iterator[str]:
    kept = [
        kind.op or "unknown operations"
        for kind, factor in found.answers[-1].factors.items()
        if factor.algorithm == KEPT and factor.group is None
    ]
    if kept:
        share, names = format_share(_kept_share(found)), ", ".join(dict.fromkeys(kept))
        yield f"Kept as measured although their groups grow ({share} of such transfers): {names}."
    if len(found.timelines) == MOST_RANKS < found.layout.world:
        yield f"Based on {MOST_RANKS} of {found.layout.world:,} ranks."
