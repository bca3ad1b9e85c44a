"""The passes of a pipeline in a graph: which rank runs which, in which order, and how long each takes."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from lostflops.account.align.passes import ordinal
from lostflops.account.ledger.phases import BACKWARD, FORWARD
from lostflops.core.errors import NotApplicable
from lostflops.predict.graph.tasks import NONE, Flags, Index, Ns, TaskGraph, TaskKind
from lostflops.predict.whatif.graph_edits.orders import PipelinePass, PipelineShape, identify_schedule

Codes = npt.NDArray[np.int64]
_PLACE: Final = re.compile(r"stage (\d+) chunk (\d+)")
_MOST: Final = 0.5
_FEWEST_STAGES: Final = 4
"""With at least this many stages, two inner ones show how long a stage without embedding and output layer is."""
WEIGHTS: Final = "weights-compute"
"""Name of passes that compute gradients of weights only."""
_ENDS: Final = ("forward-send", "forward-recv", "backward-send", "backward-recv")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """The passes of a pipeline, with their order and times."""

    shape: PipelineShape
    schedule: str | None
    ranks: Codes
    """Ranks by replica and stage."""
    steps: Codes
    """Numbers of the steps."""
    time: npt.NDArray[np.float64]
    """Time of each pass; axes are replica, step, stage, chunk, direction, microbatch."""
    passes: Flags
    """Flags the tasks that are passes."""
    transfers: Flags
    """Flags the tasks that are transfers."""
    transfer: tuple[int, int]
    """Median transfer in each direction."""
    pause: npt.NDArray[np.float64]
    """Pause of a stage between two consecutive passes, by replica and stage."""
    ahead: bool = False
    """Whether receives are issued ahead of time, not only after the previous pass."""
    fixed: float = 0.0
    """Part of the passes that is known not to be kernels."""


def has_passes(graph: TaskGraph) -> bool:
    return any(_PLACE.fullmatch(word) for word in graph.words)


def pipeline(graph: TaskGraph) -> Pipeline:
    """Read the pipeline from the graph. Raise `NotApplicable` if the graph has no pipeline with recognised passes."""
    weights = graph.word(WEIGHTS)
    if weights != NONE and (graph.tasks.name == weights).any():
        raise NotApplicable("the schedule cuts backward passes in two, so its passes cannot be rearranged")
    places = {code: place for code, word in enumerate(graph.words) if (place := _PLACE.fullmatch(word))}
    tasks = graph.tasks
    passes = np.isin(tasks.layer, list(places)) & (tasks.kind == TaskKind.KERNEL)
    rows = np.flatnonzero(passes & np.isin(tasks.phase, (FORWARD, BACKWARD)))
    if not rows.size:
        raise NotApplicable(
            "no microbatch passes are recognised in this run: record op traces or the pipeline schedule"
        )
    of_word = np.full((len(graph.words), 2), -1, np.int64)
    for code, place in places.items():
        of_word[code] = int(place[1]), int(place[2])
    stage, chunk = of_word[tasks.layer[rows]].T
    rank, step = graph.rank[rows], tasks.step[rows]
    backward = (tasks.phase[rows] == BACKWARD).astype(np.int64)
    ranks = _replicas(rank, stage)
    steps, turn = np.unique(step.astype(np.int64), return_inverse=True)
    replica = np.empty(rows.size, np.int64)
    for number, own in enumerate(ranks):
        replica[np.isin(rank, own)] = number
    axes = (replica, turn, stage, chunk, backward)
    sizes = tuple(int(axis.max()) + 1 for axis in axes)
    # Stages and chunks are numbered as recorded: a false number must not take more memory than the passes themselves.
    has_gaps = math.prod(sizes) > rows.size
    key = np.ravel_multi_index(axes, sizes) if not has_gaps else np.zeros(0, np.int64)
    counts = np.bincount(key)
    if has_gaps or sizes[4] < 2 or counts.size < math.prod(sizes) or counts.min() != counts.max():
        raise NotApplicable(
            "steps or stages have different numbers of passes, so there is no single schedule to change"
        )
    batch = ordinal(key)
    time = np.zeros((*sizes, int(counts.max())))
    time[(*axes, batch)] = tasks.duration[rows]
    shape = PipelineShape(sizes[2], sizes[3], int(counts.max()))
    if shape.stages < 2:
        raise NotApplicable("the run has only one stage, so it is not a pipeline")
    first = (replica == 0) & (turn == 0)
    recorded = [
        [
            PipelinePass(*one)
            for one in zip(*(a[first & (stage == s)].tolist() for a in (backward, chunk, batch)), strict=True)
        ]
        for s in range(shape.stages)
    ]
    ends = [graph.word(name) for name in _ENDS]
    transfers = np.isin(tasks.name, [end for end in ends if end >= 0]) & (tasks.meeting >= 0)
    medians = tuple(_median(graph, transfers & np.isin(tasks.name, ends[i : i + 2])) for i in (0, 2))
    schedule = identify_schedule(recorded, shape)
    pause = _pauses(graph, rows, ranks)
    ahead = _ahead(graph, passes, transfers & np.isin(tasks.name, ends[1::2]))
    return Pipeline(
        shape=shape,
        schedule=schedule,
        ranks=ranks,
        steps=steps,
        time=time,
        passes=passes,
        transfers=transfers,
        transfer=(medians[0], medians[1]),
        pause=pause,
        ahead=ahead,
    )


def _ahead(graph: TaskGraph, passes: Flags, receives: Flags) -> bool:
    """Return whether receives do not wait for anything that their stage computes."""
    held = np.isin(graph.tasks.lane, np.unique(graph.tasks.lane[passes]))
    held[graph.edges.dst] = True
    return bool(receives.any()) and not held[receives].mean() > _MOST


def _replicas(rank: Index, stage: Codes) -> Codes:
    """Return the ranks by replica and stage: the n-th ranks of all stages are the n-th pipeline."""
    own, at = np.unique(rank, return_index=True)
    by_stage = [own[stage[at] == number] for number in range(int(stage.max()) + 1)]
    if len({len(ranks) for ranks in by_stage}) != 1:
        raise NotApplicable("stages were recorded by different numbers of ranks: ingest the files of all stages")
    return np.array(by_stage, np.int64).T


def _median(graph: TaskGraph, rows: Flags) -> int:
    """Return the median of the transfers that both ends attended."""
    own = np.unique(graph.tasks.meeting[rows])
    own = own[graph.meetings.whole[own]]
    return round(float(np.median(graph.meetings.transfer[own]))) if own.size else 0


def _pauses(graph: TaskGraph, rows: Ns, ranks: Codes) -> npt.NDArray[np.float64]:
    """Return the median recorded gap after passes that another one follows, by replica and stage."""
    inner = rows[:-1][np.diff(graph.tasks.step[rows]) == 0]
    gap, rank = np.maximum(graph.tasks.gap[inner], 0), graph.rank[inner]
    return np.array([[np.median(gap[rank == own]) for own in replica] for replica in ranks.tolist()])


def cut_stages(time: npt.NDArray[np.float64], chunks: int) -> npt.NDArray[np.float64]:
    """Return the times of passes with stages cut into `chunks` chunks of equal layers.

    The embedding is part of the first chunk, output layer and loss are part of the last one. The extra time of the
    first and the last stage compared with all inner stages counts as theirs, and is not cut.
    """
    parts = resplit_times(time, chunks, 3)
    stages = time.shape[2]
    if time.shape[3] != 1 or chunks == 1 or stages < _FEWEST_STAGES:
        return parts
    usual = np.median(time, axis=(0, 1, 3, 5))
    inner = usual[1:-1]
    for stage, chunk in ((0, 0), (stages - 1, chunks - 1)):
        extra = np.where(usual[stage] > inner.max(axis=0), usual[stage] - np.median(inner, axis=0), 0.0)
        kept = np.minimum(extra[:, np.newaxis], time[:, :, stage, 0])
        parts[:, :, stage] -= kept[:, :, np.newaxis] / chunks
        parts[:, :, stage, chunk] += kept
    return parts


def mirror_stages(time: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the times of passes if each rank holds its own stage and, as a second chunk, the stage that is as far from
    the other end of the pipeline.

    >>> mirror_stages(np.array([1.0, 2.0, 3.0]).reshape(1, 1, 3, 1, 1, 1))[0, 0, :, :, 0, 0].tolist()
    [[1.0, 3.0], [2.0, 2.0], [3.0, 1.0]]
    """
    whole = resplit_times(time, 1, 3)
    return np.concatenate((whole, whole[:, :, ::-1]), axis=3)


def resplit_times(time: npt.NDArray[np.float64], count: int, axis: int) -> npt.NDArray[np.float64]:
    """Split the same work into another number of equal parts.

    >>> resplit_times(np.array([4.0, 8.0]), 4, 0).tolist(), resplit_times(np.array([4.0, 8.0]), 1, 0).tolist()
    ([2.0, 2.0, 4.0, 4.0], [12.0])
    """
    values = np.moveaxis(time, axis, -1)
    done = np.concatenate((np.zeros((*values.shape[:-1], 1)), np.cumsum(values, axis=-1)), axis=-1)
    edges = np.arange(count + 1) * values.shape[-1] / count
    whole = np.minimum(edges.astype(np.int64), values.shape[-1] - 1)
    at = done[..., whole] + values[..., whole] * (edges - whole)
    return np.moveaxis(np.diff(at, axis=-1), -1, axis)
