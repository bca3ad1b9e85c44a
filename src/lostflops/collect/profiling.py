"""torch's profiler as windows use it: what it records, without what `torch.profiler.profile` does beside that.

`torch.profiler.profile` imports the compiler on its first start (1.8 s), waits for the device when it stops and makes
objects for each event that nobody here reads. The trace is the same without.
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
        """Tracing of a device is set up here, which takes time: a step before the window."""
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

    def mark_end(self) -> None:
        """The window ends for the host; the device may lag behind."""
        module = getattr(torch, self._device, None) if self._device else None
        if module is not None and hasattr(module, "Event"):
            self._event = module.Event()
            self._event.record()

    @property
    def is_drained(self) -> bool:
        """Whether the device has done what was queued at the end."""
        return self._event is None or bool(self._event.query())

    def stop(self) -> Any:
        """What was recorded; None when there is nothing to stop on this thread."""
        is_here = is_profiler_enabled() and threading.get_ident() == self._thread
        if not self.is_started or not is_here or others().is_lost:
            return None
        self.is_started = False
        result = torch.autograd._disable_profiler()  # noqa: SLF001
        _run("_run_on_profiler_stop")
        return result

    def discard(self) -> None:
        """Stop without a result. One that was prepared and never started would upset the next profiler."""
        if self._profiler is not None and not self.is_started:
            ORIGINAL_START(self._profiler)
            self.is_started = True
        self.stop()


def is_profiler_enabled() -> bool:
    return bool(torch._C._autograd._profiler_enabled())  # noqa: SLF001


def silence_profiler() -> None:
    """In a forked child, where the profiler cannot be stopped, as its threads are gone: record nothing more."""
    torch.autograd._enable_record_function(False)  # noqa: SLF001


def is_another_active() -> bool:
    """Whether the program profiles by itself, or is about to."""
    return is_profiler_enabled() or others().are_active or others().is_lost


def _device() -> str | None:
    supported = {activity.name.lower() for activity in torch.autograd._supported_activities()}  # noqa: SLF001
    kind = accelerator()
    return kind if kind in supported and kind in _DEVICES else None


def _trace_only() -> Any:
    """No events for Python: stopping takes a fifth less. Older versions of torch do not know it."""
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
    """As `torch.profiler` does: CUPTI does not survive being set up twice with CUDA graphs before CUDA 12.6."""
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
