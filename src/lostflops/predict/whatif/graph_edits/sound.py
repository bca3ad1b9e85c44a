"""Whether a changed graph still runs."""

from __future__ import annotations

from lostflops.core.errors import NotApplicable
from lostflops.predict.graph.replay import Circular, replay
from lostflops.predict.graph.tasks import TaskGraph


def sound(graph: TaskGraph, why: str) -> TaskGraph:
    """The graph; raises `NotApplicable` where its tasks would wait for each other, which the recorded ones do not."""
    try:
        replay(graph)
    except Circular:
        raise NotApplicable(why) from None
    return graph
