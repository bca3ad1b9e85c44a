"""Passes of whole pipelines in one array, the schedule they follow, and its replay with other durations.

A replica is one pipeline in one step. A stage runs its passes in the recorded order, each as soon as the pass that it
needs has ended: the forward of the previous stage, or the backward of the next stage. Stages of the first chunk come
before those of the second.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from lostflops.account.align.mesh import Mesh
from lostflops.account.align.passes import PipelinePasses, UnknownPasses

Times = npt.NDArray[np.float64]
Orders = list[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]]
_BOTH_WAYS: Final = 2
_SLACK: Final = 0.5
"""Part of a pass by which times of two ranks may contradict each other before their clocks are called unrelated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """Passes of whole pipelines.

    Times have the axes replica, stage, chunk, direction (forward, backward), microbatch.
    """

    start: Times
    stop: Times
    pipeline: npt.NDArray[np.int64]
    """Pipeline of each replica."""
    step: npt.NDArray[np.int64]
    """Step of each replica."""
    ranks: npt.NDArray[np.int64]
    """Rank that ran each stage, by pipeline and stage; -1 for none."""
    left_out: int

    @property
    def stages(self) -> int:
        return int(self.start.shape[1])

    @property
    def chunks(self) -> int:
        return int(self.start.shape[2])

    @property
    def microbatches(self) -> int:
        return int(self.start.shape[4])

    @property
    def durations(self) -> Times:
        return self.stop - self.start

    def where(self, kept: npt.NDArray[np.bool_]) -> Grid:
        left = self.left_out + int((~kept).sum())
        return Grid(
            start=self.start[kept],
            stop=self.stop[kept],
            pipeline=self.pipeline[kept],
            step=self.step[kept],
            ranks=self.ranks,
            left_out=left,
        )

    def orders(self) -> Orders:
        """Return replicas that ran alike, and the order of each stage; the most usual order comes first.

        The order numbers the chunks, directions and microbatches of the stage.
        """
        order = np.argsort(self.start.reshape(*self.start.shape[:2], -1), axis=2, kind="stable")
        # Rows are told apart by a weighted sum: comparing them whole takes minutes for 10,000 ranks.
        weights = np.random.default_rng(0).integers(1, 1 << 62, order[0].size)
        _, first, which = np.unique(order.reshape(order.shape[0], -1) @ weights, return_index=True, return_inverse=True)
        alike = [(np.flatnonzero(which == number), order[row]) for number, row in enumerate(first.tolist())]
        return sorted(alike, key=lambda entry: -entry[0].size)


def grid(found: PipelinePasses, mesh: Mesh) -> Grid:
    """Return whole replicas with the usual number of microbatches; raise `UnknownPasses` if there are none."""
    stages = max(int(found.stage.max()) + 1, dict(mesh.dimensions).get("pp", 1))
    chunks = int(found.chunk.max()) + 1
    # Numbers are as recorded: a false one must not take more memory than the passes themselves.
    if stages * chunks * 2 > found.start.size:
        raise _incomplete(stages)
    pipeline, ranks = _pipelines(found, mesh, stages)
    steps, turn = np.unique(found.step, return_inverse=True)
    keys, replica = np.unique(pipeline * steps.size + turn, return_inverse=True)
    count = np.zeros(keys.size, np.int64)
    np.maximum.at(count, replica, found.microbatch + 1)
    numbers, replicas = np.unique(count, return_counts=True)
    microbatches = int(numbers[replicas.argmax()])
    full = np.flatnonzero(np.bincount(replica, minlength=count.size) == stages * chunks * 2 * microbatches)
    row = np.full(count.size, -1, np.int64)
    row[full] = np.arange(full.size)
    shape = (full.size, stages, chunks, 2, microbatches)
    held = (found.microbatch < microbatches) & (row[replica] >= 0)
    axes = row[replica], found.stage, found.chunk, found.backward.astype(np.int64), found.microbatch
    slot = tuple(axis[held] for axis in axes)
    start, stop = np.full(shape, np.nan), np.full(shape, np.nan)
    origin = found.start.min()
    start[slot], stop[slot] = found.start[held] - origin, found.stop[held] - origin
    whole = ~np.isnan(start).any(axis=(1, 2, 3, 4))
    if stages < 2 or not whole.any():
        raise _incomplete(stages)
    which, turn = np.divmod(keys[full[whole]], steps.size)
    return Grid(
        start=start[whole],
        stop=stop[whole],
        pipeline=which,
        step=steps[turn],
        ranks=ranks,
        left_out=keys.size - int(whole.sum()),
    )


def _incomplete(stages: int) -> UnknownPasses:
    return UnknownPasses(
        f"no step has forward and backward of every microbatch on all {stages:,} stages: ingest every stage's rank"
    )


