"""What if the optimizer updated all parameters in one pass, or kept its states in 8 bits?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from lostflops.account.ledger.phases import OPTIMIZER
from lostflops.account.ledger.work import MATMUL_CLASSES
from lostflops.account.memory.blocks import RankMemory
from lostflops.account.memory.owners import Owner
from lostflops.core.errors import NotApplicable
from lostflops.predict.graph.editing import retime_graph, scale_rows
from lostflops.predict.graph.tasks import Because, Flags, LaneKind, Ns, TaskGraph, TaskKind
from lostflops.predict.whatif.change import Change, Edited, Facts, HeldParameter, Remembered, join_costs
from lostflops.predict.whatif.graph_edits.selecting import launchers, names_with, of_class, on_lanes
from lostflops.predict.whatif.graph_edits.values import one_of
from lostflops.predict.whatif.memory_edits.editing import resize_blocks, select_owned_blocks, without
from lostflops.predict.whatif.memory_edits.sharding import require_trained_parameters, update

_COSTS: Final = {
    "fused": "none if the optimizer has it (Adam, AdamW, SGD, Adagrad), results differ in the last digits",
    "8bit": "states are rounded, so compare the loss",
}
_PASSES: Final = 7 / 20
"""In one pass, Adam reads or writes parameters, gradients and both moments 7 times (4 read, 3 written), op by op 20
times: weight decay 2, lerp of the first moment 3, mul and addcmul of the second 2 and 3, sqrt, div and add of the
denominator 2 each, addcdiv 4 (torch/optim/adamw.py, `_multi_tensor_adamw`)."""
_IN_8_BITS: Final = 16 / 28
"""Part of the bytes of one pass that is left: parameters and gradients in 4 bytes (2 read, 1 written), both moments in
one byte (2 and 2)."""
_FUSED: Final = ("_fused_adam", "_fused_sgd", "_fused_adagrad", "fusedadam", "fusedsgd")
"""Parts of the names of PyTorch's fused optimizers, as ops and as kernels, in lower case."""
_UPDATES: Final = ("addcdiv", "addcmul", "lerp", "_foreach_")
"""Parts of the names of ops that update parameters one by one: if there are any, a second optimizer is not fused."""
_FEW: Final = 2
"""An optimizer with at most this many kernel names moves no more bytes than one pass would: SGD."""
_SOME: Final = 0.1
_STALL: Final = 1_000_000
"""A host task of this many ns or more is not part of the optimizer."""
_CALL: Final = 10_000
"""Most ns that calling an op on the host takes, whatever its size; this includes recording it."""
_START: Final = 2_000
"""Most ns that starting a kernel on a device takes."""
_FLOOR: Final = 10
"""This percentile of an op's calls, on the smallest of many parameters, is all call and no work."""
_DOUBT: Final = 0.5
_DOUBT_IN_8_BITS: Final = 0.75


_FEWEST: Final = 4096
"""bitsandbytes keeps states of at least this many elements in 8 bits (`min_8bit_size`,
bitsandbytes/optim/optimizer.py), in blocks as in Dettmers et al., 8-bit Optimizers via Block-wise Quantization, ICLR
2022."""
_BLOCK: Final = 256
"""Elements that share a scale of 4 bytes (`blocks = n // 256` there, since bitsandbytes 0.44, pull request 1365); 2048
in older versions, whose states are 1.4% smaller."""
_SCALE: Final = 4
_ROUNDED: Final = 512
"""The caching allocator of a GPU gives out multiples of this many bytes."""
_ALIKE: Final = 0.9
"""States have the dtype of parameters if at least this part of their bytes is in states as large as a parameter."""


