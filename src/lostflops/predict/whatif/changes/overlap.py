"""What if communication overlapped perfectly with compute? An upper limit: better overlap cannot save more."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from lostflops.core.errors import NotApplicable
from lostflops.predict.graph.editing import retime_graph, with_edges, without_edges
from lostflops.predict.graph.tasks import NONE, Because, Edges, Flags, TaskGraph, TaskKind
from lostflops.predict.whatif.change import Change, Edited, Facts
from lostflops.predict.whatif.graph_edits.selecting import between_ranks
from lostflops.predict.whatif.graph_edits.values import one_of
from lostflops.predict.whatif.memory_edits.unchanged_memory import keep_memory_unchanged


def _apply(graph: TaskGraph, value: str, facts: Facts) -> Edited:
    del facts
    one_of(value, ("perfect",), "overlap")
    comm = graph.tasks.kind == TaskKind.COMM
    if not comm.any():
        raise NotApplicable("no communication was recorded: there is nothing to overlap")
    sent = between_ranks(graph)
    hidden = comm & ~sent[graph.tasks.meeting]
    changed = retime_graph(graph, transfer=np.where(sent, 0, graph.meetings.transfer))
    changed, hidden = _apart(changed, hidden)
    # What came before the first step lets it begin where the recording found it.
    leaving = (hidden & (changed.tasks.step >= 0))[changed.edges.src] & ~hidden[changed.edges.dst]
    changed = _end_steps_after_comm(without_edges(changed, leaving), hidden)
    notes = [
        "An upper limit: nothing waits for a collective, and a step takes the longer of compute and communication."
    ]
    if sent.any():
        notes.append("Pipeline stages still wait for each other: only the transfer time between them is removed.")
    return Edited(graph=changed, doubt=0.0, notes=tuple(notes), mixes_steps=True)


def _apart(graph: TaskGraph, hidden: Flags) -> tuple[TaskGraph, Flags]:
    """Move collectives to their own lanes. Those that shared a lane with other tasks still come after the task that was
    before them."""
    tasks, lanes = graph.tasks, graph.lanes
    mixed = np.zeros(len(lanes), np.bool_)
    mixed[np.intersect1d(tasks.lane[hidden], tasks.lane[~hidden])] = True
    moving = hidden & mixed[tasks.lane]
    if not moving.any():
        return graph, hidden
    sources, into = np.unique(tasks.lane[moving], return_inverse=True)
    lane = tasks.lane.copy()
    lane[moving] = len(lanes) + into
    order = np.argsort(lane, kind="stable")
    moved = np.empty(order.size, np.int32)
    moved[order] = np.arange(order.size, dtype=np.int32)
    before = np.flatnonzero(moving[1:] & ~moving[:-1] & (tasks.lane[1:] == tasks.lane[:-1]))
    steps, measured, edges = graph.steps, graph.measured, graph.edges
    ends = (np.where(end >= 0, moved[end], NONE).astype(np.int32) for end in (steps.first, steps.last))
    made = replace(
        graph,
        tasks=tasks._replace(lane=lane).take(order),
        edges=Edges(moved[edges.src], moved[edges.dst], edges.delay, edges.after_start, edges.because),
        lanes=replace(
            lanes,
            **{
                name: np.append(getattr(lanes, name), getattr(lanes, name)[sources])
                for name in ("rank", "kind", "name")
            },
            origin=np.append(lanes.origin, np.zeros(sources.size, np.int64)),
        ),
        steps=replace(steps, first=next(ends), last=next(ends)),
        measured=replace(measured, start=measured.start[order], stop=measured.stop[order]),
    )
    made = with_edges(made, moved[before], moved[before + 1], tasks.gap[before], because=Because.STREAM)
    return made, hidden[order]


def _end_steps_after_comm(graph: TaskGraph, hidden: Flags) -> TaskGraph:
    """End the last step of a rank no earlier than its communication, if marks delimit the rank's steps."""
    steps, tasks = graph.steps, graph.tasks
    told = np.flatnonzero((steps.last >= 0) & (tasks.kind[steps.last] == TaskKind.MARK))
    final = dict(zip(steps.rank[told].tolist(), steps.last[told].tolist(), strict=True))
    rows = np.flatnonzero(hidden & (tasks.step >= 0) & np.isin(graph.rank, list(final)))
    last = rows[np.append(np.diff(tasks.lane[rows]) != 0, True)] if rows.size else rows
    return with_edges(graph, last, np.array([final[rank] for rank in graph.rank[last].tolist()], np.int32))


def _how(value: str) -> str:
    del value
    return (
        "smaller gradient buckets (bucket_cap_mb), FSDP prefetch, compute and collectives on separate streams: try "
        "bucket_mb and prefetch to see what each saves"
    )


CHANGE: Final = Change(
    name="overlap",
    form="overlap=perfect",
    about="collectives overlap perfectly with compute (an upper limit)",
    cost="an upper limit: no setting achieves it",
    how=_how,
    apply=_apply,
    tried=("perfect",),
    is_bound=True,
    remember=keep_memory_unchanged("Overlap does not change what a rank allocates."),
)
