"""Device memory that is left for the allocations of a job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from lostflops.account.memory.blocks import RankMemory
from lostflops.core.units import format_bytes, format_share
from lostflops.predict.estimate.estimate import HEADROOM

_TELLING: Final = 0.02
"""Peaks must differ by more than this part of the process's memory to show in it, because it varies by about as much by
itself."""


@dataclass(frozen=True, slots=True)
class Room:
    """Device memory, and what is left of it for the peak."""

    capacity: int
    overhead: int
    """Bytes used outside the allocator."""
    slack: float
    """Bytes that the allocator reserves in addition to each allocated byte."""
    basis: str

    @property
    def bytes(self) -> int:
        return max(0, int((self.capacity - self.overhead) / (1 + self.slack)))


def room(capacity: int, memories: Sequence[RankMemory], process: Sequence[int], *, is_accelerator: bool) -> Room:
    """Compute the room on the measured device, or on an accelerator. `process` is the most that the processes held; it
    is used if the device is a CPU."""
    is_cpu = memories[0].device == "cpu"
    if is_cpu and not is_accelerator:
        overhead, slack = beside([memory.peak_bytes for memory in memories], process)
        grew = (
            "how that grows with the batch is unknown because the measured peaks differ too little"
            if slack is None
            else f"grew by {format_share(slack)} more than they did"
        )
        basis = f"the process held {format_bytes(overhead)} besides its tensors, and {grew}"
        return Room(capacity, overhead, slack or 0.0, basis)
    slack = max((_slack(memory) for memory in memories), default=0.0)
    basis = f"{format_bytes(HEADROOM)} is set aside for the driver context, NCCL buffers and library workspaces"
    if is_cpu:
        basis += "; measured on a CPU, so the device's kernel workspaces and allocator slack are not included"
    else:
        basis += f", and the allocator reserved {format_share(slack)} more than it handed out"
    return Room(capacity, HEADROOM, slack, basis)


def beside(peaks: Sequence[int], process: Sequence[int]) -> tuple[int, float | None]:
    """Return what a process holds in addition to its tensors: the bytes at any batch, and the part of the peak, None if
    peaks differ too little. Libraries' scratch memory and holes in the heap grow with the batch. No measured process
    holds more than the result says."""
    peak, held = np.array(peaks, np.float64), np.array(process, np.float64)
    if not held.size or not held.all():
        return 0, None
    off, slack = peak - peak.mean(), None
    if np.ptp(peak) > _TELLING * held.mean():
        slack = max(0.0, float(off @ held / (off @ off)) - 1)
    return max(0, int(np.ceil((held - (1 + (slack or 0.0)) * peak).max()))), slack


def _slack(memory: RankMemory) -> float:
    """Return what was reserved and not handed out at the peak, as a part of the peak."""
    if not memory.reserved.size or not memory.peak_bytes:
        return 0.0
    return max(0.0, int(memory.reserved[memory.peak]) / memory.peak_bytes - 1)
