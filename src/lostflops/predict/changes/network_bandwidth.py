"""What if the network had more or less bandwidth?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lostflops.predict.change import Change, Edited, Facts
from lostflops.predict.edits.network import faster
from lostflops.predict.edits.values import times
from lostflops.predict.remembered.untouched import untouched

if TYPE_CHECKING:
    from lostflops.graph.tasks import TaskGraph


def _apply(graph: TaskGraph, value: str, facts: Facts) -> Edited:
    return faster(graph, facts, bandwidth=times(value, "network.bandwidth"))


CHANGE: Final = Change(
    "network.bandwidth",
    "network.bandwidth=2x",
    "every transfer has this many times the bandwidth; latency stays the same",
    "another network, or more network adapters per host",
    lambda _: (
        "Use faster adapters or more of them. GLOO_SOCKET_IFNAME sets the interface; on NCCL: NCCL_SOCKET_IFNAME and "
        "NCCL_IB_HCA."
    ),
    _apply,
    ("2x", "0.5x"),
    is_hardware=True,
    remember=untouched("The network does not change memory use."),
)
