"""Order of the microbatch passes on a pipeline rank: 1F1B, GPipe, Megatron's interleaved 1F1B, ZB-H1, and DualPipe.

ZB-H1 ("Zero Bubble Pipeline Parallelism", ICLR 2024) cuts a backward pass in two: gradients of inputs, for which the
stage before waits, and gradients of weights, which fill pauses. It keeps as many activations as 1F1B.

DualPipe (DeepSeek-V3 Technical Report, 2024; order of github.com/deepseek-ai/DualPipe) feeds half of the microbatches
in at the first rank and half at the last one. Chunk 0 of rank r is stage r, for those from the first rank; chunk 1 is
stage p - 1 - r, for those from the last rank.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from enum import IntEnum
from functools import cache
from itertools import chain
from typing import Final, NamedTuple

ZERO_BUBBLE: Final = "zero_bubble"
DUALPIPE: Final = "dualpipe"
SCHEDULES: Final = ("1f1b", "gpipe", "interleaved", ZERO_BUBBLE, DUALPIPE)


class Gradients(IntEnum):
    """Gradients that a backward pass computes."""

    ALL = 0
    OF_INPUTS = 1
    OF_WEIGHTS = 2


class PipelinePass(NamedTuple):
    backward: int
    chunk: int
    microbatch: int
    gradients: int = Gradients.ALL
    """One of `Gradients`; `ALL` for a forward pass."""
    joined: int = 0
    """Whether the next pass runs together with this one: they begin when both have their inputs, and the results of
    both are sent when both are done."""


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
    if schedule == DUALPIPE:
        return _DualPipeRank(stage, shape).order()
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

    >>> "".join("FBBW"[one.backward + one.gradients] for one in _zero_bubble(PipelineShape(2, 1, 3))[1])
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
                halved = first._replace(gradients=Gradients.OF_INPUTS) if first.backward else first
                started.append((stage, halved))
                if first.backward:
                    held[stage].append(first._replace(gradients=Gradients.OF_WEIGHTS))
            elif held[stage]:
                kept[stage] -= 1
                started.append((stage, held[stage].popleft()))
        if not started:
            raise ValueError(f"no stage of {shape} can go on: ZB-H1 has one chunk per stage")
        time += 1
        for stage, one in started:
            made[stage].append(one)
            if one.gradients != Gradients.OF_WEIGHTS:
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


class _DualPipeRank:
    """Order of a rank in DualPipe. `near` and `far` are its chunks: microbatches of the near chunk come from the end of
    the pipeline that is closer to this rank."""

    def __init__(self, rank: int, shape: PipelineShape) -> None:
        half = shape.stages // 2
        self._near = int(rank >= half)
        self._far = 1 - self._near
        self._to_end = min(rank, shape.stages - 1 - rank)
        self._to_middle = half - 1 - self._to_end
        self._pairs = shape.microbatches // 2 - shape.stages + self._to_end + 1
        # Microbatches of chunk 1 have the higher numbers.
        self._next = {(backward, chunk): chunk * (shape.microbatches // 2) for backward in (0, 1) for chunk in (0, 1)}
        self._held: deque[PipelinePass] = deque()
        self._made: list[PipelinePass] = []

    def order(self) -> list[PipelinePass]:
        self._fill()
        self._alternate()
        self._drain()
        return self._made

    def _fill(self) -> None:
        near, far = self._near, self._far
        for _ in range(2 * self._to_middle):
            self._forward(near)
        for _ in range(self._to_end + 1):
            self._forward(near)
            self._forward(far)
        for _ in range(self._to_middle):
            self._backward(far, Gradients.OF_INPUTS)
            self._weights()
            self._forward(far)

    def _alternate(self) -> None:
        near, far = self._near, self._far
        for number in range(self._pairs):
            # The two ranks in the middle run their first pair one after the other.
            self._forward(near, joined=number > 0 or self._to_middle > 0)
            self._backward(far)
            self._forward(far, joined=True)
            self._backward(near)
        for _ in range(self._to_middle):
            self._backward(far)
            self._forward(far, joined=True)
            self._backward(near)

    def _drain(self) -> None:
        count = 2 * (self._to_end + 1)
        for number in range(count):
            is_cut = number > self._to_end
            self._backward((self._far, self._near)[number % 2], Gradients.OF_INPUTS if is_cut else Gradients.ALL)
        for _ in range(self._to_middle):
            self._weights()
            self._backward(self._near, Gradients.OF_INPUTS)
        while self._held:
            self._weights()

    def _forward(self, chunk: int, *, joined: bool = False) -> None:
        self._made.append(PipelinePass(0, chunk, self._take(0, chunk), Gradients.ALL, int(joined)))

    def _backward(self, chunk: int, gradients: Gradients = Gradients.ALL) -> None:
        made = PipelinePass(1, chunk, self._take(1, chunk), gradients)
        self._made.append(made)
        if gradients == Gradients.OF_INPUTS:
            self._held.append(made._replace(gradients=Gradients.OF_WEIGHTS))

    def _weights(self) -> None:
        self._made.append(self._held.popleft())

    def _take(self, backward: int, chunk: int) -> int:
        number = self._next[backward, chunk]
        self._next[backward, chunk] += 1
        return number


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
