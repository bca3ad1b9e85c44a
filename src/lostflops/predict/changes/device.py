"""What if the run had other accelerators?"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from lostflops.errors import UsageError
from lostflops.facts.devices import DEVICES, Device
from lostflops.graph.editing import retimed, scaled
from lostflops.graph.tasks import Kind, TaskGraph
from lostflops.predict.change import Change, Edited, Facts, NotApplicable
from lostflops.predict.edits.kernel_times import (
    COMPUTE_BOUND,
    MEMORY_BOUND,
    device_called,
    device_now,
    dtype_now,
    peak,
    rescaled,
)
from lostflops.predict.edits.selecting import names_with

_DOUBT: Final = 0.3


def _apply(graph: TaskGraph, value: str, facts: Facts) -> Edited:
    other = _asked(value)
    device, dtype = device_now(graph, facts), dtype_now(graph, facts)
    if device == other:
        raise NotApplicable(f"the run has {device.name} already")
    if device.memory_gbs is None or other.memory_gbs is None:
        unknown = device if device.memory_gbs is None else other
        raise NotApplicable(f"the bandwidth of the memory of {unknown.name} is not confirmed")
    computing = peak(device, dtype) / peak(other, dtype)
    moving = device.memory_gbs / other.memory_gbs
    changed = rescaled(graph, dict.fromkeys(COMPUTE_BOUND, computing) | dict.fromkeys(MEMORY_BOUND, moving))
    inside = (graph.tasks.kind == Kind.COPY) & names_with(graph, "dtod", "memset")
    changed = retimed(changed, duration=scaled(changed.tasks.duration, inside, moving))
    notes = (
        (
            f"Products of matrices, attention and convolutions take {computing:.3g} times what they took ({dtype} "
            f"peaks of {device.name} and {other.name}), all other kernels {moving:.3g} times (bandwidth of their "
            "memories), each as far from its limit as now."
        ),
        "The host and the network stay as they are, and so do shapes and the size of a batch.",
    )
    return Edited(changed, _DOUBT, notes, facts=replace(facts, device=other.name))


def _asked(name: str) -> Device:
    found = device_called(name)
    if found is None:
        raise UsageError(f"device={name} is not known: give one of {', '.join(device.name for device in DEVICES)}")
    return found


def _how(value: str) -> str:
    return f"run on {value}; measure one step there first"


CHANGE: Final = Change(
    name="device",
    form="device=NAME",
    about="another accelerator, by the ratio of peaks and of bandwidths",
    cost="the price of the devices; kernels that are tuned for one reach less of another",
    how=_how,
    apply=_apply,
    is_hardware=True,
)
