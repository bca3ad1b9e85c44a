"""Times of kernels on another device, from their times on this one.

A measured time is multiplied by the ratio of the model on both devices, so that what the model gets wrong on both
cancels. Kernels that compute keep their distance from the rate that their device sustains; all others keep theirs from
the memory bandwidth. What stays in a larger cache is not counted: a time does not show how many bytes were moved.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import numpy.typing as npt

from lostflops.account.facts.devices import Device
from lostflops.predict.costs.kernels.constants import FLOOR_NS
from lostflops.predict.costs.kernels.model import require_bandwidth, sustained_rate

Times = npt.NDArray[np.int64]
_COMPUTES: Final = ("matmul", "convolution", "attention")


def rescale(own: Device, other: Device, kind: str, dtype: str, times: Times) -> Times:
    """Return the times on `other` of kernels of a class that take `times` ns on `own`. The shortest time of a kernel
    does not come from its work, so it stays. Raise `NotApplicable` if a data sheet is not known well enough."""
    beyond = np.maximum(times - FLOOR_NS, 0.0)
    factor = rate_ratio(own, other, dtype) if kind in _COMPUTES else bandwidth_ratio(own, other)
    scaled: Times = np.rint(times - beyond + beyond * factor).astype(np.int64)
    return scaled


def rate_ratio(own: Device, other: Device, dtype: str) -> float:
    """Return how many times longer large products take on the other device."""
    return sustained_rate(own, dtype) / sustained_rate(other, dtype)


def bandwidth_ratio(own: Device, other: Device) -> float:
    """Return how many times longer moving memory takes on the other device."""
    return require_bandwidth(own) / require_bandwidth(other)


HALF_WIDTHS: Final[Mapping[bool, float]] = {True: 0.2, False: 0.3}
"""Part by which the kernel time of a job may be off on the other device, in nine of ten cases: within one vendor, and
between vendors, whose libraries differ. docs/explanation/another-device.md has the jobs that it comes from."""


def half_width(own: Device, other: Device) -> float:
    return HALF_WIDTHS[own.is_amd == other.is_amd]
