"""Debug modes of the job that cost time: recorded when they are first seen on, in a backward pass.

A mode that a context manager sets is on only inside a step, so reading settings between steps would miss it.
"""

from __future__ import annotations

import os
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

import torch


class DebugModes:
    """A watcher of debug modes; `put` gets a record of all modes that are on, and another when a new mode is on."""

    def __init__(self, put: Callable[[dict[str, Any]], None]) -> None:
        self._put = put
        self._seen: dict[str, Any] = {}
        self._is_read = False

    def look(self) -> None:
        """Check the modes on the training thread, as a backward pass begins; this takes a few hundred ns."""
        fresh: dict[str, Any] = {}
        if torch.is_anomaly_enabled() and "anomaly" not in self._seen:
            fresh["anomaly"] = "check_nan" if torch.is_anomaly_check_nan_enabled() else "tracebacks"
            fresh["frame_ns"] = _frame_time()
        if torch.are_deterministic_algorithms_enabled() and "deterministic" not in self._seen:
            fresh["deterministic"] = "fill" if _fills() else "algorithms"
        if not self._is_read:
            self._is_read = True
            fresh |= _static()
        if fresh:
            self._seen |= fresh
            self._put({"kind": "job", "key": "debug_modes", "value": dict(self._seen)})


def _frame_time() -> int:
    """Return the CPU time of a traceback from here, in ns per frame: anomaly mode makes a traceback for every op."""
    spent = []
    for _ in range(3):
        began = time.thread_time_ns()
        frames = len(traceback.format_stack())
        spent.append((time.thread_time_ns() - began) // max(frames, 1))
    return min(spent)


def _fills() -> bool:
    """Return whether torch fills new tensors, so that reading them before they are written is noticed."""
    return bool(getattr(torch.utils.deterministic, "fill_uninitialized_memory", False))


def _static() -> dict[str, Any]:
    """Return the modes that are set once: by the environment, by flags of Python, by a debugger."""
    found: dict[str, Any] = {}
    if os.environ.get("CUDA_LAUNCH_BLOCKING", "0") not in ("", "0"):
        found["launch_blocking"] = True
    if os.environ.get("TORCH_DISTRIBUTED_DEBUG", "").upper() == "DETAIL":
        found["distributed"] = "DETAIL"
    if sys.flags.dev_mode:
        found["python_dev_mode"] = True
    if sys.gettrace() is not None:
        found["python_tracing"] = True
    return found
