"""What if ranks did not wait for each other's gradients in every step?

Stale synchronous parallel: with `staleness=S`, a rank starts step k as soon as every other rank has finished step k - 1
- S; with `unbounded`, it never waits. Each rank still pays for its own transfers: the time of the collective without
waits.

A few recorded steps start together and do not show how far ranks drift apart, so the cost of a bound is also computed
for a long job.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from lostflops.account.ledger.lines import LINES
from lostflops.account.ledger.phases import OTHER
from lostflops.core.errors import NotApplicable
from lostflops.predict.graph.editing import in_order, insert_tasks, retime_graph, with_edges, with_lanes, with_words
from lostflops.predict.graph.replay import replay
from lostflops.predict.graph.tasks import NONE, LaneKind, TaskKind, TaskMeetings, Tasks
from lostflops.predict.whatif.change import Change, Edited, Facts
from lostflops.predict.whatif.graph_edits.reductions import calls, members, reductions, select_collectives
from lostflops.predict.whatif.graph_edits.selecting import POINT_TO_POINT
from lostflops.predict.whatif.graph_edits.values import count

if TYPE_CHECKING:
    from lostflops.predict.graph.tasks import Flags, Index, TaskGraph


STEPS: Final = 2_000


def _apply(graph: TaskGraph, value: str, facts: Facts) -> Edited:
    del facts
    if len(graph.ranks) < 2:
        raise NotApplicable("only one rank was recorded, so it waits for no other")
    bound = None if value == "unbounded" else 0 if value == "0" else count(value, "staleness")
    if bound == 0:
        reductions(graph)  # Refused without any: ranks that exchange through a server may run apart already.
    changed, by_server = (graph, False) if bound == 0 else _alone(graph)
    later = 0.0
    if bound:
        alone, changed = changed, _bound_staleness(changed, bound)
        later = _later(alone, changed, bound)
    notes = ["This changes the training: gradients are computed from older parameters. Check convergence."]
    if by_server:
        notes.append(
            "The parameter server was not recorded: the time of a transfer above the shortest of its kind counts as "
            "waiting for other ranks."
        )
    else:
        notes.append("A rank's own gradient exchange is assumed to take the transfer time of the recorded collective.")
    notes.append("Step times vary as in the recorded steps.")
    if later:
        notes.append(
            f"The recorded steps begin together. In a long run, ranks are held back more often, by {later / 1e6:.3g} "
            "ms per step if they keep varying as recorded. The interval includes that."
        )
    return Edited(
        graph=changed, doubt=0.3, notes=tuple(notes), extra={**_figures(changed), "later_ns": round(later)}, off=later
    )


def _later(alone: TaskGraph, bounded: TaskGraph, bound: int) -> float:
    """Return how many ns longer steps are in the long run than in the recorded steps."""
    steps = alone.steps
    times = replay(alone).step_times
    own = [times[steps.rank == rank] for rank in alone.ranks]
    if len({each.size for each in own}) > 1 or not own[0].size:
        return 0.0
    return max(_long_run_step(np.array(own, np.float64), bound) - replay(bounded).mean_step, 0.0)


def _alone(graph: TaskGraph) -> tuple[TaskGraph, bool]:
    """Let every rank go through reductions by itself, with its own link; also return whether the ranks exchange through
    a parameter server."""
    try:
        chosen, by_server = reductions(graph), False
    except NotApplicable:
        chosen, by_server = select_collectives(graph, *POINT_TO_POINT) & ~graph.meetings.whole, True
        if not chosen.any():
            raise
        graph = _shortest(graph, chosen)
    rows = members(graph, chosen)
    meeting = graph.tasks.meeting
    first = np.zeros(len(graph.tasks), np.bool_)
    first[rows[np.unique(meeting[rows], return_index=True)[1]]] = True
    others = rows[~first[rows]]
    own = graph.meetings.take(meeting[others])
    columns = (np.concatenate((getattr(graph.meetings, f.name), getattr(own, f.name))) for f in fields(TaskMeetings))
    split = meeting.copy()
    split[others] = np.arange(len(graph.meetings), len(graph.meetings) + others.size)
    changed = replace(graph, tasks=graph.tasks._replace(meeting=split), meetings=TaskMeetings(*columns))
    link = _own_links(graph, changed.meetings.link, rows, split)
    changed = replace(changed, meetings=replace(changed.meetings, link=link))
    return in_order(changed, np.concatenate((np.arange(len(graph.meetings)), meeting[others]))), by_server


def _own_links(graph: TaskGraph, link: Index, rows: npt.NDArray[np.int64], meeting: Index) -> Index:
    """Give each rank its own links: ranks no longer take turns with each other, only with themselves."""
    told = link.copy()
    at = meeting[rows]
    free, ranks = int(link.max(initial=NONE)) + 1, np.array(graph.ranks)
    own = free + link[at] * ranks.size + np.searchsorted(ranks, graph.rank[rows])
    told[at] = np.where(link[at] >= 0, own, NONE)
    return told


def _shortest(graph: TaskGraph, chosen: Flags) -> TaskGraph:
    rows, kinds, which = calls(graph, chosen)
    least = np.full(len(kinds), np.iinfo(np.int64).max, np.int64)
    np.minimum.at(least, which, graph.meetings.transfer[rows])
    transfer = graph.meetings.transfer.copy()
    transfer[rows] = least[which]
    return retime_graph(graph, transfer=transfer)


def _bound_staleness(graph: TaskGraph, bound: int) -> TaskGraph:
    """Add a mark for each step that comes when all ranks have finished it, and holds back the step after the bound."""
    numbers = np.unique(graph.steps.number)
    graph, (name,) = with_words(graph, "all ranks have finished a step")
    graph, (lane,) = with_lanes(graph, graph.lanes.rank[:1], LaneKind.COMM_THREAD, "steps of all ranks")
    graph, marks, _ = insert_tasks(graph, _marks(numbers, int(lane), name), np.full(numbers.size, NONE))
    firsts, lasts = _ends(graph)
    src: list[int] = []
    dst: list[int] = []
    for place, number in enumerate(numbers.tolist()):
        ends = [row for key, row in lasts if key == number]
        begins = [row for key, row in firsts if key == number + 1 + bound]
        src += [*ends, *[int(marks[place])] * len(begins)]
        dst += [*[int(marks[place])] * len(ends), *begins]
    return with_edges(graph, np.array(src, np.int64), np.array(dst, np.int64))


def _marks(numbers: npt.NDArray[np.int32], lane: int, name: int) -> Tasks:
    def column(value: int, kind: type[np.generic]) -> npt.NDArray[Any]:
        return np.full(numbers.size, value, kind)

    return Tasks(
        column(lane, np.int32),
        column(TaskKind.MARK, np.int8),
        column(LINES.index("comm.wait"), np.int8),
        column(0, np.int64),
        column(0, np.int64),
        column(NONE, np.int32),
        column(NONE, np.int32),
        column(OTHER, np.int8),
        column(0, np.int8),
        column(name, np.int32),
        column(NONE, np.int32),
        column(NONE, np.int64),
    )


def _ends(graph: TaskGraph) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Return (step, task) of all first and last tasks of steps: those that the steps name, else those of each
    stream."""
    steps, tasks = graph.steps, graph.tasks
    told = steps.first >= 0
    # What waits stands behind the mark that begins a step: the wait is time of the step.
    firsts = list(zip(steps.number[told].tolist(), (steps.first[told] + 1).tolist(), strict=True))
    lasts = list(zip(steps.number[told].tolist(), steps.last[told].tolist(), strict=True))
    streams = np.isin(graph.rank, steps.rank[~told]) & (graph.lanes.kind[tasks.lane] == LaneKind.STREAM)
    rows = np.flatnonzero(streams & (tasks.step >= 0))
    key = tasks.lane[rows].astype(np.int64) << 32 | tasks.step[rows]
    begins = rows[np.unique(key, return_index=True)[1]]
    ends = rows[::-1][np.unique(key[::-1], return_index=True)[1]]
    firsts += zip(tasks.step[begins].tolist(), begins.tolist(), strict=True)
    lasts += zip(tasks.step[ends].tolist(), ends.tolist(), strict=True)
    return firsts, lasts


