"""What if activations were stored in a more compact form until backward reads them?

After Gist (Jain et al., Gist: Efficient Data Encoding for Deep Neural Network Training, ISCA 2018): with `relu_mask`, a
ReLU output that only its own backward pass reads becomes one bit per number (Binarize); with `sparse`, one that the
next product reads too becomes values with narrow indices, assuming half zeros (Sparse Storage and Dense Compute); with
`bf16` or `fp8`, activations are kept in fewer bits (Delayed Precision Reduction). A tensor is whole until the next op
of the forward pass is done, and again while the backward pass reads it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from lostflops.account.ledger.phases import BACKWARD, FORWARD
from lostflops.account.memory.answers import WITH_MEMORY
from lostflops.account.memory.blocks import Codes, Flags, RankMemory
from lostflops.account.memory.owners import Owner
from lostflops.core.errors import NotApplicable
from lostflops.core.units import format_bytes
from lostflops.predict.graph.editing import retime_graph
from lostflops.predict.graph.tasks import TaskGraph, TaskKind
from lostflops.predict.whatif.change import Change, Edited, Facts, Remembered
from lostflops.predict.whatif.graph_edits.moving import memory_rate
from lostflops.predict.whatif.graph_edits.selecting import number_distinct_rows
from lostflops.predict.whatif.graph_edits.values import one_of
from lostflops.predict.whatif.memory_edits.editing import New, add_blocks, change_lifetimes, select_owned_blocks

Times = npt.NDArray[np.float64]
_VALUES: Final = ("relu_mask", "sparse", "bf16", "fp8")
_DOUBT: Final = 2.0
"""Doubt of the time: it assumes what one kernel would move, and encoders of several ops take 2.7 times as long."""
_OF_MEMORY: Final = {"relu_mask": 0.1, "sparse": 0.5, "bf16": 0.3, "fp8": 0.3}


_RELU: Final = re.compile(r"relu_?|clamp_min_?")
_READS_NONE: Final = re.compile(
    r"(native_|feature_|alpha_)?dropout_?|add_?|sub_?|rsub|mean|sum|cat|(adaptive_)?avg_pool\dd|pad|constant_pad_nd"
)
"""Ops whose backward reads no number of their input: then the ReLU's own backward is the only reader of its output.
Whole names: addmm and einsum read what they multiply, and backward of a PReLU needs the numbers."""
_NO_NUMBERS: Final = re.compile(r".*(dropout|max_pool|embedding|argmax|topk|sort|randperm|bernoulli).*")
"""Ops that keep masks, indices or whole numbers."""
_BITS: Final = 8
_ZEROS: Final = 0.5
"""Part of a ReLU's output that is zero; Gist measured 40% and more in all layers of its networks."""
_INDEX: Final = 1
"""Bytes of a narrow index: rows of 256 values."""
_LEAST: Final = 4096
"""Blocks of fewer bytes are not encoded."""
_STORED_BYTES: Final = {"bf16": 2, "fp8": 1}
_BYTES: Final = {"fp32": 4, "tf32": 4, "bf16": 2, "fp16": 2, "fp8": 1, "fp64": 8}


def _apply(graph: TaskGraph, value: str, facts: Facts) -> Edited:
    one_of(value, _VALUES, "encode")
    if facts.memory is None:
        raise NotApplicable(f"no memory was recorded, so kept activations are unknown: record with {WITH_MEMORY}")
    moved = _find_encodable(facts.memory, value, facts).count_moved_bytes(facts.memory)
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
    """Make the kernels of a phase `more` ns longer in total in each rank's step."""
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
    found = _find_encodable(memory, value, facts)
    whole, small = (format_bytes(int(sizes.sum())) for sizes in (memory.blocks.bytes[found.rows], found.small))
    notes = [
        f"{found.rows.size} blocks ({whole} in all steps) take {small} between the passes and are whole where read."
    ]
    if value == "sparse":
        notes.append("Half of the numbers are assumed to be zero; the recording does not contain values.")
    return Remembered(_encode_activations(memory, found), _OF_MEMORY[value], tuple(notes))


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


@dataclass(frozen=True, slots=True)
class Encoded:
    """Blocks that are encoded."""

    rows: Codes
    """Rows of the blocks."""
    small: Codes
    """Encoded sizes in bytes."""
    used: Codes
    """Event of forward until which each block stays whole."""

    def count_moved_bytes(self, memory: RankMemory) -> float:
        """Return the bytes read and written in a step to encode and decode."""
        steps = max(np.unique(memory.blocks.step[self.rows]).size, 1)
        return 2 * float((memory.blocks.bytes[self.rows] + self.small).sum()) / steps


