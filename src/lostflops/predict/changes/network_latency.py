"""What if the network had more or less latency?"""

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
    "the latency of every transfer is multiplied by this factor; bandwidth stays the same",
    "another network, or ranks placed closer together",
    lambda _: "Use RDMA instead of sockets, ranks under one switch, or fewer and larger collectives (bucket_mb).",
    _apply,
    ("0.5x",),
    is_hardware=True,
    remember=untouched("The network does not change memory use."),
)
