"""Order of the microbatch passes on a pipeline stage: 1F1B, GPipe, and Megatron's interleaved 1F1B."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Final, NamedTuple

SCHEDULES: Final = ("1f1b", "gpipe", "interleaved")


class PipelinePass(NamedTuple):
    backward: int
    chunk: int
    microbatch: int


class PipelineShape(NamedTuple):
    stages: int
    chunks: int
    microbatches: int


def order(schedule: str, stage: int, shape: PipelineShape) -> list[PipelinePass]:
    """Return the passes of a stage in the order in which it runs them.

    >>> "".join("FB"[one.backward] + str(one.microbatch) for one in order("1f1b", 0, PipelineShape(2, 1, 3)))
    'F0F1B0F2B1B2'
    >>> [one.chunk for one in order("interleaved", 1, PipelineShape(2, 2, 2)) if one.backward]
    [1, 1, 0, 0]
    """
    stages, chunks, microbatches = shape
    forward = _turns(shape, backward=0)
    backward = _turns(shape, backward=1)
    ahead = stages - 1 - stage
    if schedule == "gpipe":
        ahead = len(forward)
    elif chunks > 1:
        # As many microbatches as stages go through one chunk after the other; the first of them meets its backward pass
        # on the last chunk of the last stage.
        ahead = len(forward) if microbatches == stages else 2 * ahead + (chunks - 1) * stages
    ahead = min(ahead, len(forward))
    pairs = zip(forward[ahead:], backward, strict=False)
    return [*forward[:ahead], *chain.from_iterable(pairs), *backward[len(forward) - ahead :]]


def _turns(shape: PipelineShape, *, backward: int) -> list[PipelinePass]:
    stages, chunks, microbatches = shape
    at_once = stages if chunks > 1 else microbatches
    return [
        PipelinePass(backward, chunks - 1 - chunk if backward else chunk, microbatch)
        for first in range(0, microbatches, at_once)
        for chunk in range(chunks)
        for microbatch in range(first, min(first + at_once, microbatches))
    ]


def identify_schedule(recorded: Sequence[Sequence[PipelinePass]], shape: PipelineShape) -> str | None:
    """Return the schedule that all stages followed, None if it is not a known one.

    >>> identify_schedule([order("1f1b", stage, PipelineShape(2, 1, 4)) for stage in range(2)], PipelineShape(2, 1, 4))
    '1f1b'
    """
    possible = ("interleaved",) if shape.chunks > 1 else ("1f1b", "gpipe")
    for schedule in possible:
        if all(list(own) == order(schedule, stage, shape) for stage, own in enumerate(recorded)):
            return schedule
    return None
