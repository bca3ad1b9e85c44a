"""MFU of a step while the job runs: FLOPs that the user states, over the peak that is stated or known.

MFU = model FLOPs of a step / (its time x ranks x dense peak). A known device has a peak for each dtype, and no record
shows which dtype the matrix products use: it has to be named. There is no default.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from lostflops.account.facts.devices import find_device
from lostflops.live.sessions import Attempt

_FLOPS_PER_NS: Final = 1e3
"""1 TFLOPS is 1000 FLOP per ns."""


@dataclass(frozen=True, slots=True)
class Utilization:
    model_flops: float | None = None
    """FLOPs of the model in one step of the whole job."""
    peak_tflops: float | None = None
    dtype: str | None = None

    def mfu(self, time: int, attempt: Attempt) -> float | None:
        """Return MFU as a part of 1; None if it is unknown (see `reason`), or the step would need more than peak."""
        peak, reason = self._peak(attempt)
        if reason or peak is None or self.model_flops is None or time <= 0:
            return None
        found = self.model_flops / (time * attempt.world_size * peak * _FLOPS_PER_NS)
        return found if found <= 1 else None

    def reason(self, attempt: Attempt) -> str:
        """Return why MFU is unknown; empty if it is known, except for steps that would need more than the peak."""
        return self._peak(attempt)[1]

    def _peak(self, attempt: Attempt) -> tuple[float | None, str]:
        if self.model_flops is None:
            return None, "give the model FLOPs per step over all ranks with --model-flops"
        if self.peak_tflops is not None:
            return self.peak_tflops, ""
        names = sorted({session.device_name or "no accelerator" for session in attempt.sessions.values()})
        if len(names) != 1:
            return None, f"ranks have different devices ({', '.join(names)}): give --peak-tflops"
        device = find_device(names[0])
        if device is None:
            return None, f"the peak of {names[0]!r} is unknown: give --peak-tflops"
        if self.dtype is None:
            return (
                None,
                f"give the dtype of the matmuls ({', '.join(device.peaks)}) with --dtype, or give --peak-tflops",
            )
        if self.dtype not in device.peaks:
            return None, f"there is no confirmed {self.dtype} peak for {device.name}: give --peak-tflops"
        return device.peaks[self.dtype], ""
