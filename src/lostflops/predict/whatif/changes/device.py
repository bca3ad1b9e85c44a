"""What if the job ran on another accelerator?

Kernels are scaled class by class with the kernel model (`costs/kernels`), and transfers within a host by the bandwidth
of the links. The host and its launches stay as recorded; the replay finds which work then overlaps. The interval allows
for another host and for errors of the kernel model.
"""

from __future__ import annotations

from dataclasses import replace
from math import hypot
from typing import Final

import numpy as np

from lostflops.account.facts.devices import Device, find_device, offer_names
from lostflops.account.facts.kernel_classes import CLASSES
from lostflops.account.ledger.work import MATMUL_CLASSES
from lostflops.core.errors import NotApplicable, UsageError
from lostflops.predict.costs.kernels.rescale import bandwidth_ratio, half_width, rate_ratio, rescale
from lostflops.predict.graph.editing import retime_graph
from lostflops.predict.graph.lines import mean_lines
from lostflops.predict.graph.replay import Schedule, replay
from lostflops.predict.graph.tasks import Flags, TaskGraph, TaskKind
from lostflops.predict.whatif.change import Change, Edited, Facts
from lostflops.predict.whatif.graph_edits.kernel_times import device_now, dtype_now
from lostflops.predict.whatif.graph_edits.network import faster, share_of_unknown
from lostflops.predict.whatif.graph_edits.selecting import names_with, of_class

_HOST_DIFFERS: Final = 0.2
"""Part by which the host of another machine is faster or slower in nine of ten cases: an assumption. In five recorded
pairs of H100 and MI300X machines it was up to 15%."""
_LINKS_DIFFER: Final = 0.3
"""The same for transfers on other links: an assumption."""
_LINKS_UNKNOWN: Final = 1.0
"""The same if the links of one of the devices are not known, so that transfers stay as recorded: an assumption."""
_MOST_UNTIMED: Final = 0.05
"""Part of the step that transfers which cannot be timed would take longer on slower links, above which nothing is
predicted."""
_KERNEL_LINES: Final = ("compute", "copy")
_HOST_LINES: Final = ("idle.host", "idle.python", "idle.sync", "idle.data", "idle.alloc", "idle.compile")


def _apply(graph: TaskGraph, value: str, facts: Facts) -> Edited:
    other = _require_device(value)
    own = device_now(graph, facts)
    if own == other:
        raise NotApplicable(f"the run already uses {own.name}")
    dtype = dtype_now(graph, facts) if _multiplies(graph).any() else None
    changed, note = _relink(graph, facts, own, other)
    done = replay(retime_graph(changed, duration=_rescale_kernels(changed, own, other, dtype)))
    if _share_untimed(done) * _slower_links(own, other) > _MOST_UNTIMED:
        raise NotApplicable(
            "its links within a host are slower, and transfers without a known operation and size cannot be timed on "
            "them: record with lostflops run"
        )
    return Edited(
        graph=done.graph,
        schedule=done,
        doubt=0.0,
        off=_estimate_error(done, own, other),
        notes=tuple(_describe(own, other, dtype, note)),
        facts=replace(facts, device=other.name),
    )


def _relink(graph: TaskGraph, facts: Facts, own: Device, other: Device) -> tuple[TaskGraph, str]:
    """Give transfers within a host the links of the other device. Return the graph and what was done, in words."""
    if not len(graph.meetings):
        return graph, ""
    as_recorded = "stay as recorded (to change them: whatif --change network.bandwidth=NX)."
    if not (own.scaleup_gbs and other.scaleup_gbs):
        unknown = own if not own.scaleup_gbs else other
        return graph, f"The links of {unknown.name} are not known, so transfers {as_recorded}"
    ratio = other.scaleup_gbs / own.scaleup_gbs
    try:
        changed = faster(graph, facts, bandwidth=ratio, inside=True).graph
    except NotApplicable:
        return graph, f"No transfer within a host has a known operation and size, so transfers {as_recorded}"
    return changed, f"Links within a host have {ratio:.3g}x the bandwidth; transfers between hosts {as_recorded}"


def _multiplies(graph: TaskGraph) -> Flags:
    """Select kernels that follow the rate of products. A product of a matrix and a vector reads each number for one
    operation, so it follows the memory."""
    found: Flags = of_class(graph, *MATMUL_CLASSES) & ~names_with(graph, "gemv")
    return found


def _slower_links(own: Device, other: Device) -> float:
    """Return the part by which transfers take longer on the links of the other device; 0 if they do not."""
    return max(own.scaleup_gbs / other.scaleup_gbs - 1, 0.0) if own.scaleup_gbs and other.scaleup_gbs else 0.0


def _share_untimed(done: Schedule) -> float:
    """Return the part of the step that waits for transfers which cannot be timed on other links."""
    return share_of_unknown(done.graph) * mean_lines(done)["comm.transfer"] / max(done.mean_step, 1.0)


def links_doubt(own: Device, other: Device) -> float:
    """Return the part by which transfers may differ in nine of ten cases."""
    return _LINKS_DIFFER if own.scaleup_gbs and other.scaleup_gbs else _LINKS_UNKNOWN


def _rescale_kernels(
    graph: TaskGraph, own: Device, other: Device, dtype: str | None
) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    duration = graph.tasks.duration.copy()
    computing = _multiplies(graph)
    inside = (graph.tasks.kind == TaskKind.COPY) & names_with(graph, "dtod", "memset")
    moving = (of_class(graph, *CLASSES) & ~computing) | inside
    if dtype is not None:
        duration[computing] = rescale(duration[computing], rate_ratio(own, other, dtype))
    duration[moving] = rescale(duration[moving], bandwidth_ratio(own, other))
    return duration


def _estimate_error(done: Schedule, own: Device, other: Device) -> float:
    """Return half the width of the range of a step, in ns, from what is not known of kernels and of the host."""
    lines = mean_lines(done)
    kernels, host = (sum(lines[name] for name in names) for names in (_KERNEL_LINES, _HOST_LINES))
    return hypot(
        half_width(own, other) * kernels, _HOST_DIFFERS * host, links_doubt(own, other) * lines["comm.transfer"]
    )


def _describe(own: Device, other: Device, dtype: str | None, links: str) -> list[str]:
    moving = f"{bandwidth_ratio(own, other):.3g}x"
    scaled = f"Kernels take {moving} as long (memory bandwidth)."
    if dtype is not None:
        computing = f"{rate_ratio(own, other, dtype):.3g}x"
        rates = f"rates that {dtype} products reach in training on {own.name} and {other.name}"
        scaled = (
            f"Matmuls, convolutions and attention take {computing} as long ({rates}), "
            f"all other kernels {moving} (memory bandwidth)."
        )
    notes = [
        scaled,
        f"The host stays the same; the interval allows for a host that is up to {_HOST_DIFFERS:.0%} faster or slower.",
    ]
    if links:
        notes.append(links)
    if own.is_amd != other.is_amd:
        notes.append("Libraries of another vendor choose other kernels: the interval is wider for it.")
    return notes


def _require_device(name: str) -> Device:
    found = find_device(name)
    if found is None:
        raise UsageError(f"device={name} is not known: give {offer_names(name)}")
    return found


def _how(value: str) -> str:
    return f"run on {value}; measure one step there first"


CHANGE: Final = Change(
    name="device",
    form="device=NAME",
    about="the job runs on another accelerator: its kernels take the time that the kernel model predicts there",
    cost="the price of the devices; kernels tuned for one device reach a smaller part of another's peak",
    how=_how,
    apply=_apply,
    is_hardware=True,
)
