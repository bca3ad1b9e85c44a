"""What if gradients were accumulated over several microbatches before being reduced?

The forward and backward pass of every step, and the loading of its data, are repeated before the recorded ones. The
reductions of gradients are not repeated. Other collectives are repeated as separate collectives.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from lostflops.account.ledger.phases import BACKWARD, DATA, FORWARD
from lostflops.core.errors import NotApplicable
from lostflops.predict.graph.editing import in_order, insert_tasks, with_edges, with_meetings
from lostflops.predict.graph.tasks import NONE, Because, Edges, Flags, LaneKind, TaskGraph, TaskKind
from lostflops.predict.whatif.change import Change, Edited, Facts, Remembered
from lostflops.predict.whatif.graph_edits.checked_replay import replay_or_refuse
from lostflops.predict.whatif.graph_edits.reductions import members, phases, reductions
from lostflops.predict.whatif.graph_edits.values import count
from lostflops.predict.whatif.memory_edits.gradient_lifetimes import accumulate_gradients

if TYPE_CHECKING:
    from lostflops.account.memory.blocks import RankMemory


_INTERLEAVED: Final = (
    "forward and backward are interleaved with other work, such as preparing the next batch, "
    "so no microbatch can be inserted before them"
)


_MOST_TASKS: Final = 50_000_000


def _apply(graph: TaskGraph, value: str, facts: Facts) -> Edited:
    del facts
    batches = count(value, "accumulate")
    if batches == 1:
        raise NotApplicable("accumulate=1 is one microbatch per step, as recorded")
    done = replay_or_refuse(_repeat_passes(graph, reductions(graph), batches - 1), _INTERLEAVED)
    notes = (
        f"A step is one optimizer step over {batches} microbatches, each as large as a recorded batch.",
        "Each earlier microbatch repeats the recorded data loading, forward and backward, but reduces nothing.",
    )
    return Edited(graph=done.graph, schedule=done, doubt=0.1, notes=notes, extra={"microbatches": batches})


def _how(value: str) -> str:
    return (
        f"with (model.no_sync() if (i + 1) % {value} else nullcontext()): loss.backward(); "
        f"optimizer.step() and zero_grad() every {value} microbatches"
    )


def _remember(memory: RankMemory, value: str, facts: Facts) -> Remembered:
    del value, facts
    note = "Gradients stay allocated; each microbatch adds to them. Activations are those of one microbatch."
    return Remembered(accumulate_gradients(memory), 0.1, (note,))


CHANGE: Final = Change(
    name="accumulate",
    form="accumulate=K",
    about="gradients of K microbatches are summed before they are reduced (no_sync)",
    cost="the batch per step is K times as large: adjust learning rate and schedule",
    how=_how,
    apply=_apply,
    tried=("2", "4"),
    remember=_remember,
)


Rows = npt.NDArray[np.int64]


def _repeat_passes(graph: TaskGraph, reducing: Flags, times: int) -> TaskGraph:
    """Put `times` more passes before each step's own."""
    reduces = np.zeros(len(graph.tasks), np.bool_)
    reduces[members(graph, reducing)] = True
    rows = _block(graph, reduces)
    if not rows.size:
        raise NotApplicable("no forward or backward pass was recognised in the recorded steps")
    if rows.size * times > _MOST_TASKS:
        raise NotApplicable(f"{times + 1:,} passes of {rows.size:,} tasks are too many to replay")
    calls = np.zeros(len(graph.tasks), np.bool_)
    enqueues = reduces[graph.edges.dst] & np.isin(graph.edges.because, (Because.LAUNCH, Because.THREAD))
    calls[graph.edges.src[enqueues]] = np.isin(
        graph.tasks.kind[graph.edges.src[enqueues]], (TaskKind.HOST, TaskKind.LAUNCH)
    )
    changed, new_meetings = _with_meetings(graph, rows, times)
    tasks = graph.tasks.take(np.tile(rows, times))
    silent = np.tile(calls[rows], times)
    tasks = tasks._replace(
        meeting=new_meetings,
        duration=np.where(silent, 0, tasks.duration),
        event=np.full(len(tasks), NONE, np.int64),
    )
    changed, fresh, moved = insert_tasks(changed, tasks, np.tile(_before(graph, rows), times))
    changed = _with_edges(changed, graph, rows, fresh.reshape(times, rows.size), moved)
    met = rows[graph.tasks.meeting[rows] >= 0]
    return in_order(changed, _turns(graph, met, np.unique(graph.tasks.meeting[met]), times))


