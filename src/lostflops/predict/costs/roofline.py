"""Rates that one device reaches, from a calibration: matmuls, memory, launches, copies. Each is the best median."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median

from lostflops.core.errors import UnknownCost
from lostflops.predict.costs.calibration import Calibration


@dataclass(frozen=True, slots=True)
class Reached:
    """A rate and where it was reached."""

    rate: float
    """FLOP or bytes per ns."""
    at: str


@dataclass(frozen=True, slots=True)
class DeviceRoofline:
    matmuls: dict[str, Reached]
    """By dtype, in FLOP per ns."""
    memory: dict[str, Reached]
    """By kind, in bytes read and written per ns, which is GB/s."""
    copies: dict[str, Reached]
    """By direction and kind of host memory, in GB/s."""
    launch_ns: float | None

    def achievable_tflops(self, dtype: str) -> float:
        """Return the best rate that matmuls of this type reached, in TFLOP/s; raise `UnknownCost` if none was measured.

        >>> reached = {"float32": Reached(19_500.0, "4096 x 4096 x 4096")}
        >>> DeviceRoofline(reached, {}, {}, None).achievable_tflops("float32")
        19.5
        """
        if dtype not in self.matmuls:
            known = ", ".join(sorted(self.matmuls)) or "none"
            raise UnknownCost(f"matmuls of {dtype} were not measured; measured types: {known}")
        return self.matmuls[dtype].rate / 1000


def roofline(calibration: Calibration) -> DeviceRoofline:
    launches = [median(one.ns) for one in calibration.launches if one.ns]
    return DeviceRoofline(
        _best(
            (one.dtype, 2 * one.m * one.n * one.k, one.ns, f"{one.m} x {one.n} x {one.k}")
            for one in calibration.matmuls
        ),
        _best((one.kind, one.bytes, one.ns, f"{one.bytes} bytes") for one in calibration.memory),
        _best(
            (f"{one.direction}, {'pinned' if one.pinned else 'pageable'}", one.bytes, one.ns, f"{one.bytes} bytes")
            for one in calibration.copies
        ),
        min(launches, default=None),
    )


def _best(measured: Iterable[tuple[str, int, tuple[int, ...], str]]) -> dict[str, Reached]:
    found: dict[str, Reached] = {}
    for name, work, ns, where in measured:
        if ns and (middle := median(ns)) > 0:
            rate = work / middle
            if name not in found or rate > found[name].rate:
                found[name] = Reached(rate, where)
    return found