def _figures(graph: TaskGraph) -> dict[str, Any]:
    """Compute by how many steps each step is ahead of the slowest rank when it has waited as long as it must and begins
    to compute, and the rate of all ranks together."""
    steps, done = graph.steps, replay(graph)
    start, stop = done.step_edges
    start = np.where(steps.first >= 0, done.start[steps.first + 1], start)
    slowest = np.full(len(steps), np.iinfo(np.int64).max, np.int64)
    for rank in np.unique(steps.rank).tolist():
        own = steps.rank == rank
        slowest = np.minimum(slowest, np.searchsorted(np.sort(stop[own]), start, side="right"))
    order = np.zeros(len(steps), np.int64)
    rate = 0.0
    for rank in np.unique(steps.rank).tolist():
        own = np.flatnonzero(steps.rank == rank)
        order[own[np.argsort(start[own], kind="stable")]] = np.arange(own.size)
        rate += 1e9 / max(float(done.step_times[own].mean()), 1.0)
    stale = np.maximum(order - slowest, 0)
    return {
        "staleness": {
            "mean": float(stale.mean()),
            "p50": float(np.median(stale)),
            "p90": float(np.quantile(stale, 0.9)),
            "max": int(stale.max()),
            "histogram": {str(value): int((stale == value).sum()) for value in np.unique(stale).tolist()},
        },
        "steps_per_second_of_all_ranks": rate,
    }


CHANGE: Final = Change(
    name="staleness",
    form="staleness=S|unbounded",
    about="a rank may be up to S steps ahead of the slowest rank instead of waiting for it in every step",
    cost="changes convergence: updates are computed from older parameters; a smaller learning rate is often needed",
    how=lambda value: (
        "A parameter server with asynchronous updates (torch.distributed.rpc), where a worker "
        + (
            "never waits"
            if value == "unbounded"
            else f"waits only when it is more than {value} steps ahead of the slowest"
        )
    ),
    apply=_apply,
    tried=(),
)


def _long_run_step(own: npt.NDArray[np.float64], bound: int) -> float:
    """Return the mean step of a long run in which a rank starts a step when all others have finished the one `bound` +
    1 before it. `own` has the times of steps without waiting, by rank and step; each rank draws from its own.

    >>> _long_run_step(np.array([[2.0, 2.0], [3.0, 3.0]]), bound=4)
    3.0
    >>> 2.0 < _long_run_step(np.array([[1.0, 3.0], [1.0, 3.0]]), bound=1) < 2.5
    True
    """
    ranks, steps = own.shape
    drawn = np.random.default_rng(0).integers(0, steps, (STEPS, ranks))
    ended = np.zeros((STEPS + 1, ranks))
    for step in range(STEPS):
        held = ended[step - bound].max() if step >= bound else 0.0
        ended[step + 1] = np.maximum(ended[step], held) + own[np.arange(ranks), drawn[step]]
    begun = STEPS // 10
    return float((ended[STEPS] - ended[begun]).mean() / (STEPS - begun))
