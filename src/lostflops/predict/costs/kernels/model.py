"""How long does a kernel run on a device, by the data sheet of that device alone?

Products, convolutions and attention compute: `products` counts waves of tiles at the rate that the device sustains.
That rate is a part of the peak, less where the power limit is too low for it. Everything else moves bytes at a part of
the memory bandwidth; kernels that normalise rows read a row again if it does not stay in the cache.

Constants come from fp32 kernels. Other types use the same formulas with their own peaks, and rates of large products as
published (`ACHIEVABLE`), so they are less certain. The model knows nothing of libraries: a kernel that a library does
badly on one device is predicted as if it were done well. So where a kernel was measured, multiply its time by the ratio
of the model on both devices: `kernel_times(other) / kernel_times(own)`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from lostflops.account.facts.devices import DEVICES, Chip, Device
from lostflops.core.errors import NotApplicable
from lostflops.predict.costs.kernels.constants import (
    ACHIEVABLE,
    CACHE_WIDTH,
    ELSEWHERE_IN_TRAINING,
    FITTED,
    FLOOR_NS,
    IN_TRAINING,
    TENSOR_ENERGY,
    TENSOR_RAMP,
    TENSOR_SHARE,
    Constants,
)
from lostflops.predict.costs.kernels.products import DeviceBounds, Floats, Products, best_share, time_products

BYTES: Final = {"bf16": 2.0, "fp16": 2.0, "fp8": 1.0, "fp32": 4.0, "tf32": 4.0}
_REFERENCE_NM: Final = 7.0
_SOFT: Final = 12.0
_SHARP: Final = 4
_WIDE: Final = 128
_OLD_NM: Final = 12
_SHORT_ROW: Final = 1024
"""Rows up to this length stay in registers."""
_ATTENTION: Final = 0.7
"""Rate of fused attention beside that of a large product."""


@dataclass(frozen=True, slots=True)
class KernelWork:
    """What one kernel does."""

    kind: str
    """A class of `facts.kernel_classes`."""
    dtype: str
    """Of its numbers: bf16, fp16, fp8, fp32, or tf32 for products of fp32 numbers on tensor cores."""
    flops: float
    bytes: float
    """Read and written, each number once."""
    batch: int = 1
    m: int = 0
    n: int = 0
    """Columns of a product; for rows that are normalised, their length. 0 if unknown."""
    k: int = 0


def kernel_times(device: Device, works: Sequence[KernelWork], known: Constants = FITTED) -> Floats:
    """Return the time of each kernel in ns. Raise `NotApplicable` if the data sheet of the device is not known well
    enough."""
    times = np.empty(len(works))
    groups: dict[tuple[str, str], list[int]] = {}
    for at, work in enumerate(works):
        groups.setdefault((_model_of(work), work.dtype), []).append(at)
    for (model, dtype), places in groups.items():
        times[places] = _MODELS[model](device, dtype, [works[at] for at in places], known)
    return times + FLOOR_NS


def kernel_ns(device: Device, work: KernelWork) -> float:
    """Return the time of a kernel in ns.

    >>> from lostflops.account.facts.devices import find_device
    >>> product = KernelWork("matmul", "bf16", 2 * 8192**3, 3 * 2 * 8192**2, m=8192, n=8192, k=8192)
    >>> [round(kernel_ns(find_device(name), product) / 1e6, 1) for name in ("A100-SXM4-80GB", "H100-SXM5")]
    [4.2, 1.5]
    """
    return float(kernel_times(device, [work])[0])


def _model_of(work: KernelWork) -> str:
    if work.kind in ("matmul", "convolution"):
        return work.kind if min(work.m, work.n, work.k) > 0 else "flops"
    if work.kind == "attention":
        return "attention"
    return "rows" if work.kind == "normalisation" else "stream"


def _time_matmuls(device: Device, dtype: str, works: Sequence[KernelWork], known: Constants) -> Floats:
    batch, m, n, k = np.array([(work.batch, work.m, work.n, work.k) for work in works], np.float64).T
    rate, ramp = sustained_rate(device, dtype, known), known.ramp
    if dtype != "fp32":  # published rates are those of whole products
        rate, ramp = rate / best_share(known), TENSOR_RAMP
    bounds = DeviceBounds(require_chip(device), rate, require_bandwidth(device), ramp)
    return time_products(Products(batch, m, n, k, BYTES[dtype]), bounds, known)


def _time_convolutions(device: Device, dtype: str, works: Sequence[KernelWork], known: Constants) -> Floats:
    return _time_matmuls(device, dtype, works, known) / known.convolution_share


def _time_flops(device: Device, dtype: str, works: Sequence[KernelWork], known: Constants) -> Floats:
    return _columns(works)[0] / sustained_rate(device, dtype, known)


def _time_attention(device: Device, dtype: str, works: Sequence[KernelWork], known: Constants) -> Floats:
    return _time_flops(device, dtype, works, known) / _ATTENTION


def _time_streams(device: Device, dtype: str, works: Sequence[KernelWork], known: Constants) -> Floats:
    del dtype
    return _time_moves(device, _columns(works)[1], known.stream_memory)


def _time_moves(device: Device, moved: Floats, share: float) -> Floats:
    """Return the time to move these bytes. What the kernel before left in the cache is not read from memory."""
    slow = moved / (require_bandwidth(device) * share)
    chip = require_chip(device)
    if "fp32" not in device.peaks:
        return slow
    filled = moved / (chip.cache_mb * 1e6)
    missed = filled**_SHARP / (1 + filled**_SHARP)
    fast = moved / (chip.units * chip.clock_ghz(device.peaks["fp32"]) * CACHE_WIDTH)
    return np.asarray(missed * slow + (1 - missed) * np.minimum(fast, slow))


def _time_rows(device: Device, dtype: str, works: Sequence[KernelWork], known: Constants) -> Floats:
    """A row that is too long for registers is read again; from memory, unless the rows in flight fit into the cache."""
    moved, chip = _columns(works)[1], require_chip(device)
    length = np.array([work.n for work in works], np.float64)
    flying = chip.units * known.row_reuse * length * BYTES[dtype]
    filled = flying / (chip.cache_mb * 1e6)
    missed = np.where(length > _SHORT_ROW, filled**_SHARP / (1 + filled**_SHARP), 0.0)
    return _time_moves(device, moved * (1 + missed / 2), known.row_memory)


_MODELS: Final = {
    "matmul": _time_matmuls,
    "convolution": _time_convolutions,
    "flops": _time_flops,
    "attention": _time_attention,
    "rows": _time_rows,
    "stream": _time_streams,
}


def _columns(works: Sequence[KernelWork]) -> tuple[Floats, Floats]:
    return np.array([work.flops for work in works], np.float64), np.array([work.bytes for work in works], np.float64)


def sustained_rate(device: Device, dtype: str, known: Constants = FITTED) -> float:
    """Return the FLOPs per ns of large products: as published, or a part of the peak, less if the power limit of the
    device is too low for that part."""
    if dtype not in device.peaks:
        listed = ", ".join(device.peaks) or "none"
        raise NotApplicable(f"no confirmed {dtype} peak of {device.name} is known; known peaks: {listed}")
    peak = device.peaks[dtype] * 1e3
    if dtype != "fp32" and (best := _published_share(device, dtype)) is not None:
        return best * peak
    chip = require_chip(device)
    energy = known.energy_pj * (chip.nm / _REFERENCE_NM) ** known.energy_slope * _energy_of(device, dtype, known)
    powered = chip.watts * 1e3 / (energy * peak)
    return _best_share(device, chip, dtype, known) * float((1 + powered**-_SOFT) ** (-1 / _SOFT)) * peak


def _published_share(device: Device, dtype: str) -> float | None:
    """Return the best rate beside the peak. 16 bits and tf32 reach the same part."""
    listed = ACHIEVABLE.get(measured_name(device), {})
    source = "fp8" if dtype == "fp8" and "fp8" in listed else "bf16"
    return listed[source] / device.peaks[source] if source in listed else None


def training_share(device: Device, dtype: str) -> tuple[float, float]:
    """Return the least and the most part of the sustained rate that products reach in training. 16 bits and tf32 reach
    the same."""
    if dtype == "fp32":
        return ELSEWHERE_IN_TRAINING
    listed = IN_TRAINING.get(measured_name(device), {})
    return listed.get("fp8" if dtype == "fp8" else "bf16", ELSEWHERE_IN_TRAINING)


def measured_name(device: Device) -> str:
    """Return the name of the device whose published rates hold for this one: its own, or that of a device with the same
    chip and peak and no higher power limit. Of several, the one with the most similar memory.

    >>> from lostflops.account.facts.devices import find_device
    >>> [measured_name(find_device(name)) for name in ("B300", "H800", "A100-SXM4-40GB", "A100-PCIe-40GB")]
    ['B200', 'H100-SXM5', 'A100-SXM4-80GB', 'A100-PCIe-40GB']
    """
    if device.name in ACHIEVABLE or device.chip is None:
        return device.name
    siblings = [one for one in DEVICES if one.name in ACHIEVABLE and _is_same_chip(device, device.chip, one)]
    if not siblings:
        return device.name
    own = device.memory_gbs or 0.0
    return min(siblings, key=lambda one: abs((one.memory_gbs or 0.0) - own)).name


def _is_same_chip(device: Device, chip: Chip, measured: Device) -> bool:
    other = measured.chip
    return (
        other is not None
        and (chip.units, chip.cores, chip.nm) == (other.units, other.cores, other.nm)
        and chip.watts >= other.watts
        and device.peaks.get("bf16") == measured.peaks["bf16"]
    )


def _energy_of(device: Device, dtype: str, known: Constants) -> float:
    """Return the energy of an operation beside one of a vector unit: halving the bits halves it."""
    if dtype == "fp32":
        return known.matrix_energy if device.is_amd else 1.0
    return TENSOR_ENERGY * BYTES[dtype] / BYTES["bf16"]


def _best_share(device: Device, chip: Chip, dtype: str, known: Constants) -> float:
    if dtype != "fp32":
        return TENSOR_SHARE["AMD" if device.is_amd else "NVIDIA"]
    if device.is_amd:
        return known.matrix_share
    if chip.nm > _OLD_NM:
        return known.old_share
    return known.wide_share if chip.cores >= _WIDE else known.narrow_share


def require_chip(device: Device) -> Chip:
    if device.chip is None:
        raise NotApplicable(f"the data sheet of {device.name} is not known well enough to predict kernels there")
    return device.chip


def require_bandwidth(device: Device) -> float:
    if device.memory_gbs is None:
        raise NotApplicable(f"the memory bandwidth of {device.name} is not confirmed")
    return device.memory_gbs
