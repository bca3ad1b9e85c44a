"""Replay of a changed graph that refuses the change, with its reason, if the graph cannot run."""

from __future__ import annotations

from lostflops.core.errors import NotApplicable
from lostflops.predict.graph.replay import Circular, Schedule, replay
from lostflops.predict.graph.tasks import TaskGraph


def replay_or_refuse(graph: TaskGraph, why: str) -> Schedule:
    """Replay the graph; raise `NotApplicable` if its tasks would wait for each other."""
    try:
        return replay(graph)
    except Circular:
        raise NotApplicable(why) from None