def _pipelines(found: PipelinePasses, mesh: Mesh, stages: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the pipeline of each pass, and ranks by pipeline and stage, -1 for none.

    Ranks of a pipeline differ in their stage alone. Without a mesh the n-th ranks of all stages form the n-th pipeline.
    """
    rank, at = np.unique(found.rank, return_index=True)
    stage = found.stage[at]
    kinds = [kind for kind, _ in mesh.dimensions]
    if "pp" in kinds:
        places = mesh.places_of(rank)
        others = np.delete(places, kinds.index("pp"), axis=1)
        _, number = np.unique(others, axis=0, return_inverse=True)
        number = number.ravel()
    else:
        order = np.lexsort((rank, stage))
        number = np.empty(rank.size, np.int64)
        number[order] = np.arange(rank.size) - np.searchsorted(stage[order], stage[order])
    ranks = np.full((int(number.max()) + 1, stages), -1, np.int64)
    ranks[number, stage] = rank
    return number[np.searchsorted(rank, found.rank)], ranks


def schedule(made: Grid) -> str:
    """Return `gpipe`, `1f1b`, `interleaved` or `dualpipe`, or `other` for any other order of passes."""
    alike, order = made.orders()[0]
    if _runs_both_ways(made):
        return "dualpipe"
    if replay(made.durations[alike[:1]], order) is None:
        return "other"
    batches = made.microbatches
    backward = order // batches % 2 == 1
    if made.chunks > 1:
        return "interleaved"
    if batches > 1 and (backward == (np.arange(2 * batches) >= batches)).all():
        return "gpipe"
    alternate = np.arange(2 * batches) % 2 == 1
    return "1f1b" if (backward[-1] == alternate).all() else "other"


def _runs_both_ways(made: Grid) -> bool:
    """Return whether forward passes of the second of two chunks go from the last stage to the first, and the last stage
    begins them before any of the first chunk has arrived: in a V-shaped schedule they follow from the first chunk."""
    if made.chunks != _BOTH_WAYS or made.stages < _BOTH_WAYS:
        return False
    allowed = _SLACK * float(np.median(made.durations))
    back = made.start[:, :-1, 1, 0] - made.stop[:, 1:, 1, 0]
    early = made.start[:, -1, 1, 0].min(axis=1) - made.stop[:, -1, 0, 0].min(axis=1)
    return bool(back.min() >= -allowed and early.max() < 0)


def replay(durations: Times, order: npt.NDArray[np.int64]) -> Times | None:
    """Return when each pass would end; None if the order waits for itself.

    >>> one_stage = np.array([[[[[2.0], [3.0]]]]])
    >>> replay(one_stage, np.array([[0, 1]])).ravel().tolist()
    [2.0, 5.0]
    """
    count, stages, chunks, _, batches = durations.shape
    flat = durations.reshape(count, stages, -1)
    stop = np.full(flat.shape, np.nan)
    ready = np.zeros((count, stages))
    position = [0] * stages
    slots = order.shape[1]
    progress = True
    while progress:
        progress = False
        for stage in range(stages):
            while position[stage] < slots:
                slot = int(order[stage, position[stage]])
                needed = _find_dependency(stage, slot, stages, chunks, batches)
                after = ready[:, stage]
                if needed is not None:
                    ended = stop[:, needed[0], needed[1]]
                    if np.isnan(ended).any():
                        break
                    after = np.maximum(after, ended)
                stop[:, stage, slot] = ready[:, stage] = after + flat[:, stage, slot]
                position[stage] += 1
                progress = True
    return None if np.isnan(stop).any() else stop.reshape(durations.shape)


def _find_dependency(stage: int, slot: int, stages: int, chunks: int, batches: int) -> tuple[int, int] | None:
    """Return stage and slot of the pass that must have ended first.

    The last backward needs its forward, the first forward none.
    """
    chunk, rest = divmod(slot, 2 * batches)
    backward, batch = divmod(rest, batches)
    place = chunk * stages + stage + (1 if backward else -1)
    if place < 0:
        return None
    if place == stages * chunks:
        return stage, slot - batches
    chunk, stage = divmod(place, stages)
    return stage, (chunk * 2 + backward) * batches + batch


def on_one_clock(made: Grid) -> bool:
    """Return whether times of stages can be compared: no pass begins well before the one that it needs has ended."""
    allowed = _SLACK * float(np.median(made.durations))
    start, stop = made.start, made.stop
    if _runs_both_ways(made):
        start, stop = (np.stack((times[:, :, 0], times[:, ::-1, 1]), axis=2) for times in (start, stop))
    forward = start[:, 1:, :, 0] - stop[:, :-1, :, 0]
    backward = start[:, :-1, :, 1] - stop[:, 1:, :, 1]
    return bool(min(forward.min(), backward.min()) >= -allowed)
