"""What if the network had more or less bandwidth?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lostflops.predict.whatif.change import Change, Edited, Facts
from lostflops.predict.whatif.graph_edits.network import faster
from lostflops.predict.whatif.graph_edits.values import times
from lostflops.predict.whatif.memory_edits.unchanged_memory import keep_memory_unchanged

if TYPE_CHECKING:
    from lostflops.predict.graph.tasks import TaskGraph


def _apply(graph: TaskGraph, value: str, facts: Facts) -> Edited:
    return faster(graph, facts, bandwidth=times(value, "network.bandwidth"))


CHANGE: Final = Change(
    name="network.bandwidth",
    form="network.bandwidth=2x",
    about="every transfer has this many times the bandwidth; latency stays the same",
    cost="another network, or more network adapters per host",
    how=lambda _: (
        "Use faster adapters or more of them. GLOO_SOCKET_IFNAME sets the interface; on NCCL: NCCL_SOCKET_IFNAME and "
        "NCCL_IB_HCA."
    ),
    apply=_apply,
    tried=("2x", "0.5x"),
    is_hardware=True,
    remember=keep_memory_unchanged("The network does not change memory use."),
)