def _find_encodable(memory: RankMemory, value: str, facts: Facts) -> Encoded:
    """Find the blocks that can be encoded. Raise `NotApplicable` if there is none."""
    element = _element(facts)
    blocks = memory.blocks
    turn = _turn(memory)
    kept = select_owned_blocks(memory, Owner.ACTIVATIONS) & (blocks.phase == FORWARD) & (blocks.bytes >= _LEAST)
    kept &= blocks.died > turn
    following, used = _following(memory, turn)
    from_relu = _match_op_names(memory, _RELU)[blocks.op]
    alone = _match_op_names(memory, _READS_NONE)[blocks.op[following]] & (following >= 0)
    if value == "relu_mask":
        chosen, why = kept & from_relu & alone, "no ReLU output is kept only for its own backward"
        each = 1 / (_BITS * element)
    elif value == "sparse":
        chosen, why = kept & from_relu & ~alone, "no ReLU output is kept for a matmul after it"
        each = (1 - _ZEROS) * (element + _INDEX) / element
    else:
        chosen, why = kept & ~_match_op_names(memory, _NO_NUMBERS)[blocks.op], "no activations were identified"
        each = _STORED_BYTES[value] / element
    if not chosen.any() or each >= 1:
        raise NotApplicable(why if not chosen.any() else f"activations already have {element} bytes per number")
    rows = np.flatnonzero(chosen)
    return Encoded(rows, np.ceil(blocks.bytes[rows] * each).astype(np.int64), used[rows])


def _encode_activations(memory: RankMemory, found: Encoded) -> RankMemory:
    blocks, rows = memory.blocks, found.rows
    born, died, size = blocks.born[rows], blocks.died[rows], blocks.bytes[rows]
    changed = change_lifetimes(memory, rows, died=np.minimum(np.maximum(found.used, born + 1), died))
    changed = add_blocks(changed, New(born, died, found.small, Owner.ACTIVATIONS))
    return add_blocks(changed, New(_find_read_events(memory, rows), died, size, Owner.TEMPORARIES))


def _element(facts: Facts) -> int:
    """Return the bytes per number in activations: those of parameters, if these have one dtype and matmuls run in it.
    Under autocast, some activations have the dtype of matmuls and some that of parameters."""
    sizes = {one.element for one in facts.held}
    if len(sizes) != 1:
        raise NotApplicable("the dtype of activations is unknown: parameters have no recorded dtype, or several")
    size = sizes.pop()
    if facts.dtype in _BYTES and _BYTES[facts.dtype] != size:
        raise NotApplicable(
            f"the dtype of activations is unknown: matmuls run in {facts.dtype}, but parameters have {size} bytes per "
            "number"
        )
    return size


def _match_op_names(memory: RankMemory, names: re.Pattern[str]) -> Flags:
    """Return which texts are ops with such a name."""
    plain = (text.removeprefix("aten::") for text in memory.texts)
    return np.array([names.fullmatch(text) is not None for text in plain], np.bool_)


def _turn(memory: RankMemory) -> Codes:
    """Return the event at which backward first allocates after each block; the end of the window if it does not."""
    blocks = memory.blocks
    back = np.sort(blocks.born[(blocks.phase == BACKWARD) & (blocks.born >= 0)])
    found: Codes = np.append(back, memory.time.size)[np.searchsorted(back, blocks.born, side="right")]
    return found


def _following(memory: RankMemory, turn: Codes) -> tuple[Codes, Codes]:
    """Return for each block of a forward pass the first block that another op allocates after it, -1 if there is none;
    and the event at which yet another op allocates, because the first one is done by then, or at which the pass
    ends."""
    blocks = memory.blocks
    order = np.flatnonzero((blocks.phase == FORWARD) & (blocks.born >= 0))
    order = order[np.argsort(blocks.born[order], kind="stable")]
    site = blocks.op[order] * len(memory.texts) + blocks.module[order]
    begins = np.flatnonzero(np.append(True, site[1:] != site[:-1])) if order.size else order
    run = np.searchsorted(begins, np.arange(order.size), side="right")
    starts = np.append(begins, [order.size] * 2)
    place = np.append(order, -1)
    following = np.full(len(blocks), -1)
    following[order] = place[np.minimum(starts[run], order.size)]
    following[blocks.born[following] > turn] = -1
    behind = place[np.minimum(starts[run + 1], order.size)]
    used = turn.copy()
    used[order] = np.where(behind >= 0, np.minimum(blocks.born[behind], turn[order]), turn[order])
    return following, used


def _find_read_events(memory: RankMemory, rows: Codes) -> Codes:
    """Return the event at which backward reads each block: its last allocation of the same size before the block is
    freed; without such an allocation, the last event before the block is freed."""
    blocks = memory.blocks
    back = np.flatnonzero((blocks.phase == BACKWARD) & (blocks.born >= 0))
    found = np.maximum(blocks.died[rows] - 1, blocks.born[rows])
    for size in np.unique(blocks.bytes[rows]).tolist():
        born = np.sort(blocks.born[back[blocks.bytes[back] == size]])
        own = np.flatnonzero(blocks.bytes[rows] == size)
        place = np.searchsorted(born, blocks.died[rows[own]]) - 1
        known = place >= 0
        known[known] = born[place[known]] > blocks.born[rows[own[known]]]
        found[own[known]] = born[place[known]]
    return found