def _apply(graph: TaskGraph, value: str, facts: Facts) -> Edited:
    del facts
    one_of(value, ("fused", "8bit"), "optimizer")
    kernels = _updates(graph)
    if not kernels.any():
        raise NotApplicable("no optimizer step was recognised")
    fused = names_with(graph, "fused") & kernels
    is_mostly = bool(graph.tasks.duration[fused].sum() > graph.tasks.duration[kernels].sum() / 2)
    by_torch = names_with(graph, *_FUSED) & kernels
    is_fused = is_mostly or bool(by_torch.any() and not (names_with(graph, *_UPDATES) & kernels & ~by_torch).any())
    if is_fused and value == "8bit":
        return _smaller(graph, by_torch if by_torch.any() else kernels)
    if is_fused:
        raise NotApplicable("the optimizer is already fused")
    if (
        graph.tasks.duration[kernels & of_class(graph, *MATMUL_CLASSES)].sum()
        > _SOME * graph.tasks.duration[kernels].sum()
    ):
        raise NotApplicable("the optimizer multiplies matrices, as Muon and Shampoo do, and has no fused form")
    host = on_lanes(graph, LaneKind.HOST)
    passes = np.unique(graph.tasks.name[kernels]).size
    worked = graph.tasks.duration - _calls(graph, kernels & host, _CALL) - _calls(graph, kernels & ~host, _START)
    duration = scale_rows(worked, kernels, _PASSES if passes > _FEW else 1.0)
    gap = graph.tasks.gap.copy()
    rows = np.flatnonzero(_dispatches(graph, kernels))
    begins = _begins(graph, rows)
    quiet = rows[~begins & ~kernels[rows]]
    duration[quiet] = 0
    inner = np.zeros(len(graph.tasks), np.bool_)
    inner[rows] = True
    inner[:-1] &= inner[1:] & host[:-1] & graph.follows[1:]
    inner[-1:] = False
    chained = np.zeros(len(graph.tasks), np.bool_)
    chained[:-1] = kernels[:-1] & kernels[1:] & graph.follows[1:]
    gap[(inner | chained) & (gap > 0)] = 0
    edges = graph.edges
    later = np.zeros(len(graph.tasks), np.bool_)
    later[quiet] = True
    launched = (edges.because == Because.LAUNCH) & later[edges.src]
    delay: Ns = np.where(launched, 0, edges.delay)
    made = replace(retime_graph(graph, duration=duration, gap=gap), edges=replace(edges, delay=delay))
    notes = (
        (
            "One launch per optimizer step. Its kernels lose their call or start overhead and, unless there are at "
            "most 2 kinds of them (SGD), take 7/20 of the rest: one pass of Adam moves 7/20 of the bytes that it moves "
            "op by op. Other optimizers differ, and small parameters gain more."
        ),
    )
    edited = Edited(graph=made, doubt=_DOUBT, notes=notes)
    if value == "fused":
        return edited
    smaller = _smaller(made, kernels)
    return replace(smaller, notes=(*notes, *smaller.notes), doubt=_DOUBT_IN_8_BITS)


def _smaller(graph: TaskGraph, kernels: Flags) -> Edited:
    """Scale the kernels to one pass over states of one byte per number."""
    note = (
        "With one-byte states, one pass of Adam moves 16/28 of the bytes. bitsandbytes launches one kernel per "
        "parameter, which is not counted."
    )
    return Edited(
        graph=retime_graph(graph, duration=scale_rows(graph.tasks.duration, kernels, _IN_8_BITS)),
        doubt=_DOUBT_IN_8_BITS,
        notes=(note,),
    )


def _updates(graph: TaskGraph) -> Flags:
    kernels = (graph.tasks.kind == TaskKind.KERNEL) & (graph.tasks.meeting < 0)
    found: Flags = kernels & ((graph.tasks.phase == OPTIMIZER) | of_class(graph, "optimizer"))
    return found


def _calls(graph: TaskGraph, ops: Flags, most: int) -> Ns:
    """Return the part of each op's time that is its call: an op that updates all parameters at once is called once."""
    taken = np.zeros(len(graph.tasks), np.int64)
    duration = graph.tasks.duration
    for name in np.unique(graph.tasks.name[ops]).tolist():
        own = ops & (graph.tasks.name == name)
        taken[own] = np.minimum(duration[own], min(int(np.percentile(duration[own], _FLOOR)), most))
    return taken


