"""Order of the microbatch passes on a pipeline stage: 1F1B, GPipe, Megatron's interleaved 1F1B, and ZB-H1.

ZB-H1 ("Zero Bubble Pipeline Parallelism", ICLR 2024) cuts a backward pass in two: gradients of inputs, for which the
stage before waits, and gradients of weights, which fill pauses. It keeps as many activations as 1F1B.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import chain
from typing import Final, NamedTuple

ZERO_BUBBLE: Final = "zero_bubble"
SCHEDULES: Final = ("1f1b", "gpipe", "interleaved", ZERO_BUBBLE)


class PipelinePass(NamedTuple):
    backward: int
    chunk: int
    microbatch: int
    of_weights: int = 0
    """Whether only gradients of weights are computed, in a backward pass that is cut in two."""


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
    if schedule == ZERO_BUBBLE:
        return list(_zero_bubble(shape)[stage])
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


@cache
def _zero_bubble(shape: PipelineShape) -> list[list[PipelinePass]]:
    """Return the order of all stages if all passes were equally long: whenever 1F1B would pause, or keep more
    activations than the first stage of 1F1B, gradients of weights are computed.

    >>> "".join("FBW"[one.backward + one.of_weights] for one in _zero_bubble(PipelineShape(2, 1, 3))[1])
    'FBFBWFBWW'
    """
    stages = range(shape.stages)
    left = [deque(order("1f1b", stage, shape)) for stage in stages]
    held: list[deque[PipelinePass]] = [deque() for _ in stages]
    kept, made = [0 for _ in stages], [list[PipelinePass]() for _ in stages]
    done: dict[tuple[int, int, int], int] = {}
    time = 0
    while any(left) or any(held):
        started = []
        for stage in stages:
            first = left[stage][0] if left[stage] else None
            is_full = first is not None and not first.backward and kept[stage] >= shape.stages
            if first is not None and not is_full and _is_ready(first, stage, shape, done, time):
                left[stage].popleft()
                kept[stage] += not first.backward
                started.append((stage, first))
                if first.backward:
                    held[stage].append(first._replace(of_weights=1))
            elif held[stage]:
                kept[stage] -= 1
                started.append((stage, held[stage].popleft()))
        if not started:
            raise ValueError(f"no stage of {shape} can go on: ZB-H1 has one chunk per stage")
        time += 1
        for stage, one in started:
            made[stage].append(one)
            if not one.of_weights:
                done[one.backward, stage, one.microbatch] = time
    return made


def _is_ready(
    one: PipelinePass, stage: int, shape: PipelineShape, done: Mapping[tuple[int, int, int], int], time: int
) -> bool:
    if one.backward:
        before = (1, stage + 1, one.microbatch) if stage + 1 < shape.stages else (0, stage, one.microbatch)
    elif stage:
        before = (0, stage - 1, one.microbatch)
    else:
        return True
    return done.get(before, time + 1) <= time


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
