"""What if the network had more or less latency?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lostflops.predict.whatif.change import Change, Edited, Facts
from lostflops.predict.whatif.graph_edits.network import faster
from lostflops.predict.whatif.graph_edits.values import times
from lostflops.predict.whatif.memory_edits.unchanged_memory import keep_memory_unchanged

if TYPE_CHECKING:
    from lostflops.predict.graph.tasks import TaskGraph


def _apply(graph: TaskGraph, value: str, facts: Facts) -> Edited:
    return faster(graph, facts, latency=times(value, "network.latency"))


CHANGE: Final = Change(
    name="network.latency",
    form="network.latency=0.5x",
    about="the latency of every transfer is multiplied by this factor; bandwidth stays the same",
    cost="another network, or ranks placed closer together",
    how=lambda _: "Use RDMA instead of sockets, ranks under one switch, or fewer and larger collectives (bucket_mb).",
    apply=_apply,
    tried=("0.5x",),
    is_hardware=True,
    remember=keep_memory_unchanged("The network does not change memory use."),
)