def _dispatches(graph: TaskGraph, kernels: Flags) -> Flags:
    """Select what the host does for an update: tasks of the phase, and launches of its kernels."""
    host = on_lanes(graph, LaneKind.HOST) & ~np.isin(
        graph.tasks.kind, (TaskKind.SYNC, TaskKind.DATA, TaskKind.MARK, TaskKind.COMM)
    )
    host &= (graph.tasks.duration < _STALL) | (graph.tasks.kind == TaskKind.KERNEL)
    launches = np.zeros(len(graph.tasks), np.bool_)
    caller = launchers(graph)[kernels]
    launches[caller[caller >= 0]] = True
    found: Flags = host & ((graph.tasks.phase == OPTIMIZER) | launches)
    return found


def _begins(graph: TaskGraph, rows: Ns) -> Flags:
    """Select the first launch of each rank and step among the rows; the first row of any kind if nothing is
    launched."""
    pairs = np.stack((graph.rank[rows], graph.tasks.step[rows], graph.tasks.kind[rows] != TaskKind.LAUNCH), axis=1)
    order = np.lexsort((rows, pairs[:, 2], pairs[:, 1], pairs[:, 0]))
    found = np.zeros(rows.size, np.bool_)
    found[order[np.unique(pairs[order][:, :2], axis=0, return_index=True)[1]]] = True
    return found


def _how(value: str) -> str:
    if value == "8bit":
        return "bitsandbytes.optim.AdamW8bit(...), on an accelerator"
    return "torch.optim.AdamW(..., fused=True)"


def _remember(memory: RankMemory, value: str, facts: Facts) -> Remembered:
    if value == "8bit":
        note = (
            "States of 4096 or more elements take one byte per element and 4 bytes per 256 elements, as in "
            "bitsandbytes 0.44 and later."
        )
        return Remembered(
            _keep_states_in_8_bits(memory, require_trained_parameters(facts), facts.memory or memory), 0.05, (note,)
        )
    return Remembered(_update_in_one_pass(memory), 0.1, ("A fused update allocates no temporaries.",))


CHANGE: Final = Change(
    name="optimizer",
    form="optimizer=fused|8bit",
    about="the optimizer updates all parameters in one pass (fused), or keeps its states in 8 bits",
    cost=join_costs(_COSTS),
    costs=_COSTS,
    how=_how,
    apply=_apply,
    tried=("fused",),
    remember=_remember,
)


def _update_in_one_pass(memory: RankMemory) -> RankMemory:
    """Remove what updates op by op allocate temporarily."""
    return without(memory, update(memory))


def _keep_states_in_8_bits(memory: RankMemory, held: Sequence[HeldParameter], recorded: RankMemory) -> RankMemory:
    """Resize each state, which has as many elements as its parameter, to a byte per element plus the scales of its
    blocks. `recorded` is the memory before other changes, in which states are as large as their parameters if they have
    their dtype."""
    states = np.flatnonzero(select_owned_blocks(memory, Owner.OPTIMIZER))
    if not states.size:
        raise NotApplicable("the optimizer keeps no state, or it was not recorded")
    sizes = {one.element for one in held}
    if len(sizes) != 1:
        raise NotApplicable("the dtype of optimizer states is unknown: parameters have no recorded dtype, or several")
    if not _are_as_parameters(recorded, held):
        raise NotApplicable(
            "the dtype of optimizer states is unknown: they are not as large as parameters, or already in 8 bits"
        )
    elements = memory.blocks.bytes[states] // sizes.pop()
    small = elements + -(-elements // _BLOCK) * _SCALE
    changed = resize_blocks(memory, states, np.where(elements >= _FEWEST, small, memory.blocks.bytes[states]))
    return _update_in_one_pass(changed)


def _are_as_parameters(memory: RankMemory, held: Sequence[HeldParameter]) -> bool:
    size = memory.blocks.bytes[select_owned_blocks(memory, Owner.OPTIMIZER)]
    own = np.array([one.bytes for one in held])
    alike = np.isin(size, np.concatenate((own, -(-own // _ROUNDED) * _ROUNDED)))
    return bool(size[alike].sum() >= _ALIKE * size.sum())
