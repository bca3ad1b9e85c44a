"""The schedule of a pipeline as a picture: the passes of each stage, and the bubbles between them.

Whole pipelines are drawn, those of the first step before those of the second, as many as `MOST_PASSES` allows. A bubble
is time between the first and the last pass of a pipeline, on any stage, in which a stage runs no pass.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt

from lostflops.account.align.schedule import Grid
from lostflops.core.pictures import Span, Spans
from lostflops.core.units import pluralise

MOST_PASSES: Final = 4000
MOST_STEPS: Final = 2
BUBBLE: Final = "idle.bubble"
_DIRECTIONS: Final = ("forward", "backward")

Codes = npt.NDArray[np.int64]


def draw_schedule(made: Grid, origin: int) -> Spans:
    """Draw the schedule; `origin` is the instant that times of the grid are counted from.

    The stages of the grid must share a clock.
    """
    kept = _choose_replicas(made)
    low = made.start[kept].min()
    start, stop = np.rint(made.start[kept] - low), np.rint(made.stop[kept] - low)
    rows = [(pipeline, stage) for pipeline in np.unique(made.pipeline[kept]).tolist() for stage in range(made.stages)]
    place = {row: number for number, row in enumerate(rows)}
    items: list[Span] = []
    for number, replica in enumerate(kept.tolist()):
        first, last = int(start[number].min()), int(stop[number].max())
        for stage in range(made.stages):
            row = place[int(made.pipeline[replica]), stage]
            own = _StageSpan(row, int(made.step[replica]), first, last)
            items += _stage(own, start[number, stage].astype(np.int64), stop[number, stage].astype(np.int64))
    steps = np.unique(made.step[kept])
    return Spans(
        name="schedule",
        title=_title(steps.tolist(), made, kept),
        start=origin + round(float(low)),
        stop=origin + round(float(low)) + int(stop.max()),
        rows=tuple(f"stage {stage}, rank {made.ranks[pipeline, stage]}" for pipeline, stage in rows),
        items=tuple(sorted(items, key=lambda span: (span.row, span.start))),
        left_out=made.durations[0].size * (made.start.shape[0] - kept.size),
    )


def _choose_replicas(made: Grid) -> Codes:
    """Return the replicas to draw, in the order of steps and pipelines."""
    order = np.lexsort((made.pipeline, made.step))
    early = order[np.isin(made.step[order], np.unique(made.step)[:MOST_STEPS])]
    return early[: max(MOST_PASSES // made.durations[0].size, 1)]


def _title(steps: list[int], made: Grid, kept: Codes) -> str:
    span = f"step {steps[0]}" if len(steps) == 1 else f"steps {steps[0]} and {steps[1]}"
    shown, known = np.unique(made.pipeline[kept]).size, np.unique(made.pipeline).size
    of = f"{shown:,} of {pluralise(known, 'pipeline')}" if shown < known else pluralise(known, "pipeline")
    return f"Schedule of {span} ({of})"


class _StageSpan:
    """A stage in one step of its pipeline; the step lasts from `first` to `last`."""

    def __init__(self, row: int, step: int, first: int, last: int) -> None:
        self._row, self._step, self._first, self._last = row, step, first, last

    def make_span(self, start: int, stop: int, direction: str, name: str, microbatch: int) -> Span:
        said = (("step", str(self._step)), ("microbatch", str(microbatch)))
        return Span(self._row, start, stop, direction, name, said)

    def bubbles(self, edges: list[tuple[int, int]], turn: int, ebb: int) -> Iterator[Span]:
        """Yield bubbles between passes in order of time.

        `turn` is the first backward's start, `ebb` the last forward's stop.
        """
        free = self._first
        for start, stop in (*edges, (self._last, self._last)):
            if start > free:
                when = "warm-up" if start <= turn else "drain" if free >= ebb else "steady state"
                yield Span(self._row, free, start, BUBBLE, "bubble", (("step", str(self._step)), ("in", when)))
            free = max(free, stop)


def _stage(own: _StageSpan, start: Codes, stop: Codes) -> Iterator[Span]:
    """Yield the passes and bubbles of a stage; axes are chunk, direction and microbatch."""
    chunks = start.shape[0]
    places = [tuple(place) for place in np.argwhere(np.ones(start.shape, np.bool_)).tolist()]
    for chunk, backward, microbatch in places:
        direction = _DIRECTIONS[backward]
        name = f"{direction} {microbatch}" + (f", chunk {chunk}" if chunks > 1 else "")
        at = chunk, backward, microbatch
        yield own.make_span(int(start[at]), int(stop[at]), direction, name, microbatch)
    edges = sorted(zip(start.ravel().tolist(), stop.ravel().tolist(), strict=True))
    yield from own.bubbles(edges, int(start[:, 1].min()), int(stop[:, 0].max()))
