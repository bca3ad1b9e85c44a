"""Times of kernels on another device, from their times on this one.

A measured time is multiplied by the ratio of the model on both devices, so that what the model gets wrong on both
cancels. Kernels that compute keep their distance from the rate that products reach in training on their device, the
middle of what `estimate` expects there; all others keep theirs from the memory bandwidth. What stays in a larger cache
is not counted: a time does not show how many bytes were moved.
"""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean
from typing import Final

import numpy as np
import numpy.typing as npt

from lostflops.account.facts.devices import Device
from lostflops.predict.costs.kernels.constants import FLOOR_NS
from lostflops.predict.costs.kernels.model import require_bandwidth, require_chip, sustained_rate, training_share

Times = npt.NDArray[np.int64]


def rescale(times: Times, factor: float) -> Times:
    """Return the times on another device of kernels that take `times` ns here. The shortest time of a kernel does not
    come from its work, so it stays."""
    beyond = np.maximum(times - FLOOR_NS, 0.0)
    scaled: Times = np.rint(times - beyond + beyond * factor).astype(np.int64)
    return scaled


def rate_ratio(own: Device, other: Device, dtype: str) -> float:
    """Return how many times longer products take on the other device. Raise `NotApplicable` if a data sheet is not
    known well enough."""
    return _training_rate(own, dtype) / _training_rate(other, dtype)


def _training_rate(device: Device, dtype: str) -> float:
    return sustained_rate(device, dtype) * fmean(training_share(device, dtype))


def bandwidth_ratio(own: Device, other: Device) -> float:
    """Return how many times longer moving memory takes on the other device. Raise `NotApplicable` as above."""
    require_chip(own)
    require_chip(other)
    return require_bandwidth(own) / require_bandwidth(other)


HALF_WIDTHS: Final[Mapping[bool, float]] = {True: 0.2, False: 0.3}
"""Part by which the kernel time of a job may be off on the other device, in nine of ten cases: within one vendor, and
between vendors, whose libraries differ. docs/explanation/another-device.md has the jobs that it comes from."""


def half_width(own: Device, other: Device) -> float:
    return HALF_WIDTHS[own.is_amd == other.is_amd]
