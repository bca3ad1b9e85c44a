"""Memory bandwidth for changes that add passes over memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lostflops.account.facts.devices import find_device
from lostflops.predict.graph.tasks import LaneKind

if TYPE_CHECKING:
    from lostflops.predict.graph.tasks import TaskGraph
    from lostflops.predict.whatif.change import Facts

_CPU_GBS: Final = 5.0
_DEVICE_GBS: Final = 1000.0
"""Read and written together, if the device is not known."""


def memory_rate(graph: TaskGraph, facts: Facts) -> tuple[float, str]:
    """Return the bytes read and written per ns, and the rate as text."""
    if not (graph.lanes.kind == LaneKind.STREAM).any():
        return _CPU_GBS, f"{_CPU_GBS:g} GB/s"
    known = find_device(facts.device) if facts.device else None
    rate = known.memory_gbs if known is not None and known.memory_gbs else _DEVICE_GBS
    return rate, f"{rate:g} GB/s of device memory"
