"""How large is the pipeline bubble, how much of it is inherent to the schedule, and what causes the rest?

The time of a pipeline is that of its stages from the first pass of a step to the last; time outside passes is the
bubble. The inherent bubble is (p - 1) / (v m + p - 1) for p stages, m microbatches and v model chunks per rank. The
excess is attributed by replaying the recorded order of passes: with equal passes, then with the times of each stage,
then of each rank, then with the recorded times. Each level's increase belongs to its cause; the rest, up to the
recording, is transfers and gaps.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from lostflops.account.align.mesh import recognise
from lostflops.account.align.pass_spans import draw_schedule
from lostflops.account.align.passes import UnknownPasses, passes
from lostflops.account.align.pipeline_actions import CUT, annotated_schedule
from lostflops.account.align.schedule import Grid, Orders, Times, grid, on_one_clock, replay, schedule
from lostflops.core.errors import UsageError
from lostflops.core.pictures import Spans
from lostflops.core.results import Field, Pair, Pairs, Result, Table, Value
from lostflops.core.units import format_share, pluralise

if TYPE_CHECKING:
    from lostflops.store.run import Run

WARMING: Final = 1.2
"""The first step is left out if it takes more than this many times the median of the others."""
SMALL: Final = 0.01
"""A cause is named in the verdict if it takes at least this share of the pipeline's time."""
_NAMES: Final = {"1f1b": "1F1B", "gpipe": "GPipe", "interleaved": "interleaved 1F1B", "other": "its schedule", **CUT}
_NOTHING: Final = 0.0005
_PARTS: Final = ("warm_up", "steady", "drain")


class _Cause(NamedTuple):
    cause: str
    share: float
    stage: int | None = None
    rank: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bubble:
    """The bubble and its causes, as shares of the pipelines' time; arrays are by stage."""

    achieved: float
    inherent: float | None
    busy: Times
    parts: Mapping[str, Times | None]
    """Idle time in warm-up, steady state and drain; None without a common clock."""
    causes: tuple[_Cause, ...]
    between: float | None
    """How much earlier than the slowest the mean pipeline of a step ends; None if there is one pipeline."""
    schedule: str

    @property
    def excess(self) -> float | None:
        return None if self.inherent is None else self.achieved - self.inherent

    def part(self, name: str) -> float | None:
        part = self.parts[name]
        return None if part is None else float(part.mean())


def pipeline(run: Run, *, mesh: Mapping[str, int] | None = None) -> Result:
    arranged = recognise(run, mesh)
    named = annotated_schedule(run)
    if named in CUT:
        said = f"The schedule is {CUT[named]}; its bubble is unknown: the passes of such a schedule are not measured."
        return _result(said, None, None, arranged.notes, named)
    try:
        recorded = passes(run, arranged)
        _check(mesh, int(recorded.stage.max()) + 1)
        made = grid(recorded, arranged)
    except UnknownPasses as reason:
        return _result(f"The bubble is unknown: {reason}.", None, None, arranged.notes, named)
    made, notes = _warm(made)
    found = _bubble(made)
    arranged_notes = arranged.notes if arranged.source != "none" else ()
    told = _result(_verdict(made, found), made, found, (*arranged_notes, *notes, *_notes(made, found)))
    picture = draw_schedule(made, int(recorded.start.min())) if on_one_clock(made) else _nothing_drawn()
    return replace(told, blocks=(*told.blocks, picture)) if picture.items else replace(told, more=(picture,))


def _nothing_drawn() -> Spans:
    return Spans("schedule", "Schedule", 0, 0, (), ())


def _check(mesh: Mapping[str, int] | None, stages: int) -> None:
    stated = stages if mesh is None else mesh.get("pp", 1)
    if stated < stages:
        raise UsageError(f"the mesh has {pluralise(stated, 'stage')}, but passes of {stages:,} stages are recorded")


def _notes(made: Grid, found: _Bubble) -> Iterator[str]:
    if made.left_out:
        yield f"{pluralise(made.left_out, 'pipeline step')} left out: incomplete, or the slow first step."
    if found.parts["warm_up"] is None:
        yield "The clocks of the stages are not aligned, so warm-up, steady state and drain are unknown and not drawn."
    if (found.between or 0) > SMALL:
        yield f"Pipelines of a step differ: on average they end {format_share(found.between or 0)} before the slowest."


