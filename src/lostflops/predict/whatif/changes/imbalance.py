"""What if every op took the same time on all ranks?

As in "Understanding Stragglers in Large Model Training Using What-if Analysis" (OSDI 2025): ops of one type take their
mean, and communication of one type takes the median of its transfers, over all ranks, microbatches and steps. If a host
was recorded, the mean is over kernels of one name at the same place in the step.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from lostflops.account.align.passes import ordinal
from lostflops.core.errors import NotApplicable
from lostflops.predict.graph.editing import retime_graph
from lostflops.predict.graph.replay import replay
from lostflops.predict.graph.tasks import Flags, LaneKind, Ns, TaskGraph, TaskKind
from lostflops.predict.whatif.change import Change, Edited, Facts
from lostflops.predict.whatif.graph_edits.delays import without_waits
from lostflops.predict.whatif.graph_edits.values import one_of
from lostflops.predict.whatif.memory_edits.unchanged_memory import keep_memory_unchanged

_DOUBT: Final = 0.2
"""Means and medians are used as the times of balanced ranks; published replays of the same kind agree to 1%."""

_SAME_WORK: Final = (
    "Work is spread, not reduced: peers of a slow rank get slower. If that rank is slow without having more work, "
    "straggler=RANK predicts the fix, which saves more."
)

_ENDS: Final = ("-send", "-recv")


def _how(_value: str) -> str:
    return (
        "lostflops ranks names the slow ranks; give stages with more work fewer layers, and sort or pack sequences so "
        "that microbatches are equally long"
    )


def _apply(graph: TaskGraph, value: str, _facts: Facts) -> Edited:
    one_of(value, ("removed",), "imbalance")
    if len(graph.ranks) < 2:
        raise NotApplicable("only one rank was recorded: there is nothing to balance it with")
    base, shorter = without_waits(graph)
    changed = balance_ops(base)
    if has_host(graph):
        note = (
            "Each kernel takes the mean time of the same kernel at the same place in the step, over all ranks and steps"
        )
        return Edited(graph=changed, doubt=_DOUBT, notes=(f"{note}; host time stays the same.", _SAME_WORK))
    note = "Ops take the mean and transfers the median of their type, over all ranks, microbatches and steps"
    by_op = {"slowdown_by_op": _by_op(base)}
    return Edited(
        graph=changed,
        doubt=_DOUBT,
        notes=(f"{note}; short launch delays stay the same.", _SAME_WORK),
        extra=by_op,
        off=shorter,
    )


def _by_op(graph: TaskGraph) -> dict[str, float]:
    """Return the slowdown that each type of op causes if it alone is not balanced."""
    types, of_task = op_types(graph)
    return slowdowns(graph, np.asarray(of_task), types)


CHANGE: Final = Change(
    name="imbalance",
    form="imbalance=removed",
    about="every op takes the same time on all ranks, stages and microbatches",
    cost="work has to move between ranks: split the model or pack the sequences differently",
    how=_how,
    apply=_apply,
    tried=("removed",),
    remember=keep_memory_unchanged("Timing does not change what a rank allocates."),
)


Codes = npt.NDArray[np.int64]


def has_host(graph: TaskGraph) -> bool:
    return bool((graph.lanes.kind != LaneKind.STREAM).any())


def op_types(graph: TaskGraph) -> tuple[tuple[str, ...], Codes]:
    """Return the types of ops by name, and the type of each task; both ends of a transfer have one type."""
    texts = [_op_type(word) for word in graph.words]
    types = tuple(sorted(set(texts)))
    of_word = np.array([types.index(text) for text in texts], np.int64)
    return types, of_word[graph.tasks.name]


def _op_type(name: str) -> str:
    """Return the type of an op: both ends of a pipeline transfer have one type.

    >>> _op_type("forward-recv"), _op_type("optimizer")
    ('forward-pp-comm', 'optimizer')
    """
    ends = next((end for end in _ENDS if name.endswith(end)), None)
    return name.removesuffix(ends) + "-pp-comm" if ends else name


def balance_ops(graph: TaskGraph, kept: Flags | None = None) -> TaskGraph:
    """Give all ops of one type the same time; those in `kept` keep their times, and so do meetings that only they
    attend."""
    kept = np.zeros(len(graph.tasks), np.bool_) if kept is None else kept
    own = np.flatnonzero(graph.tasks.kind == TaskKind.KERNEL)
    like = _like(graph, own)
    duration = graph.tasks.duration.copy()
    duration[own] = np.where(kept[own], duration[own], _means(like, duration[own]))
    return retime_graph(graph, duration=duration, transfer=_transfers(graph, kept))


def _like(graph: TaskGraph, rows: Ns) -> Codes:
    """Number tasks that should take equally long: those of one name and, if a host launched them, also at one place in
    their step, since kernels of one name have many sizes. Tasks of names that do not run equally often everywhere each
    get their own number."""
    tasks = graph.tasks
    name = tasks.name[rows].astype(np.int64)
    if not has_host(graph):
        return name
    turn = np.unique(np.stack((graph.rank[rows], tasks.step[rows])), axis=1, return_inverse=True)[1].ravel()
    place = ordinal(name * (turn.max(initial=0) + 1) + turn)
    count = np.zeros((int(name.max(initial=0)) + 1, int(turn.max(initial=0)) + 1), np.int64)
    np.add.at(count, (name, turn), 1)
    even = count.min(axis=1) == count.max(axis=1)
    alike = np.unique(np.stack((name, place)), axis=1, return_inverse=True)[1].ravel()
    return np.where(even[name], alike, alike.max(initial=0) + 1 + np.arange(rows.size))


def _means(like: Codes, values: Ns) -> Ns:
    _, which = np.unique(like, return_inverse=True)
    means: Ns = np.round(np.bincount(which, values) / np.maximum(np.bincount(which), 1)).astype(np.int64)[which]
    return means


def _transfers(graph: TaskGraph, kept: Flags) -> Ns:
    """Return the medians of meetings that all members attended: for others, the wait is unknown."""
    meetings = graph.meetings
    rows = np.flatnonzero(graph.tasks.meeting >= 0)
    of_task = op_types(graph)[1]
    own, some = np.zeros(len(meetings), np.int64), np.zeros(len(meetings), np.bool_)
    own[graph.tasks.meeting[rows]] = of_task[rows]
    some[graph.tasks.meeting[rows[~kept[rows]]]] = True
    result = meetings.transfer.copy()
    like = np.unique(np.stack((own, meetings.size, meetings.ranks)), axis=1, return_inverse=True)[1].ravel()
    for code in range(int(like.max(initial=-1)) + 1):
        alike = like == code
        known = alike & meetings.whole if (alike & meetings.whole).any() else alike
        result[alike & some] = round(float(np.median(meetings.transfer[known])))
    return result


def slowdowns(graph: TaskGraph, groups: npt.NDArray[np.int64], names: tuple[str, ...]) -> dict[str, float]:
    """Return by what factor each group of tasks, with its own times, makes a run longer in which everything else is
    balanced; largest first."""
    level = replay(balance_ops(graph)).mean_step
    found = {
        name: replay(balance_ops(graph, groups == code)).mean_step / level
        for code, name in enumerate(names)
        if (groups == code).any()
    }
    return dict(sorted(found.items(), key=lambda one: -one[1]))
