"""Matmuls run in fp32 on a device that is much faster in lower precision."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from lostflops.account.facts.kernel_classes import rounds_to_tf32
from lostflops.account.facts.kernel_names import short
from lostflops.account.ledger.work import MATMUL_CLASSES
from lostflops.core.estimate import Strength
from lostflops.core.results import Evidence
from lostflops.core.units import format_ns, format_share
from lostflops.explain.advise.claim import Claim
from lostflops.explain.advise.rule import Rule
from lostflops.explain.advise.signs.computed_ranks import (
    attribute_line_share,
    device_of,
    on_device,
    read_computed_ranks,
    shapes_of,
)

if TYPE_CHECKING:
    from lostflops.account.facts.devices import Device
    from lostflops.account.ledger.pieces import ComputePiece
    from lostflops.explain.advise.case import Case
    from lostflops.explain.advise.signs.computed_ranks import Computed

_LEAST: Final = 0.05
"""fp32 matmuls must take at least this share of the wall time."""
_MUCH: Final = 2.0
"""The device must be more than this many times as fast in a shorter dtype."""
_FP32_KERNEL: Final = re.compile(r"(?:^|_)sgemm|f32f32_f32f32_f32|_ffma_|cijk_\w*_s_?b?_mt", re.IGNORECASE)
_SHORTER: Final = ("bf16", "fp16", "tf32")


def _find(case: Case) -> Iterator[Claim]:
    ranks, device = on_device(case), device_of(case)
    if not ranks or device is None or not case.wall:
        return
    wanted = _choose_dtype(device)
    found = [(one, slow) for one in read_computed_ranks(case) if (slow := _slow(one))]
    if wanted is None or not found:
        return
    quicker = device.peaks[wanted] / device.peaks["fp32"]
    share = sum(p.own_ns for _, slow in found for p in slow) / (
        sum(one.compute for one in read_computed_ranks(case)) or 1
    )
    spent = share * sum(case.lines[rank]["compute"] for rank in ranks) / case.wall
    if spent < _LEAST:
        return
    one, slow = found[0]
    largest = sorted(slow, key=lambda piece: -piece.own_ns)[:3]
    yield Claim(
        cause="precision",
        what=(
            f"fp32 matmuls take {format_share(spent)} of the time of all ranks; the peak of {device.name} is "
            f"{quicker:.0f} times as high in {wanted}."
        ),
        taken=attribute_line_share(case, "compute", share * (1 - 1 / quicker), ranks),
        evidence=tuple(_evidence(one, piece) for piece in largest),
        strength=Strength.STRONG if any(piece.dtypes for piece in slow) else Strength.FAIR,
        certain_if="run under torch.autocast and compare the loss over a few thousand steps.",
        fix=_fix(device, wanted),
        changes=(f"precision={wanted}",),
    )


def _choose_dtype(device: Device) -> str | None:
    """Return the first shorter dtype that is much faster, or None."""
    slow = device.peaks.get("fp32")
    return next((d for d in _SHORTER if slow and device.peaks.get(d, 0) > _MUCH * slow), None)


def _slow(one: Computed) -> list[ComputePiece]:
    return [piece for piece in one.pieces if piece.kernel_class in MATMUL_CLASSES and _is_fp32(piece)]


def _is_fp32(piece: ComputePiece) -> bool:
    """Return whether a piece runs in fp32, by the types of the op's inputs, otherwise by the name of the kernel;
    kernels that round to tf32 run on tensor cores."""
    if rounds_to_tf32(piece.name):
        return False
    if piece.dtypes:
        types = set(re.findall(r'"([^"]+)"', piece.dtypes)) - {"Scalar", "ScalarList", "TensorList"}
        return "float" in types and not any(t in ("c10::BFloat16", "c10::Half") or "Float8" in t for t in types)
    return _FP32_KERNEL.search(piece.name) is not None


def _evidence(one: Computed, piece: ComputePiece) -> Evidence:
    return Evidence(
        f"{shapes_of(piece) or 'unknown op'} ran {piece.count} times as {short(piece.name)}, {format_ns(piece.ns)} in "
        "total",
        events=((one.rank, piece.event),),
        ranks=(one.rank,),
        steps=one.made.window.number,
    )


def _fix(device: Device, wanted: str) -> str:
    scaled = " with torch.amp.GradScaler" if wanted == "fp16" else ""
    dtype = {"bf16": "torch.bfloat16", "fp16": "torch.float16"}.get(wanted)
    parts = []
    if device.peaks.get("tf32", 0) > device.peaks["fp32"]:
        parts.append('Call torch.set_float32_matmul_precision("high") at the start of the program, for TF32.')
    if dtype:
        more = "For more speed, run" if parts else "Run"
        parts.append(f'{more} forward and loss under torch.autocast("cuda", {dtype}){scaled}, for {wanted}.')
    return " ".join(parts)


RULE: Final = Rule(
    cause="precision",
    about=(
        "Accelerators multiply 16-bit matrices on tensor cores, 8 to 30 times as fast as in full fp32. TF32 uses the "
        "same units for fp32 tensors, with fewer digits. PyTorch uses neither by default."
    ),
    find=_find,
)
