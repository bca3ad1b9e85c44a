"""What if activations were stored in a more compact form until backward reads them?"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from lostflops.account.ledger.phases import BACKWARD, FORWARD
from lostflops.account.memory.answers import WITH_MEMORY
from lostflops.account.memory.blocks import RankMemory
from lostflops.core.errors import NotApplicable
from lostflops.core.units import format_bytes
from lostflops.predict.graph.editing import retime_graph
from lostflops.predict.graph.tasks import TaskGraph, TaskKind
from lostflops.predict.whatif.change import Change, Edited, Facts, Remembered
from lostflops.predict.whatif.graph_edits.moving import memory_rate
from lostflops.predict.whatif.graph_edits.selecting import number_distinct_rows
from lostflops.predict.whatif.graph_edits.values import one_of
from lostflops.predict.whatif.memory_edits.encoding import encodable, encode_activations

Times = npt.NDArray[np.float64]
_VALUES: Final = ("relu_mask", "sparse", "bf16", "fp8")
_DOUBT: Final = 2.0
"""Of the time: what one kernel would move is assumed, and encoders of several ops take 2.7 times as long."""
_OF_MEMORY: Final = {"relu_mask": 0.1, "sparse": 0.5, "bf16": 0.3, "fp8": 0.3}


def _apply(graph: TaskGraph, value: str, facts: Facts) -> Edited:
    one_of(value, _VALUES, "encode")
    if facts.memory is None:
        raise NotApplicable(f"no memory was recorded, so kept activations are unknown: record with {WITH_MEMORY}")
    moved = encodable(facts.memory, value, facts).moved(facts.memory)
    rate, said = memory_rate(graph, facts)
    duration = graph.tasks.duration.astype(np.float64)
    for phase in (FORWARD, BACKWARD):
        duration = _longer(graph, duration, phase, moved / 2 / rate)
    made = retime_graph(graph, duration=np.round(duration).astype(np.int64))
    note = (
        f"A step reads and writes {format_bytes(round(moved))} more to encode and decode, at an assumed {said}; half "
        "of it in each pass, in proportion to kernel times. Hooks made of several small ops take longer."
    )
    return Edited(graph=made, doubt=_DOUBT, notes=(note,))


def _longer(graph: TaskGraph, duration: Times, phase: int, more: float) -> Times:
    """Kernels of a phase with so many ns more in each rank's step."""
    tasks = graph.tasks
    rows = (tasks.kind == TaskKind.KERNEL) & (tasks.meeting < 0) & (tasks.phase == phase) & (tasks.step >= 0)
    if not rows.any():
        raise NotApplicable("forward and backward passes cannot be distinguished in this run")
    pair = number_distinct_rows(graph.rank, tasks.step)
    whole = np.bincount(pair, np.where(rows, duration, 0))
    factor = 1 + more / np.maximum(whole, 1)
    longer: Times = np.where(rows, duration * factor[pair], duration)
    return longer


def _remember(memory: RankMemory, value: str, facts: Facts) -> Remembered:
    found = encodable(memory, value, facts)
    whole, small = (format_bytes(int(sizes.sum())) for sizes in (memory.blocks.bytes[found.rows], found.small))
    notes = [
        f"{found.rows.size} blocks ({whole} in all steps) take {small} between the passes and are whole where read."
    ]
    if value == "sparse":
        notes.append("Half of the numbers are assumed to be zero; the recording does not contain values.")
    return Remembered(encode_activations(memory, found), _OF_MEMORY[value], tuple(notes))


def _how(value: str) -> str:
    if value == "relu_mask":
        return "with torch.autograd.graph.saved_tensors_hooks(pack, unpack): y = torch.relu(x); see examples/relu_mask"
    kind = {"sparse": "t.to_sparse_csr()", "bf16": "t.bfloat16()", "fp8": "t.to(torch.float8_e4m3fn) with a scale"}
    return f"torch.autograd.graph.saved_tensors_hooks with {kind[value]} in pack, and its reverse in unpack"


CHANGE: Final = Change(
    name="encode",
    form="encode=relu_mask|sparse|bf16|fp8",
    about="activations are stored as one-bit masks (ReLU), sparse or in fewer bits until backward reads them",
    cost="extra memory traffic to encode and decode; relu_mask and sparse are exact, bf16 and fp8 round gradients",
    how=_how,
    apply=_apply,
    tried=("relu_mask",),
    remember=_remember,
)
