"""Rates of a device: products by shape, memory, launches; measured by a calibration, or as published.

Without a calibration, rates are ranges below the dense peak. The best rate of products is that of the kernel model
(`costs/kernels`), so that a described job and a measured one get the same ratio between two devices: public
measurements where there are some, a part of the peak within the power limit for others. Training reaches a part of it
(`IN_TRAINING`), lower if a side is short. Fused attention reaches 30% to 75% of peak (FlashAttention 2 and 3 report 50%
to 75% for long sequences), memory 70% to 90% of its data sheet.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log
from typing import Final, Protocol

from lostflops.account.facts.devices import DEVICES, Device, find_device, offer_names
from lostflops.core.errors import UsageError
from lostflops.predict.costs.kernels.constants import ACHIEVABLE
from lostflops.predict.costs.kernels.model import measured_name, sustained_rate, training_share
from lostflops.predict.estimate.ranges import Range

_BEST: Final = 0.8
_ATTENTION: Final = Range(0.3, 0.75)
_SHORT: Final = 128
_SHORT_SEQUENCE: Final = 512
_MEMORY: Final = Range(0.7, 0.9)
LAUNCH_NS: Final = 6_000
"""Time from one small op to the next in eager PyTorch, as its profiles show on current hosts."""

GIB: Final = 1 << 30
MEMORY: Final[Mapping[str, float]] = {
    "A10": 22.0,
    "A10G": 21.9,
    "A100-SXM4-40GB": 39.3,
    "A100-SXM4-80GB": 79.1,
    "L4": 22.0,
    "L40S": 44.3,
    "RTX 3090": 23.6,
    "RTX 4090": 23.5,
    "H100-SXM5": 79.1,
    "H100-PCIe": 79.1,
    "H200-SXM": 139.7,
    "B200": 178.3,
    "MI250X (one GCD)": 63.9,
    "MI300X": 191.9,
}
"""GiB that PyTorch reports as a device's capacity, rounded down; devices that come in several sizes are not listed."""


class Rates(Protocol):
    @property
    def source(self) -> str: ...

    @property
    def peak(self) -> float | None:
        """Dense FLOPs per second at the dtype, which MFU refers to."""
        ...

    def flops(self, m: int, n: int, k: int) -> Range:
        """Return the FLOPs per second of a product; of large ones if no side is known (0)."""
        ...

    def attention(self, sequence: int) -> Range: ...

    @property
    def memory(self) -> Range:
        """Memory bandwidth in bytes per second."""
        ...

    @property
    def launch_ns(self) -> float: ...


@dataclass(frozen=True, slots=True)
class PublishedRates:
    device: Device
    dtype: str

    @property
    def source(self) -> str:
        name, measured = self.device.name, measured_name(self.device)
        rates = "kernel model" if self.device.chip else f"{_BEST:.0%} of peak at best"
        if measured in ACHIEVABLE:
            rates = "public measurements" + (f" of {measured}, which has the same chip" if measured != name else "")
        return f"{name}: {self.device.source}; {rates}"

    @property
    def peak(self) -> float | None:
        peak = self.device.peaks.get(self.dtype)
        return None if peak is None else peak * 1e12

    @property
    def _known_peak(self) -> float:
        if self.peak is None:
            raise UsageError(f"the {self.dtype} rate of {self.device.name} is not known: give --dtype or --calibration")
        return self.peak

    def flops(self, m: int, n: int, k: int) -> Range:
        peak = self._known_peak
        best = sustained_rate(self.device, self.dtype) * 1e9 if self.device.chip else _BEST * peak
        side = min(m, n, k)
        short = side / (side + _SHORT) if side else 1
        return Range(*training_share(self.device, self.dtype)) * (short * best)

    def attention(self, sequence: int) -> Range:
        """Return the FLOPs per second of attention, in bf16 if products are in fp8, which is only for products."""
        short = sequence / (sequence + _SHORT_SEQUENCE)
        peak = self.device.peaks["bf16"] * 1e12 if self.dtype == "fp8" else self._known_peak
        return Range(_ATTENTION.low * short, _ATTENTION.high) * peak

    @property
    def memory(self) -> Range:
        if self.device.memory_gbs is None:
            raise UsageError(f"the memory bandwidth of {self.device.name} is not known: give --calibration")
        return _MEMORY * (self.device.memory_gbs * 1e9)

    @property
    def launch_ns(self) -> float:
        return LAUNCH_NS


@dataclass(frozen=True, slots=True)
class MeasuredRates:
    """Rates from samples of a calibration."""

    source: str
    products: Sequence[tuple[int, int, int, float]]
    """(m, n, k, FLOPs per second)."""
    bandwidths: Sequence[float]
    """Bytes per second."""
    launch_ns: float
    """Time between launches."""
    peak: float | None

    def flops(self, m: int, n: int, k: int) -> Range:
        """Return the slowest and the fastest of the three measured shapes that are nearest; of the three fastest shapes
        if a side is unknown (0)."""
        if not min(m, n, k):
            rates = sorted(rate for *_, rate in self.products)[-3:]
        else:
            near = sorted(self.products, key=lambda one: _distance((m, n, k), one[:3]))
            rates = [rate for *_, rate in near[:3]]
        return Range(min(rates), max(rates))

    def attention(self, sequence: int) -> Range:
        best = max(rate for *_, rate in self.products)
        short = sequence / (sequence + _SHORT_SEQUENCE)
        return Range(_ATTENTION.low * short, _ATTENTION.high) * best

    @property
    def memory(self) -> Range:
        return Range(min(self.bandwidths), max(self.bandwidths))


@dataclass(frozen=True, slots=True)
class PartlyMeasuredRates:
    """Rates from a calibration without products in the dtype: those are as published, memory and launches as
    measured."""

    published: PublishedRates
    measured: str
    bandwidths: Sequence[float]
    launch_ns: float

    @property
    def source(self) -> str:
        return f"matmuls as published, not measured ({self.published.source}); {self.measured}"

    @property
    def peak(self) -> float | None:
        return self.published.peak

    def flops(self, m: int, n: int, k: int) -> Range:
        return self.published.flops(m, n, k)

    def attention(self, sequence: int) -> Range:
        return self.published.attention(sequence)

    @property
    def memory(self) -> Range:
        return Range(min(self.bandwidths), max(self.bandwidths)) if self.bandwidths else self.published.memory


def _distance(one: tuple[int, ...], other: tuple[int, ...]) -> float:
    return sum(log(a / b) ** 2 for a, b in zip(one, other, strict=True))


def device_named(name: str) -> Device:
    """Return a device by our name for it or by its own; raise `UsageError` if it is unknown."""
    for device in DEVICES:
        if device.name.casefold() == name.casefold():
            return device
    if (found := find_device(name)) is None:
        raise UsageError(f"no device is called {name!r}: write {offer_names(name)}. For any other, give --calibration")
    return found


def capacity(device: Device | None) -> int | None:
    """Return the bytes of memory, None if the name of the device does not determine them."""
    size = MEMORY.get(device.name) if device else None
    return None if size is None else int(size * GIB)
