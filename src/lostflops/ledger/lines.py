"""The lines of the time ledger: their order, and what puts a nanosecond on each.

At each instant the first line that holds takes the nanosecond, so that lines are exclusive and together the whole.
"""

from collections.abc import Mapping
from typing import Final

DEFINITIONS: Final = {
    "compute": "a compute kernel runs; on a CPU rank, an op that computes is on the training thread",
    "comm.transfer": "only communication runs, and every participant has arrived",
    "comm.wait": "only communication runs, and a participant is still missing",
    "comm.bubble": "only a pipeline send or receive runs, and its peer has not arrived",
    "copy": "only a memcpy or memset runs",
    "idle.data": "the device is idle, and the training thread waits for the next batch",
    "idle.sync": "the device is idle because the host had blocked on it, and refills its queue",
    "idle.alloc": "the device is idle inside an allocation or a free of device memory",
    "idle.compile": "the device is idle inside compilation by dynamo or inductor",
    "idle.host": "the device is idle while the launching thread dispatches ops and calls the runtime",
    "idle.python": "the device is idle, and the launching thread ran no op at all",
    "idle.dependency": "the next kernel was queued already: it waited on another stream or for its launch to arrive",
    "idle.bubble": "a pipeline stage is between passes; 0 in the ledger, where the transfer it waits in tells why",
    "unexplained": "anything else",
}
INSIDE_COMPUTE: Final = {
    "compute.no_model_flops": "kernels that multiply nothing for the model: elementwise, norms, optimizer, casts",
    "compute.recomputation": "FLOPs done again: activation checkpointing, the backward pass of flash attention",
    "compute.bandwidth_bound": "what matmul-class kernels must take beyond peak as their shapes move that many bytes",
    "compute.below_achievable": "the rest of what matmul-class kernels take beyond peak",
    "compute.below_peak": "what kernels that multiply for the model take beyond what their FLOPs take at peak",
}
"""Bars between compute and MFU, where it is known."""
LINES: Final = tuple(DEFINITIONS)
COMM_LINES: Final = ("comm.transfer", "comm.wait", "comm.bubble")
WAIT_LINES: Final = ("comm.wait", "comm.bubble")
BUSY_LINES: Final = ("compute", *COMM_LINES, "copy")
"""What a device does anything in."""
IDLE_LINES: Final = tuple(line for line in LINES if line.startswith("idle."))
HOST_LINES: Final = ("idle.data", "idle.sync", "idle.alloc", "idle.compile", "idle.host", "idle.python")
"""Lost because the host was late, so that what its training thread did at that instant tells why."""
GROUPS: Final = {
    "compute": ("compute",),
    "comm": COMM_LINES,
    "copy": ("copy",),
    "idle": (*IDLE_LINES, "unexplained"),
}
"""Lines that stand together where there is no room for all."""


def grouped(lines: Mapping[str, int]) -> tuple[float, ...]:
    """Shares of GROUPS, in their order."""
    whole = sum(lines.values()) or 1
    return tuple(sum(lines[line] for line in members) / whole for members in GROUPS.values())
