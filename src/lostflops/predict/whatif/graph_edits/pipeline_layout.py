"""A rearranged pipeline: the same passes in another order, or cut into other microbatches and chunks.

Passes and their transfers are taken out of the graph and put in again. What a step does before its first pass and after
its last one stays, and so does what waits for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from lostflops.account.facts.kernel_classes import CLASSES
from lostflops.account.ledger.lines import LINES
from lostflops.account.ledger.phases import BACKWARD, FORWARD
from lostflops.core.errors import NotApplicable
from lostflops.predict.graph.editing import with_lanes, with_meetings, with_words
from lostflops.predict.graph.replay import replay
from lostflops.predict.graph.tasks import (
    NONE,
    Because,
    Edges,
    Index,
    LaneKind,
    MeasuredTimes,
    Ns,
    TaskGraph,
    TaskKind,
    TaskMeetings,
    Tasks,
)
from lostflops.predict.whatif.graph_edits.device_passes import reduce_to_passes
from lostflops.predict.whatif.graph_edits.orders import (
    DUALPIPE,
    Gradients,
    PipelinePass,
    PipelineShape,
    order,
)
from lostflops.predict.whatif.graph_edits.pipeline import (
    WEIGHTS,
    Pipeline,
    cut_stages,
    has_passes,
    mirror_stages,
    pipeline,
    resplit_times,
)
from lostflops.predict.whatif.graph_edits.places import PassPlaces, Rows

_NAMES: Final = (
    "forward-compute",
    "backward-compute",
    "forward-recv",
    "backward-recv",
    "forward-send",
    "backward-send",
    WEIGHTS,
)
_PASS, _RECV, _SEND, _WEIGHTS = 0, 2, 4, 6
_PASSES: Final = (_PASS, _PASS + 1, _WEIGHTS)
_ALLOWED: Final = 0.03
_OF_INPUTS: Final = 0.5
"""Part of a backward pass that computes gradients of inputs: as many FLOPs of matrix products as those of weights."""


def laid_out(graph: TaskGraph) -> tuple[TaskGraph, Pipeline]:
    """Return the graph in which the pipeline can be rearranged, and the pipeline; for a traced pipeline, this is the
    graph of its passes. Raise `NotApplicable` if there is no pipeline, or if its passes do not add up to its steps."""
    if has_passes(graph):
        return graph, pipeline(graph)
    base, transfer, fixed = reduce_to_passes(graph)
    made = replace(pipeline(base), transfer=(transfer, transfer), ahead=True, fixed=fixed)
    if made.schedule is None:
        raise NotApplicable("the schedule is not 1F1B, GPipe or interleaved")
    again = replay(relaid(base, made, made.schedule, made.shape)).mean_step / replay(graph).mean_step - 1
    if abs(again) > _ALLOWED:
        raise NotApplicable(f"inconclusive: replaying only the passes of the run misses its step by {again:+.1%}")
    return base, made


def relaid(graph: TaskGraph, made: Pipeline, schedule: str, shape: PipelineShape) -> TaskGraph:
    """Return the graph with its pipeline in this schedule and shape; transfers and pauses keep their times."""
    time = resplit_times(made.time, shape.microbatches, 5)
    time = mirror_stages(time) if schedule == DUALPIPE else cut_stages(time, shape.chunks)
    parts = [
        _tile_stage_rows(_stage(schedule, stage, shape, ahead=made.ahead), stage, made, time)
        for stage in range(shape.stages)
    ]
    new = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    begins = np.cumsum([0, *(part["lane"].size for part in parts[:-1])])
    for name in ("source", "target"):
        new[name] += np.where(new[name] >= 0, np.repeat(begins, [part["lane"].size for part in parts]), 0)
    lanes = [_compute_lanes(graph, made)]
    for name in _lane_names(schedule, ahead=made.ahead):
        graph, own = with_lanes(graph, made.ranks.ravel(), LaneKind.STREAM, name)
        lanes.append(own.reshape(made.ranks.shape))
    new["computes"] = new["lane"] == 0
    new["lane"] = np.stack(lanes)[new["lane"], new["replica"], new["stage"]]
    kept = np.flatnonzero(~(made.passes | made.transfers))
    places = PassPlaces(graph, made, kept, new)
    graph, meeting = _with_transfers(graph, made, kept, new)
    tasks, graph = _tasks(graph, new, places)
    together = {
        field.name: (getattr(graph.tasks, field.name)[kept], getattr(tasks, field.name)) for field in fields(Tasks)
    }
    columns = {name: np.concatenate(pair)[places.order] for name, pair in together.items()}
    columns["meeting"] = meeting[places.order]
    never = np.full(len(tasks), NONE, np.int64)
    measured = (
        np.concatenate((times[kept], never))[places.order] for times in (graph.measured.start, graph.measured.stop)
    )
    steps = graph.steps
    changed = replace(
        graph,
        tasks=Tasks(**columns),
        edges=_edges(graph.edges, new, places),
        steps=replace(steps, first=places.find_begin(steps.first), last=places.find_end(steps.last)),
        measured=MeasuredTimes(*measured),
    )
    changed.self_check()
    return changed


def _compute_lanes(graph: TaskGraph, made: Pipeline) -> Index:
    rows = np.flatnonzero(made.passes)
    of_rank = dict(zip(graph.rank[rows].tolist(), graph.tasks.lane[rows].tolist(), strict=True))
    return np.array([[of_rank[rank] for rank in own] for own in made.ranks.tolist()], np.int32)


def _lane_names(schedule: str, *, ahead: bool) -> list[str]:
    """Return the lanes of a rank besides the one that computes. Transfers of DualPipe's two directions do not wait for
    each other."""
    ways = ("", " from the last rank") if schedule == DUALPIPE else ("",)
    ends = (*_NAMES[_SEND:_WEIGHTS], *(_NAMES[_RECV:_SEND] if ahead else ()))
    return [name + way for way in ways for name in ends]


def _stage(schedule: str, stage: int, shape: PipelineShape, *, ahead: bool) -> Rows:
    """Return the rows of what a stage does in a step: on which of its lanes, what, in which meeting, for a send the row
    that made its data, and for a receive that is issued ahead the row that needs its data. Receives that are issued
    ahead have their own lanes. Meetings are numbered by the pass that receives."""
    rows: list[tuple[float, ...]] = []
    for group in _groups(order(schedule, stage, shape)):
        ends = [_Ends(schedule, made, stage, shape, ahead=ahead) for made in group]
        receives = [end for end in ends if end.receives]
        first = len(rows) + len(receives)
        target = first if ahead else NONE
        rows += [end.row(end.receiving_lane, _RECV + end.made.backward, end.key, NONE, target) for end in receives]
        rows += [end.row(0, end.what, NONE, NONE, NONE) for end in ends]
        last = len(rows) - 1
        rows += [
            end.row(end.sending_lane, _SEND + end.made.backward, end.next_key, last, NONE) for end in ends if end.sends
        ]
    names = ("lane", "what", "backward", "chunk", "microbatch", "part", "key", "source", "target")
    return {
        name: np.array(column, np.float64 if name == "part" else np.int64)
        for name, column in zip(names, zip(*rows, strict=True), strict=True)
    }


def _groups(passes: Sequence[PipelinePass]) -> list[list[PipelinePass]]:
    """Return passes in groups of those that run together."""
    groups: list[list[PipelinePass]] = []
    is_open = False
    for made in passes:
        if is_open:
            groups[-1].append(made)
        else:
            groups.append([made])
        is_open = bool(made.joined)
    return groups


class _Ends:
    """A pass, what it receives, and what it sends."""

    def __init__(self, schedule: str, made: PipelinePass, stage: int, shape: PipelineShape, *, ahead: bool) -> None:
        backward, chunk, microbatch, gradients, _ = made
        self.made = made
        turns = schedule == DUALPIPE
        whole = shape.stages * shape.chunks
        place = chunk * shape.stages + (shape.stages - 1 - stage if turns and chunk else stage)
        # DualPipe's chunks are two whole models; those of other schedules are parts of one.
        low, high = (chunk * shape.stages, (chunk + 1) * shape.stages - 1) if turns else (0, whole - 1)
        after = place - 1 if backward else place + 1
        is_of_weights = gradients == Gradients.OF_WEIGHTS
        self.receives = place != (high if backward else low) and not is_of_weights
        self.sends = low <= after <= high and not is_of_weights
        self.key, self.next_key = ((backward * whole + at) * shape.microbatches + microbatch for at in (place, after))
        self.what = _WEIGHTS if is_of_weights else _PASS + backward
        of_direction = (chunk if turns else 0) * (4 if ahead else 2)
        self.sending_lane = 1 + of_direction + backward
        self.receiving_lane = 3 + of_direction + backward if ahead else 0
        parts = {Gradients.OF_INPUTS: _OF_INPUTS, Gradients.OF_WEIGHTS: 1 - _OF_INPUTS}
        self._part = parts.get(Gradients(gradients), 1.0)

    def row(self, lane: int, what: int, key: int, source: int, target: int) -> tuple[float, ...]:
        return (lane, what, *self.made[:3], self._part, key, source, target)


def _tile_stage_rows(own: Rows, stage: int, made: Pipeline, time: npt.NDArray[np.float64]) -> Rows:
    """Repeat the rows of a stage for all pipelines and steps."""
    count, blocks = own["lane"].size, made.ranks.shape[0] * made.steps.size
    result = {name: np.tile(column, blocks) for name, column in own.items()}
    block = np.repeat(np.arange(blocks), count)
    replica, turn = np.divmod(block, made.steps.size)
    result |= {
        "replica": replica,
        "turn": turn,
        "step": made.steps[turn],
        "stage": np.full(block.size, stage),
        "place": np.tile(np.arange(count), blocks),
    }
    for name in ("source", "target"):
        result[name] += np.where(result[name] >= 0, block * count, 0)
    every = 2 * made.time.shape[2] * time.shape[3] * time.shape[5]
    result["key"] = np.where(result["key"] >= 0, result["key"] + block * every, NONE)
    is_pass = np.isin(result["what"], _PASSES)
    at = (replica, turn, result["stage"], result["chunk"], result["backward"], result["microbatch"])
    result["duration"] = np.where(is_pass, np.round(time[at] * result["part"]), 0).astype(np.int64)
    result["gap"] = np.where(is_pass, np.round(made.pause[replica, stage]), 0).astype(np.int64)
    return result


def _with_transfers(graph: TaskGraph, made: Pipeline, kept: Ns, new: Rows) -> tuple[TaskGraph, Index]:
    """Return the graph with the remaining and the new meetings, and the meeting of each task, kept tasks first."""
    graph, (op, group) = with_words(graph, "send", "")
    left, own = np.unique(graph.tasks.meeting[kept], return_inverse=True)
    alone = int(left.size > 0 and left[0] == NONE)
    keys, at = np.unique(new["key"][new["key"] >= 0], return_index=True)
    backward = new["backward"][new["key"] >= 0][at]
    count = keys.size
    more = TaskMeetings(
        np.array(made.transfer, np.int64)[backward],
        np.full(count, NONE, np.int64),
        np.full(count, op, np.int32),
        np.full(count, group, np.int32),
        np.full(count, 2, np.int32),
        np.zeros(count, np.int32),
        np.full(count, NONE, np.int32),
        np.ones(count, np.bool_),
    )
    graph, _ = with_meetings(replace(graph, meetings=graph.meetings.take(left[alone:])), more)
    found = np.searchsorted(keys, new["key"]) + left.size - alone
    of_new = np.where(new["key"] >= 0, found, NONE)
    return graph, np.concatenate((own.ravel() - alone, of_new)).astype(np.int32)


def _tasks(graph: TaskGraph, new: Rows, places: PassPlaces) -> tuple[Tasks, TaskGraph]:
    stages, chunks = int(new["stage"].max()) + 1, int(new["chunk"].max()) + 1
    texts = [f"stage {stage} chunk {chunk}" for stage in range(stages) for chunk in range(chunks)]
    graph, words = with_words(graph, *_NAMES, *texts)
    count, is_pass = new["what"].size, np.isin(new["what"], _PASSES)
    layer = np.array(words[len(_NAMES) :])[new["stage"] * chunks + new["chunk"]]
    line = np.where(is_pass, LINES.index("compute"), LINES.index("comm.transfer"))
    gap = np.where(places.is_last(new), places.last_gap[places.block], new["gap"])
    tasks = Tasks(
        new["lane"].astype(np.int32),
        np.where(is_pass, TaskKind.KERNEL, TaskKind.COMM).astype(np.int8),
        line.astype(np.int8),
        new["duration"],
        gap,
        np.full(count, NONE, np.int32),
        new["step"].astype(np.int32),
        np.where(new["backward"], BACKWARD, FORWARD).astype(np.int8),
        np.full(count, CLASSES.index("other"), np.int8),
        np.array(words[: len(_NAMES)], np.int32)[new["what"]],
        np.where(is_pass, layer, NONE).astype(np.int32),
        np.full(count, NONE, np.int64),
    )
    return tasks, graph


def _edges(old: Edges, new: Rows, places: PassPlaces) -> Edges:
    """Return the edges between kept tasks, and those of new transfers. Tasks that waited for a pass wait for the last
    one; tasks that held back the first pass still do."""
    src, dst = places.old[old.src] >= 0, places.old[old.dst] >= 0
    stays = dst | (src & places.is_first(old.dst))
    left = old.take(stays)
    sent, needed = np.flatnonzero(new["source"] >= 0), np.flatnonzero(new["target"] >= 0)
    more = sent.size + needed.size
    sources = (places.find_end(left.src), places.new[new["source"][sent]], places.new[needed])
    targets = (places.find_begin(left.dst), places.new[sent], places.new[new["target"][needed]])
    return Edges(
        np.concatenate(sources).astype(np.int32),
        np.concatenate(targets).astype(np.int32),
        np.concatenate((left.delay, np.zeros(more, np.int64))),
        np.concatenate((left.after_start, np.zeros(more, np.bool_))),
        np.concatenate((left.because, np.full(more, Because.CHANGE, np.int8))),
    )
