"""What if activations or optimizer states were kept in the memory of the host?

With `offload=activations`, what a layer keeps for its backward pass is copied to the host while later layers run
forward, and copied back while later layers run backward. With `offload=optimizer`, states come to the device for the
update in slices, and leave after it. Copies have streams of their own and overlap with compute as far as the data
allows.
"""

from __future__ import annotations

from typing import Final

from lostflops.account.memory.answers import WITH_MEMORY
from lostflops.account.memory.blocks import RankMemory
from lostflops.core.errors import NotApplicable
from lostflops.core.units import format_bytes, format_ns
from lostflops.predict.graph.replay import Schedule, replay
from lostflops.predict.graph.tasks import TaskGraph
from lostflops.predict.whatif.change import Change, Edited, Facts, Remembered
from lostflops.predict.whatif.changes.offload.blocks import (
    SLICES,
    STAY,
    kept_activations,
    require_device,
    state_bytes,
    typical_sizes,
    without_activations,
    without_states,
)
from lostflops.predict.whatif.changes.offload.copies import activation_copies, state_copies, with_copies
from lostflops.predict.whatif.changes.offload.link import HostLink, host_link
from lostflops.predict.whatif.graph_edits.checked_replay import replay_or_refuse
from lostflops.predict.whatif.graph_edits.values import one_of

_DOUBT: Final = 0.3
_DOUBT_OF_BYTES: Final = 0.15
_UNORDERED: Final = "kernels do not run in the order of layers, so copies cannot be placed"


def _apply(graph: TaskGraph, value: str, facts: Facts) -> Edited:
    one_of(value, ("activations", "optimizer"), "offload")
    memory = _require_memory(facts.memory)
    link = host_link(facts.device)
    if value == "activations":
        sizes = typical_sizes(kept_activations(memory))
        moved = sum(sizes[:-STAY])
        copies = activation_copies(graph, sizes)
    else:
        moved = state_bytes(memory)
        copies = state_copies(graph, moved)
    done = replay_or_refuse(with_copies(graph, copies, link.rate), _UNORDERED)
    ends = [replay(with_copies(graph, copies, rate)).mean_step for rate in (link.slowest, link.fastest)]
    return Edited(
        graph=done.graph,
        schedule=done,
        doubt=_DOUBT,
        off=max(abs(end - done.mean_step) for end in ends),
        notes=_notes(value, moved, link, memory, (replay(graph), done)),
        extra={"bytes_each_way": moved, "host_gbs": link.rate},
    )


def _require_memory(memory: RankMemory | None) -> RankMemory:
    if memory is None:
        raise NotApplicable(f"how many bytes would move was not recorded: record with {WITH_MEMORY}")
    require_device(memory)
    return memory


def _notes(
    value: str, moved: int, link: HostLink, memory: RankMemory, both: tuple[Schedule, Schedule]
) -> tuple[str, ...]:
    copies = moved / link.rate
    longer = max(both[1].mean_step - both[0].mean_step, 0)
    where = {
        "activations": (
            f"We assume that a layer's share of a pass is its share of the bytes. The last {STAY} layers stay on the "
            "device. torch.autograd.graph.save_on_cpu copies on the stream that computes: all copies would be exposed."
        ),
        "optimizer": (
            f"States come in {SLICES} slices, two on the device at a time, and the device updates them. An optimizer "
            "that runs on the CPU (DeepSpeed's CPUAdam, FSDP's CPUOffload) takes an unknown time."
        ),
    }
    return (
        (
            f"{format_bytes(moved)} move to the host and back in each step, {format_ns(round(copies))} each way at "
            f"{link.rate:.3g} GB/s ({link.said}); the step gets {format_ns(round(longer))} longer."
        ),
        (
            "The slots of the devices, and whether devices share a link, are unknown: the interval covers rates from "
            f"{link.slowest:.3g} to {link.fastest:.3g} GB/s."
        ),
        (
            f"All ranks move as much as rank {memory.rank}, from pinned memory. Not counted: calls that start "
            "copies, and other traffic on the link, such as batches or that of a network adapter."
        ),
        where[value],
    )


def _remember(memory: RankMemory, value: str, facts: Facts) -> Remembered:
    del facts
    _require_memory(memory)
    if value == "optimizer":
        note = f"Two of {SLICES} slices of optimizer states are on the device."
        return Remembered(without_states(memory), _DOUBT_OF_BYTES, (note,))
    note = (
        f"Up to {STAY} layers are on their way to the host at once, one layer comes back ahead of its backward pass, "
        f"and the last {STAY} layers stay."
    )
    return Remembered(without_activations(memory), _DOUBT_OF_BYTES, (note,))


def _how(value: str) -> str:
    if value == "optimizer":
        return "bitsandbytes.optim.PagedAdamW(...), or DeepSpeed with offload_optimizer (which updates on the CPU)"
    return "torchtune.training.OffloadActivations(use_streams=True), or TransformerEngine's get_cpu_offload_context"


CHANGE: Final = Change(
    name="offload",
    form="offload=activations|optimizer",
    about="activations or optimizer states are kept in the memory of the host",
    cost="a longer step for less memory on the device; the host needs pinned memory for all of its ranks",
    how=_how,
    apply=_apply,
    tried=("activations", "optimizer"),
    remember=_remember,
)
