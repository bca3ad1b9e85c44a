"""The lines of the time ledger: their order, and what puts a nanosecond on each.

At each instant the first line that applies takes the nanosecond, so lines are exclusive and sum to the whole.
"""

from collections.abc import Mapping
from typing import Final

DEFINITIONS: Final = {
    "compute": "a compute kernel runs; on a CPU rank, a compute op runs on the training thread",
    "comm.transfer": "only communication runs, and all participants have arrived",
    "comm.wait": "only communication runs, and a participant has not arrived yet",
    "comm.bubble": "only a pipeline send or receive runs, and its peer has not arrived yet",
    "copy": "only a memcpy or memset runs",
    "idle.data": "the device is idle while the training thread waits for the next batch",
    "idle.sync": "the device is idle because the host blocked on it and must refill its queue",
    "idle.alloc": "the device is idle while device memory is allocated or freed",
    "idle.compile": "the device is idle while dynamo or inductor compiles",
    "idle.host": "the device is idle while the launching thread dispatches ops and launches kernels",
    "idle.python": "the device is idle while the launching thread runs Python and no op",
    "idle.dependency": "the next kernel was already queued: it waited for another stream or for the launch latency",
    "idle.bubble": "a pipeline stage is idle between passes; 0 in the ledger, which counts it as comm.bubble",
    "unexplained": "none of the other lines applies",
}
INSIDE_COMPUTE: Final = {
    "compute.no_model_flops": "time of kernels without model FLOPs: elementwise ops, norms, optimizer, casts",
    "compute.recomputation": "time of repeated FLOPs: activation checkpointing, the backward pass of flash attention",
    "compute.bandwidth_bound": "extra time of matmul-class kernels over peak because their shapes are memory-bound",
    "compute.below_achievable": "the remaining extra time of matmul-class kernels over peak",
    "compute.below_peak": "extra time of kernels with model FLOPs over the time that these FLOPs take at peak",
}
"""Bars between compute and MFU, if MFU is known."""
LINES: Final = tuple(DEFINITIONS)
COMM_LINES: Final = ("comm.transfer", "comm.wait", "comm.bubble")
WAIT_LINES: Final = ("comm.wait", "comm.bubble")
BUSY_LINES: Final = ("compute", *COMM_LINES, "copy")
"""Lines in which a device does anything."""
IDLE_LINES: Final = tuple(line for line in LINES if line.startswith("idle."))
HOST_LINES: Final = ("idle.data", "idle.sync", "idle.alloc", "idle.compile", "idle.host", "idle.python")
"""Time lost because the host was late: what its training thread did at that instant shows why."""
GROUPS: Final = {
    "compute": ("compute",),
    "comm": COMM_LINES,
    "copy": ("copy",),
    "idle": (*IDLE_LINES, "unexplained"),
}
"""Lines that are shown together if there is no room for all."""


def compute_group_shares(lines: Mapping[str, int]) -> tuple[float, ...]:
    """Compute the shares of `GROUPS`, in their order."""
    whole = sum(lines.values()) or 1
    return tuple(sum(lines[line] for line in members) / whole for members in GROUPS.values())
