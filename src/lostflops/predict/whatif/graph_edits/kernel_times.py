"""Kernel times at other rates: matmuls are bound by compute, all other kernels by memory."""

from __future__ import annotations

from typing import Final

import numpy as np

from lostflops.account.facts.devices import Device, find_device
from lostflops.account.facts.kernel_classes import rounds_to_tf32
from lostflops.account.ledger.work import MATMUL_CLASSES
from lostflops.core.errors import NotApplicable
from lostflops.predict.graph.editing import retime_graph, scale_rows
from lostflops.predict.graph.tasks import TaskGraph, TaskKind
from lostflops.predict.whatif.change import Facts
from lostflops.predict.whatif.graph_edits.selecting import of_class, ranks_with_device

COMPUTE_BOUND: Final = MATMUL_CLASSES
_MOST: Final = 0.5


def device_now(graph: TaskGraph, facts: Facts) -> Device:
    """Return the device of the run. Raise `NotApplicable` if it is not known."""
    if not ranks_with_device(graph).size:
        raise NotApplicable("no accelerator was recorded, and this change is computed from its peaks")
    found = find_device(facts.device) if facts.device else None
    if found is None:
        raise NotApplicable(f"the peaks of {facts.device or 'the device of this run'} are not known")
    return found


def dtype_now(graph: TaskGraph, facts: Facts) -> str:
    """Return the dtype in which kernels multiply: fp32 counts as tf32 if most of their time is spent in kernels that
    round to it."""
    if facts.dtype is None:
        raise NotApplicable(
            "no shapes were recorded, so the dtype of matmuls is unknown: record with record_shapes=True"
        )
    if facts.dtype != "fp32":
        return facts.dtype
    rounds = np.array([rounds_to_tf32(word) for word in graph.words], np.bool_)
    rows = of_class(graph, *COMPUTE_BOUND) & (graph.tasks.name >= 0)
    spent = graph.tasks.duration[rows]
    return "tf32" if spent[rounds[graph.tasks.name[rows]]].sum() > _MOST * spent.sum() else "fp32"


def peak(device: Device, dtype: str) -> float:
    if dtype not in device.peaks:
        known = ", ".join(device.peaks) or "none"
        raise NotApplicable(f"no confirmed {dtype} peak of {device.name} is known; known peaks: {known}")
    return device.peaks[dtype]


def scale_kernels(graph: TaskGraph, factors: dict[str, float]) -> TaskGraph:
    """Multiply the times of the kernels of each class by its factor. No kernel gets shorter than the shortest recorded
    one: below that, the time does not come from the work."""
    duration = graph.tasks.duration
    kernels = duration[(graph.tasks.kind == TaskKind.KERNEL) & (duration > 0)]
    least = int(kernels.min(initial=np.iinfo(np.int64).max))
    changed = duration
    for name, factor in factors.items():
        changed = scale_rows(changed, of_class(graph, name), factor)
    return retime_graph(graph, duration=np.maximum(changed, np.minimum(duration, least)))
