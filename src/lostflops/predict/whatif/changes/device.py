"""What if the job ran on another accelerator?"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from lostflops.account.facts.devices import DEVICES, Device, find_device
from lostflops.core.errors import NotApplicable, UsageError
from lostflops.predict.graph.editing import retime_graph, scale_rows
from lostflops.predict.graph.tasks import TaskGraph, TaskKind
from lostflops.predict.whatif.change import Change, Edited, Facts
from lostflops.predict.whatif.graph_edits.kernel_times import (
    COMPUTE_BOUND,
    MEMORY_BOUND,
    device_now,
    dtype_now,
    peak,
    scale_kernels,
)
from lostflops.predict.whatif.graph_edits.selecting import names_with

_DOUBT: Final = 0.3


def _apply(graph: TaskGraph, value: str, facts: Facts) -> Edited:
    other = _require_device(value)
    device, dtype = device_now(graph, facts), dtype_now(graph, facts)
    if device == other:
        raise NotApplicable(f"the run already uses {device.name}")
    if device.memory_gbs is None or other.memory_gbs is None:
        unknown = device if device.memory_gbs is None else other
        raise NotApplicable(f"the memory bandwidth of {unknown.name} is not confirmed")
    computing = peak(device, dtype) / peak(other, dtype)
    moving = device.memory_gbs / other.memory_gbs
    changed = scale_kernels(graph, dict.fromkeys(COMPUTE_BOUND, computing) | dict.fromkeys(MEMORY_BOUND, moving))
    inside = (graph.tasks.kind == TaskKind.COPY) & names_with(graph, "dtod", "memset")
    changed = retime_graph(changed, duration=scale_rows(changed.tasks.duration, inside, moving))
    notes = (
        (
            f"Matmuls, attention and convolutions take {computing:.3g}x as long (ratio of the {dtype} peaks of "
            f"{device.name} and {other.name}), all other kernels {moving:.3g}x (ratio of memory bandwidths); each "
            "kernel stays as far from its limit as now."
        ),
        "Host, network, shapes and batch size stay the same.",
    )
    return Edited(graph=changed, doubt=_DOUBT, notes=notes, facts=replace(facts, device=other.name))


def _require_device(name: str) -> Device:
    found = find_device(name)
    if found is None:
        raise UsageError(f"device={name} is not known: give one of {', '.join(device.name for device in DEVICES)}")
    return found


def _how(value: str) -> str:
    return f"run on {value}; measure one step there first"


CHANGE: Final = Change(
    name="device",
    form="device=NAME",
    about="the job runs on another accelerator: kernel times scale with peak FLOP/s and memory bandwidth",
    cost="the price of the devices; kernels tuned for one device reach a smaller part of another's peak",
    how=_how,
    apply=_apply,
    is_hardware=True,
)
