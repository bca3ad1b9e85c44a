"""What if messages took more or less time on their way?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lostflops.predict.change import Change, Edited, Facts
from lostflops.predict.edits.network import faster
from lostflops.predict.edits.values import times
from lostflops.predict.remembered.untouched import untouched

if TYPE_CHECKING:
    from lostflops.graph.tasks import TaskGraph


def _apply(graph: TaskGraph, value: str, facts: Facts) -> Edited:
    return faster(graph, facts, latency=times(value, "network.latency"))


CHANGE: Final = Change(
    "network.latency",
    "network.latency=0.5x",
    "the latency of every transfer is multiplied; bandwidth stays",
    "another network, or ranks that are placed closer to each other",
    lambda _: "RDMA instead of sockets, ranks under one switch, fewer and larger collectives (bucket_mb).",
    _apply,
    ("0.5x",),
    is_hardware=True,
    remember=untouched("Another network moves no memory."),
)