def _warm(made: Grid) -> tuple[Grid, tuple[str, ...]]:
    """Leave out the first step if it took much longer than the others."""
    steps, own = np.unique(made.step), _spans(made)
    spans = np.array([own[made.step == step].mean() for step in steps])
    if steps.size < 2 or spans[0] <= WARMING * np.median(spans[1:]):
        return made, ()
    times = spans[0] / np.median(spans[1:])
    return made.where(made.step != steps[0]), (
        f"Step {steps[0]} is left out: it takes {times:.1f} times as long as the others.",
    )


def _spans(made: Grid) -> Times:
    """Return the length of each replica: over all stages on a common clock, otherwise that of its longest stage."""
    axes = (1, 2, 3, 4) if on_one_clock(made) else (2, 3, 4)
    spans: Times = made.stop.max(axis=axes) - made.start.min(axis=axes)
    return spans if spans.ndim == 1 else spans.max(axis=1)


def _bubble(made: Grid) -> _Bubble:
    spans = _spans(made)
    busy: Times = made.durations.sum(axis=(2, 3, 4)).sum(axis=0) / spans.sum()
    achieved, name = 1 - float(busy.mean()), schedule(made)
    stages = made.stages
    is_plain = name not in ("other", *CUT)
    inherent = (stages - 1) / (made.chunks * made.microbatches + stages - 1) if is_plain else None
    causes = _causes(made, achieved, inherent) if inherent is not None else ()
    return _Bubble(
        achieved=achieved,
        inherent=inherent,
        busy=busy,
        parts=_parts(made, spans),
        causes=causes,
        between=_between(made, spans),
        schedule=name,
    )


def _between(made: Grid, spans: Times) -> float | None:
    """Return how much earlier than the slowest the mean pipeline of a step ends; None if there is one pipeline."""
    if np.unique(made.pipeline).size == 1:
        return None
    slowest = {step: spans[made.step == step].max() for step in np.unique(made.step).tolist()}
    return 1 - float(spans.sum()) / float(sum(slowest[step] for step in made.step.tolist()))


def _parts(made: Grid, spans: Times) -> dict[str, Times | None]:
    """Return the idle time of each stage until its first backward, after its last forward, and between the two."""
    if not on_one_clock(made):
        return dict.fromkeys(_PARTS)
    first, last = made.start.min(axis=(1, 2, 3, 4))[:, None], made.stop.max(axis=(1, 2, 3, 4))[:, None]
    turn = made.start[:, :, :, 1].min(axis=(2, 3))
    ebb = np.maximum(made.stop[:, :, :, 0].max(axis=(2, 3)), turn)
    idle = {
        "warm_up": turn - first - _within(made, first, turn),
        "steady": ebb - turn - _within(made, turn, ebb),
        "drain": last - ebb - _within(made, ebb, last),
    }
    return {name: part.sum(axis=0) / spans.sum() for name, part in idle.items()}


def _within(made: Grid, start: Times, stop: Times) -> Times:
    """Return the time in passes of each replica and stage between two instants."""
    low, high = start[:, :, None, None, None], stop[:, :, None, None, None]
    inside = np.maximum(np.minimum(made.stop, high) - np.maximum(made.start, low), 0)
    total: Times = inside.sum(axis=(2, 3, 4))
    return total


