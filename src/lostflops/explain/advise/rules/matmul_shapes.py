"""Matrix sizes are not multiples of the 16 bytes that the device loads at once."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from lostflops.account.facts.kernel_classes import uses_tensor_cores
from lostflops.account.facts.kernel_names import short
from lostflops.core.estimate import Estimate, Strength
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

_OPERANDS: Final = {"aten::mm": 0, "aten::bmm": 0, "aten::addmm": 1, "aten::baddbmm": 1}
"""Position of the first of the two matrices among an op's inputs."""
_TYPES: Final = {"c10::BFloat16": ("bf16", 2), "c10::Half": ("fp16", 2), "float": ("tf32", 4)}
_VECTOR: Final = 16
"""A thread loads this many bytes at once, so rows must start at multiples of it."""
_ALIGN: Final = re.compile(r"align(\d+)")
_PAD, _LARGE = 64, 512
"""Sizes are padded to whole tiles of 64, sizes below 512 only to whole vectors."""
_SLOW: Final = 0.7
"""A matmul below this part of the reference rate is slow, even if its kernel's name does not show it."""
_GOOD: Final = (0.4, 0.75)
"""Parts of the peak that matmuls of good sizes reach: at least and at best."""
_ALIKE: Final = 4
"""A matmul is a reference for others that differ from it by at most this factor in FLOPs."""
_START: Final = 5_000
"""No matmul is shorter than this, in ns; matmuls this short show nothing about sizes."""
_LEAST: Final = 0.03


@dataclass(frozen=True, slots=True)
class _Product:
    piece: ComputePiece
    batch: int
    sizes: tuple[int, int, int]
    dtype: str
    width: int

    @property
    def flops(self) -> int:
        return 2 * self.batch * self.sizes[0] * self.sizes[1] * self.sizes[2]

    @property
    def vector(self) -> int:
        return _VECTOR // self.width

    @property
    def odd(self) -> list[int]:
        return [size for size in self.sizes if size > self.vector and size % self.vector]

    @property
    def rate(self) -> float:
        """FLOP per ns."""
        return self.flops * self.piece.count / (self.piece.ns or 1)

    @property
    def is_unaligned(self) -> bool:
        """Whether the name of its kernel shows that it loads less than a vector at once."""
        told = _ALIGN.search(self.piece.name)
        return told is not None and int(told[1]) < self.vector

    def padded_ns(self, rate: float, memory_gbs: float) -> float:
        """Return the time of all calls with padded sizes at this rate, in ns; memory and the start of a kernel limit
        it."""
        m, k, n = (pad_size(size, self.vector) for size in self.sizes)
        moved = self.batch * self.width * (m * k + k * n + m * n)
        return self.piece.count * max(2 * self.batch * m * k * n / rate, moved / memory_gbs, _START)


