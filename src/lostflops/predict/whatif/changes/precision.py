"""What if matmuls ran in another dtype?"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from lostflops.account.memory.blocks import RankMemory
from lostflops.core.errors import NotApplicable
from lostflops.predict.graph.tasks import TaskGraph
from lostflops.predict.whatif.change import Change, Edited, Facts, Remembered
from lostflops.predict.whatif.graph_edits.kernel_times import COMPUTE_BOUND, device_now, dtype_now, peak, scale_kernels
from lostflops.predict.whatif.graph_edits.values import one_of

_BYTES: Final = {"bf16": 2, "fp16": 2, "tf32": 4, "fp32": 4}
_CAST: Final = ("elementwise", "copy-cast")
"""Kernel classes that follow the dtype under autocast; norms, losses and the optimizer stay in fp32 there."""
_DOUBT: Final = 0.3
_FAR_DOUBT: Final = 0.5
_FAR: Final = 4.0
"""If the peak is more than this many times faster, matmuls seldom get that fast: reading their inputs takes as long."""


def _apply(graph: TaskGraph, value: str, facts: Facts) -> Edited:
    wanted = one_of(value, tuple(_BYTES), "precision")
    device, now = device_now(graph, facts), dtype_now(graph, facts)
    if now == wanted:
        raise NotApplicable(f"most FLOPs already run in {now}")
    if now not in _BYTES:
        raise NotApplicable(f"most FLOPs run in {now}, and the cost of leaving it is not modelled")
    quicker = peak(device, wanted) / peak(device, now)
    moved = _BYTES[wanted] / _BYTES[now]
    factors = dict.fromkeys(COMPUTE_BOUND, 1 / quicker) | dict.fromkeys(_CAST, moved)
    notes = (
        (
            f"Matmuls, attention and convolutions take {1 / quicker:.3g}x as long (ratio of the {now} and {wanted} "
            f"peaks of {device.name}), elementwise kernels and casts {moved:g}x (ratio of bytes moved)."
        ),
        (
            "Norms, losses, optimizer and gradients stay the same, as under autocast; the casts that autocast adds are "
            "not counted."
        ),
    )
    doubt = _FAR_DOUBT if quicker > _FAR else _DOUBT
    return Edited(graph=scale_kernels(graph, factors), doubt=doubt, notes=notes, facts=replace(facts, dtype=wanted))


def _how(value: str) -> str:
    if value == "tf32":
        return 'torch.set_float32_matmul_precision("high")'
    if value == "fp32":
        return 'no autocast, and torch.set_float32_matmul_precision("highest")'
    scaler = " and torch.amp.GradScaler" if value == "fp16" else ""
    return f'with torch.autocast("cuda", dtype=torch.{"bfloat16" if value == "bf16" else "float16"}):{scaler}'


def _remember(memory: RankMemory, value: str, facts: Facts) -> Remembered:
    if {value, facts.dtype} <= {"tf32", "fp32"}:
        return Remembered(memory, 0.0, ("Tensors are stored in fp32 either way.",))
    raise NotApplicable("the dtype of kept activations depends on what autocast casts and caches")


CHANGE: Final = Change(
    name="precision",
    form="precision=bf16|fp16|tf32|fp32",
    about="matmuls, attention and convolutions run in another dtype",
    cost="lower precision: compare the loss over a few thousand steps; fp16 needs loss scaling",
    how=_how,
    apply=_apply,
    tried=("bf16",),
    remember=_remember,
)