def _causes(made: Grid, achieved: float, inherent: float) -> tuple[_Cause, ...]:
    own = made.durations
    pipelines, which = np.unique(made.pipeline, return_inverse=True)
    each = np.stack([own[made.pipeline == number].mean(axis=(0, 4), keepdims=True)[0] for number in pipelines])
    # What at least half of a stage's ranks take is the stage's own; one slow rank does not make it slow.
    stage = np.sort(each, axis=0)[(len(pipelines) - 1) // 2]
    equal = stage.mean(axis=(0, 1), keepdims=True)
    orders = made.orders()
    levels = [_replay_bubble(orders, np.broadcast_to(taken, own.shape)) for taken in (equal, stage, each[which], own)]
    stages, ranks, microbatches, rest = np.diff([*levels, achieved]).tolist()
    slow, place = divmod(int((each - stage).sum(axis=(2, 3, 4)).argmax()), made.stages)
    causes = (
        _Cause("uneven stages", stages, int(stage.sum(axis=(1, 2, 3)).argmax())),
        _Cause("uneven ranks", ranks, place, int(made.ranks[pipelines[slow], place])),
        _Cause("uneven microbatches", microbatches),
        _Cause("transfers and gaps", rest),
        _Cause("order of passes", levels[0] - inherent),
    )
    return tuple(cause for cause in causes if abs(cause.share) >= _NOTHING)


def _replay_bubble(orders: Orders, durations: Times) -> float:
    """Return the bubble with other durations in the recorded order, or in the usual order if the recorded one waits for
    itself."""
    spans = 0.0
    for alike, order in orders:
        ended = replay(durations[alike], order)
        if ended is None:
            ended = replay(durations[alike], orders[0][1])
        assert ended is not None, "the usual order is one of a known schedule"
        spans += float(ended.max(axis=(1, 2, 3, 4)).sum())
    return 1 - float(durations.sum()) / (spans * float(durations.shape[1]))


def _stage_times(made: Grid) -> Times:
    times: Times = made.durations.sum(axis=(2, 3, 4)).mean(axis=0)
    return times


def _verdict(made: Grid, found: _Bubble) -> str:
    batches = "1 microbatch" if made.microbatches == 1 else f"{made.microbatches:,} microbatches"
    shape = f"{pluralise(made.stages, 'stage')} and {batches}"
    told = f"The pipeline idles {format_share(found.achieved)} of its time"
    if found.schedule in CUT:
        return f"{told}; its schedule is {CUT[found.schedule]} with {shape}, whose inherent bubble is not computed."
    if found.inherent is None:
        return f"{told}; its order of passes matches no known schedule, so the inherent bubble is unknown."
    told = f"{told}; {format_share(found.inherent)} is inherent to {_NAMES[found.schedule]} with {shape}"
    worst = max(found.causes, key=lambda cause: cause.share, default=_Cause("", 0.0))
    if worst.share < SMALL:
        return f"{told}, and nothing else costs more than {SMALL:.0%}."
    if worst.cause == "uneven stages":
        times = _stage_times(made)
        return f"{told}; stage {worst.stage} takes {times[worst.stage] / times.mean():.2f} times the mean stage."
    named = worst.cause if worst.rank is None else f"rank {worst.rank} is slower than the others of stage {worst.stage}"
    return f"{told}; most of the rest: {named} ({format_share(worst.share)})."


def _result(
    verdict: str, made: Grid | None, found: _Bubble | None, notes: tuple[str, ...], named: str | None = None
) -> Result:
    blocks = (_figures(made, found, named), _causes_table(found), _stages(made, found))
    return Result(
        name="pipeline",
        title="Pipeline",
        verdict=verdict,
        blocks=blocks if found else (),
        more=() if found else (*blocks, _nothing_drawn()),
        notes=notes,
    )


def _figures(made: Grid | None, found: _Bubble | None, named: str | None) -> Pairs:
    shares: list[float | None] = [None] * 7
    shape: tuple[Value, ...] = (named, None, None, None)
    if made is not None and found is not None:
        shares = [found.achieved, found.inherent, found.excess, *map(found.part, _PARTS), found.between]
        shape = (found.schedule, made.stages, made.microbatches, made.chunks)
    names = ("achieved", "inherent", "excess", *_PARTS, "between_pipelines")
    figures = [Pair(name, share, "share", name.replace("_", " ")) for name, share in zip(names, shares, strict=True)]
    counts = zip(("schedule", "stages", "microbatches", "chunks"), shape, strict=True)
    return Pairs("bubble", "Bubble", (*figures, *(Pair(name, value) for name, value in counts)))


def _causes_table(found: _Bubble | None) -> Table:
    fields = (Field("cause"), Field("share", "share"), Field("stage"), Field("rank"))
    rows = sorted(found.causes, key=lambda cause: -cause.share) if found else ()
    return Table("causes", "Causes of the excess", fields, tuple(rows))


def _stages(made: Grid | None, found: _Bubble | None) -> Table:
    fields = (
        Field("stage"),
        Field("ranks", "count"),
        Field("forward_ns", "ns", "forward"),
        Field("backward_ns", "ns", "backward"),
        Field("busy", "share"),
        Field("bubble", "share"),
        Field("vs_mean", "rate", "times the mean"),
    )
    rows = []
    if made is not None and found is not None:
        each = made.durations.mean(axis=(0, 2, 4))
        times = _stage_times(made)
        for stage, (forward, backward) in enumerate(each.tolist()):
            ranks = int((made.ranks[np.unique(made.pipeline), stage] >= 0).sum())
            busy = float(found.busy[stage])
            ratio = float(times[stage] / times.mean())
            rows.append((stage, ranks, round(forward), round(backward), busy, 1 - busy, ratio))
    return Table("stages", "By stage", fields, tuple(rows))
