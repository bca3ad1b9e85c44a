"""Insertion of new collectives between those of a graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lostflops.predict.graph.editing import in_order, insert_tasks, with_edges, with_meetings, with_words
from lostflops.predict.graph.tasks import NONE, TaskGraph, TaskMeetings

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Extra:
    """A collective to add; the array columns have one row per rank."""

    op: str
    size: int
    transfer: int
    phase: int
    like: Rows
    """Recorded collective of the same ranks, whose lane and group it gets."""
    behind: Rows
    """Task of that lane after which it comes; NONE: at the beginning."""
    needs: Rows
    """Task that it waits for; NONE: nothing."""
    holds: Rows
    """Task that waits for it; NONE: nothing."""
    turn: float
    """Sort key among the recorded meetings: the one after which it gets its link."""


def with_collectives(graph: TaskGraph, extras: Sequence[Extra]) -> TaskGraph:
    """Add these collectives, in the given order if several come after the same task."""
    like = np.concatenate([extra.like for extra in extras])
    each = np.repeat(np.arange(len(extras)), [extra.like.size for extra in extras])
    count = len(graph.meetings)
    graph, words = with_words(graph, *(extra.op for extra in extras))
    told = graph.meetings.take(graph.tasks.meeting[[int(extra.like[0]) for extra in extras]])
    more = TaskMeetings(
        np.array([extra.transfer for extra in extras], np.int64),
        np.array([extra.size for extra in extras], np.int64),
        np.array(words, np.int32),
        told.group,
        told.ranks,
        told.hosts,
        told.link,
        told.whole,
    )
    graph, _ = with_meetings(graph, more)
    tasks = graph.tasks.take(like)._replace(
        meeting=(count + each).astype(np.int32),
        name=np.array(words, np.int32)[each],
        phase=np.array([extra.phase for extra in extras], np.int8)[each],
        event=np.full(like.size, NONE, np.int64),
    )
    graph, fresh, moved = insert_tasks(graph, tasks, np.concatenate([extra.behind for extra in extras]))
    needs, holds = (np.concatenate([getattr(extra, name) for extra in extras]) for name in ("needs", "holds"))
    graph = with_edges(graph, moved[needs[needs >= 0]], fresh[needs >= 0])
    graph = with_edges(graph, fresh[holds >= 0], moved[holds[holds >= 0]])
    return in_order(graph, np.concatenate((np.arange(count), [extra.turn for extra in extras])))


def before_on_lane(graph: TaskGraph, rows: Rows) -> Rows:
    """Return the task before each on its lane, NONE at the beginning."""
    lane, before = graph.tasks.lane, np.maximum(rows - 1, 0)
    return np.where((rows > 0) & (lane[before] == lane[rows]), before, NONE)


def after_on_lane(graph: TaskGraph, rows: Rows) -> Rows:
    """Return the task after each on its lane, NONE at the end."""
    lane, last = graph.tasks.lane, len(graph.tasks) - 1
    behind = np.minimum(rows + 1, last)
    return np.where((rows < last) & (lane[behind] == lane[rows]), behind, NONE)