def pad_size(size: int, vector: int) -> int:
    """Return the size that a dimension should be padded to.

    >>> pad_size(50257, 8), pad_size(100, 8), pad_size(4096, 8)
    (50304, 104, 4096)
    """
    step = _PAD if size >= _LARGE else vector
    return size if size % vector == 0 else -(-size // step) * step


def _find(case: Case) -> Iterator[Claim]:
    ranks, device = on_device(case), device_of(case)
    read = [one for one in read_computed_ranks(case) if one.record.on_device]
    compute = sum(one.compute for one in read)
    if device is None or not compute or not case.wall:
        return
    part = sum(case.lines[rank]["compute"] for rank in ranks) / case.wall
    found: list[tuple[int, _Product, float]] = []
    for one in read:
        products = [product for piece in one.pieces if (product := _product(piece)) is not None]
        found += [
            (one.rank, product, saved)
            for product in products
            if product.odd and (saved := _estimate_saving(product, products, device)) is not None
        ]
    share = sum(saved for _, _, saved in found) / compute * part
    if share < _LEAST:
        return
    found.sort(key=lambda item: -item[2])
    sizes = _sizes([product for _, product, _ in found])
    spent = sum(product.piece.own_ns for _, product, _ in found) / compute * part
    pads = ", ".join(f"{size} to {goal}" for size, goal in sizes)
    yield Claim(
        cause="matmul_shapes",
        what=(
            f"Matmuls with odd sizes ({', '.join(str(size) for size, _ in sizes)}) take {format_share(spent)} of the "
            "time of all ranks; padded ones would be faster."
        ),
        taken=attribute_line_share(case, "compute", share / part, ranks),
        evidence=tuple(_evidence(rank, product, saved) for rank, product, saved in found[:3]),
        strength=Strength.STRONG if any(product.is_unaligned for _, product, _ in found) else Strength.FAIR,
        certain_if="time these matmuls alone with padded sizes (torch.utils.benchmark).",
        fix=(
            f"Pad {pads}: vocabulary (nn.Embedding and the output layer, with the added logits sliced off or weighted "
            "zero in the loss), heads, hidden sizes or sequences. Use multiples of 64, or at least of 8."
        ),
        saving=Estimate.bound(share, _basis(device)),
    )


def _product(piece: ComputePiece) -> _Product | None:
    """Return the matrix product of a piece, if it runs on tensor cores and its shapes are known."""
    first = _OPERANDS.get(piece.op)
    if piece.kernel_class != "matmul" or first is None or uses_tensor_cores(piece.name) is False:
        return None
    shapes, types = json.loads(piece.shapes or "[]"), json.loads(piece.dtypes or "[]")
    if min(len(shapes), len(types)) < first + 2:
        return None
    left, right, kind = shapes[first], shapes[first + 1], types[first]
    if kind not in _TYPES or len(left) not in (2, 3) or len(left) != len(right):
        return None
    sizes = (left[-2], left[-1], right[-1])
    return _Product(piece, left[0] if len(left) > 2 else 1, sizes, *_TYPES[kind]) if all(sizes) else None


def _estimate_saving(product: _Product, others: list[_Product], device: Device) -> float | None:
    """Return what padding saves at most, in ns of `compute`; None if the matmul is not slow, or this is unknown."""
    good = [
        one.rate
        for one in others
        if not one.odd and one.dtype == product.dtype and one.flops * _ALIKE >= product.flops >= one.flops / _ALIKE
    ]
    peak, memory = device.peaks.get(product.dtype), device.memory_gbs
    if memory is None or (peak and product.flops / (peak * 1e3) < _START / 2):
        return None
    if good:
        least, most = min(good), max(good)
    elif peak:
        least, most = (part * peak * 1e3 for part in _GOOD)
    else:
        return None
    if not product.is_unaligned and product.rate > _SLOW * least:
        return None
    own = product.piece.own_ns / (product.piece.ns or 1)
    return max(0.0, product.piece.ns - product.padded_ns(most, memory)) * own or None


def _sizes(products: list[_Product]) -> list[tuple[int, int]]:
    """Return the odd sizes that take the most time, each with what to pad it to."""
    spent: Counter[tuple[int, int]] = Counter()
    for product in products:
        for size in set(product.odd):
            spent[size, pad_size(size, product.vector)] += product.piece.ns
    return [pair for pair, _ in spent.most_common(3)]


def _evidence(rank: int, product: _Product, saved: float) -> Evidence:
    piece = product.piece
    return Evidence(
        f"{shapes_of(piece)} ran {piece.count} times as {short(piece.name)} at {product.rate / 1e3:.3g} TFLOPS "
        f"({format_ns(piece.ns)} in total); padding would save at most {format_ns(round(saved))}",
        events=((rank, piece.event),),
        ranks=(rank,),
    )


def _basis(device: Device) -> str:
    return (
        "padded sizes at the rate of the fastest well-sized matmuls in this run, else at "
        f"{_GOOD[1]:.0%} of the peak of {device.name}"
    )


RULE: Final = Rule(
    cause="matmul_shapes",
    about=(
        "Tensor cores multiply small tiles, and loads read 16 bytes at a time. If the rows of a matrix are not "
        "multiples of that (8 numbers of 16 bits), slower kernels run that load number by number. A few rows or "
        "columns of zeros make the matmul larger but much faster."
    ),
    find=_find,
)
