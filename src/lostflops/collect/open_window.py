"""A window while it is open: the profiler, steps as annotations, names of modules, stack samples."""

from __future__ import annotations

import threading
import time
from typing import Any

import torch

from lostflops.collect.capture import WindowRequest
from lostflops.collect.holdings import Holdings
from lostflops.collect.modules import ModuleRanges
from lostflops.collect.profiling import ProfilerWindow
from lostflops.collect.sampler import Sampler


class OpenWindow:
    """A window that is open; all its methods run on the training thread, between two steps."""

    def __init__(self, recorder: Any, request: WindowRequest, sampler: Sampler) -> None:
        self.request = request
        self.cost = 0
        """Duration of the last `prepare`, `start` or `stop`, in ns."""
        self._recorder, self._sampler = recorder, sampler
        self._options: frozenset[str] = recorder.settings.options
        self._profile = ProfilerWindow(self._options, recorder.rank, recorder.world_size)
        self._modules: ModuleRanges | None = None
        self._holdings = Holdings(recorder, request.window) if "memory" in self._options else None
        self._annotation: Any = None
        self._is_ending = False

    def prepare(self) -> None:
        began = time.monotonic_ns()
        self._profile.prepare()
        if "modules" in self._options:
            self._modules = ModuleRanges(self._recorder.roots())
        self.cost = time.monotonic_ns() - began

    def start(self, step: int) -> None:
        began = time.monotonic_ns()
        if self._holdings is not None:
            self._holdings.open()
        self._profile.start()
        if self._modules is not None:
            self._modules.attach()
        if "samples" in self._options and not self._recorder.is_thinned:
            self._sampler.start(threading.get_ident())
        self._annotate(step)
        self.cost = time.monotonic_ns() - began

    def next_step(self, step: int) -> None:
        self._leave()
        self._annotate(step)

    def mark_unfinished(self, step: int) -> None:
        """Name the step that runs now in the trace, because it will not be whole."""
        if not self._is_ending:
            self._profile.mark_unfinished(step)

    @property
    def is_drained(self) -> bool:
        """Whether the device has finished the last step, so that nothing of it is missing; read it after that step."""
        if not self._is_ending:
            self._is_ending = True
            self._leave()
            self._profile.mark_end()
        return self._profile.is_drained

    def stop(self) -> Any:
        """Stop and return what was recorded; None if nothing was."""
        began = time.monotonic_ns()
        is_started = self._profile.is_started
        self._let_go()
        result = self._profile.stop() if is_started else None
        if result is None:
            self._profile.discard()
        self.cost = time.monotonic_ns() - began
        return result

    def abandon(self) -> None:
        """Remove all that is ours after an error, without raising."""
        for step in (self._let_go, self._profile.discard):
            try:
                step()
            except Exception as error:  # noqa: BLE001
                self._recorder.note("windows_failed", f"{type(error).__name__} while cancelling a window")

    def _let_go(self) -> None:
        self._sampler.stop()
        self._leave()
        if self._holdings is not None:
            self._holdings.close()
        if self._modules is not None:
            self._modules.detach()

    def _annotate(self, step: int) -> None:
        self._annotation = torch.autograd.profiler.record_function(f"ProfilerStep#{step}")
        self._annotation.__enter__()

    def _leave(self) -> None:
        if self._annotation is not None:
            annotation, self._annotation = self._annotation, None
            annotation.__exit__(None, None, None)