def _block(graph: TaskGraph, reduces: Flags) -> Rows:
    """Return the tasks of passes, in the order of tasks."""
    tasks = graph.tasks
    inside = np.isin(phases(graph), (FORWARD, BACKWARD, DATA)) | (graph.lanes.kind[tasks.lane] == LaneKind.LOADER)
    known = np.isin(tasks.step, graph.steps.number)
    return np.flatnonzero(inside & known & ~reduces & (tasks.kind != TaskKind.MARK))


def _before(graph: TaskGraph, rows: Rows) -> Rows:
    """Return for each task of a step's block the task before the first of the block on its lane."""
    key = graph.tasks.lane[rows].astype(np.int64) << 32 | graph.tasks.step[rows]
    _, first, which = np.unique(key, return_index=True, return_inverse=True)
    ahead = rows[first][which.ravel()] - 1
    same = (ahead >= 0) & (graph.tasks.lane[np.maximum(ahead, 0)] == graph.tasks.lane[rows])
    before: Rows = np.where(same, ahead, NONE)
    return before


def _with_meetings(graph: TaskGraph, rows: Rows, times: int) -> tuple[TaskGraph, npt.NDArray[np.int32]]:
    """Add the meetings of repeated collectives, and return the meeting of each repeated task."""
    met = graph.tasks.meeting[rows]
    old = np.unique(met[met >= 0])
    for _ in range(times):
        graph, _ = with_meetings(graph, graph.meetings.take(old))
    base = len(graph.meetings) - times * old.size
    place = np.searchsorted(old, met)
    each = [np.where(met >= 0, base + number * old.size + place, NONE) for number in range(times)]
    return graph, np.concatenate(each).astype(np.int32)


def _with_edges(
    changed: TaskGraph, graph: TaskGraph, rows: Rows, fresh: npt.NDArray[np.int32], moved: npt.NDArray[np.int32]
) -> TaskGraph:
    """Repeat edges inside a step's block; those into it from earlier tasks hold back the first repetition."""
    edges, tasks = graph.edges, graph.tasks
    place = np.full(len(tasks), NONE, np.int64)
    place[rows] = np.arange(rows.size)
    src, dst = place[edges.src], place[edges.dst]
    same = (tasks.step[edges.src] == tasks.step[edges.dst]) & (graph.rank[edges.src] == graph.rank[edges.dst])
    inside = np.flatnonzero((src >= 0) & (dst >= 0) & same)
    for own in fresh:
        changed = _copy_edges(changed, edges.take(inside), own[src[inside]], own[dst[inside]])
    into = np.flatnonzero((dst >= 0) & ~((src >= 0) & same))
    earlier = into[_comes_before(graph, rows, edges.src[into], edges.dst[into])]
    return _copy_edges(changed, edges.take(earlier), moved[edges.src[earlier]], fresh[0][dst[earlier]])


def _comes_before(graph: TaskGraph, rows: Rows, src: npt.NDArray[np.int32], dst: npt.NDArray[np.int32]) -> Flags:
    """Return whether each `src` is of an earlier step than its `dst`, or of the same step and before its block on the
    lane."""
    tasks = graph.tasks
    key = tasks.lane.astype(np.int64) << 32 | tasks.step.astype(np.int64) & 0xFFFFFFFF
    keys, first = np.unique(key[rows], return_index=True)
    at = np.minimum(np.searchsorted(keys, key[src]), keys.size - 1)
    ahead = (keys[at] == key[src]) & (src < rows[first[at]]) & (tasks.step[src] == tasks.step[dst])
    before: Flags = ahead | ((tasks.step[src] >= 0) & (tasks.step[src] < tasks.step[dst]))
    return before


def _copy_edges(graph: TaskGraph, like: Edges, src: npt.NDArray[np.int32], dst: npt.NDArray[np.int32]) -> TaskGraph:
    return with_edges(graph, src, dst, like.delay, after_start=like.after_start, because=like.because)


def _turns(graph: TaskGraph, rows: Rows, old: Rows, times: int) -> npt.NDArray[np.float64]:
    """Return a sort key of all meetings: repeated ones come before the first of their step, one repetition after the
    other."""
    step = np.zeros(len(graph.meetings), np.int64)
    step[graph.tasks.meeting[rows]] = graph.tasks.step[rows]
    _, which = np.unique(step[old], return_inverse=True)
    begins = np.full(int(which.max(initial=0)) + 1, np.iinfo(np.int64).max, np.int64)
    np.minimum.at(begins, which, old)
    place = np.arange(times * old.size) / max(times * old.size, 1)
    more: npt.NDArray[np.float64] = np.tile(begins[which], times) - 1 + place
    return np.concatenate((np.arange(len(graph.meetings), dtype=np.float64), more))
