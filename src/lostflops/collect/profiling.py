"""torch's profiler as windows use it: the same trace, without the other work of `torch.profiler.profile`.

`torch.profiler.profile` imports the compiler on its first start (1.8 s), waits for the device when it stops, and makes
objects for each event, which are not used here.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from typing import Any, Final

import torch
from torch.autograd import profiler as torch_profiler

from lostflops.collect.accelerator import accelerator
from lostflops.collect.capture import UNFINISHED_STEP
from lostflops.collect.other_profilers import ORIGINAL_PREPARE, ORIGINAL_START, others

_DEVICES: Final = ("cuda", "xpu", "mtia", "hpu")


class ProfilerWindow:
    """One recording on one thread: `prepare`, `start`, `stop`."""

    def __init__(self, options: frozenset[str], rank: int, world_size: int) -> None:
        self._options, self._rank, self._world_size = options, rank, world_size
        self._device = _device()
        self._profiler: Any = None
        self._thread = 0
        self._event: Any = None
        self.is_started = False

    def prepare(self) -> None:
        """Set up the profiler a step before the window, because setting up the tracing of a device takes time."""
        _keep_cupti_with_graphs()
        self._thread = threading.get_ident()
        self._profiler = torch_profiler.profile(
            use_kineto=True,
            use_device=self._device,
            record_shapes="shapes" in self._options,
            with_flops="flops" in self._options,
            profile_memory="memory" in self._options,
            with_stack="stack" in self._options,
            experimental_config=_trace_only() if "stack" not in self._options else None,
        )
        ORIGINAL_PREPARE(self._profiler)

    def start(self) -> None:
        ORIGINAL_START(self._profiler)
        self.is_started = True
        for option, key in (("shapes", "record_shapes"), ("flops", "with_flops"), ("memory", "profile_memory")):
            if option in self._options:
                torch.autograd._add_metadata_json(key, "1")  # noqa: SLF001 - as torch.profiler does
        if "stack" in self._options:
            torch.autograd._add_metadata_json("with_stack", "1")  # noqa: SLF001
        info = json.dumps(_distributed_info(self._rank, self._world_size), default=str)
        torch.autograd._add_metadata_json("distributedInfo", info)  # noqa: SLF001

    def mark_unfinished(self, step: int) -> None:
        if self.is_started:
            torch.autograd._add_metadata_json(UNFINISHED_STEP, str(step))  # noqa: SLF001

    def mark_end(self) -> None:
        """Mark the end of the window on the host; the device may not be there yet."""
        module = getattr(torch, self._device, None) if self._device else None
        if module is not None and hasattr(module, "Event"):
            self._event = module.Event()
            self._event.record()

    @property
    def is_drained(self) -> bool:
        """Whether the device has finished what was queued when the window ended."""
        return self._event is None or bool(self._event.query())

    def stop(self) -> Any:
        """Stop and return what was recorded; None if there is nothing to stop on this thread."""
        is_here = is_profiler_enabled() and threading.get_ident() == self._thread
        if not self.is_started or not is_here or others().is_lost:
            return None
        self.is_started = False
        result = torch.autograd._disable_profiler()  # noqa: SLF001
        _run("_run_on_profiler_stop")
        return result

    def discard(self) -> None:
        """Stop without a result; start first if needed: a profiler that was only prepared would upset the next one."""
        if self._profiler is not None and not self.is_started:
            ORIGINAL_START(self._profiler)
            self.is_started = True
        self.stop()


def is_profiler_enabled() -> bool:
    return bool(torch._C._autograd._profiler_enabled())  # noqa: SLF001


def silence_profiler() -> None:
    """Record nothing more in a forked child, where the profiler cannot be stopped because its threads are gone."""
    torch.autograd._enable_record_function(False)  # noqa: SLF001


def is_another_active() -> bool:
    """Return whether the program uses its own profiler, or is about to."""
    return is_profiler_enabled() or others().are_active or others().is_lost


def _device() -> str | None:
    supported = {activity.name.lower() for activity in torch.autograd._supported_activities()}  # noqa: SLF001
    kind = accelerator()
    return kind if kind in supported and kind in _DEVICES else None


def _trace_only() -> Any:
    """Return a config without events for Python, so that stopping takes a fifth less; None if torch is too old."""
    try:
        return torch._C._profiler._ExperimentalConfig(trace_only=True)  # noqa: SLF001
    except TypeError:
        return None


def _distributed_info(rank: int, world_size: int) -> dict[str, Any]:
    from torch.profiler.profiler import _KinetoProfile

    try:
        found = _KinetoProfile._get_distributed_info(None)  # noqa: SLF001
    except Exception:  # noqa: BLE001 - a group without backend, a version without some function
        found = None
    return found or {"rank": rank, "world_size": world_size}


def _keep_cupti_with_graphs() -> None:
    """Keep CUPTI, as `torch.profiler` does: before CUDA 12.6 it does not survive a second setup with CUDA graphs."""
    config = sys.modules.get("torch._inductor.config")
    version = getattr(torch.version, "cuda", None)
    if config is None or version is None or not config.triton.cudagraphs:
        return
    if tuple(map(int, version.split(".")[:2])) < (12, 6):
        os.environ["DISABLE_CUPTI_LAZY_REINIT"] = "1"
        os.environ["TEARDOWN_CUPTI"] = "0"


def _run(name: str) -> None:
    function = getattr(torch_profiler, name, None)
    if function is not None:
        function()
