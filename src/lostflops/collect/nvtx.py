"""Steps and phases as NVTX ranges, so that Nsight Systems shows them; only with CUDA."""

from __future__ import annotations

from typing import Any

from lostflops.collect.steps import PHASES, StepClock


class Ranges:
    """NVTX ranges of steps and phases, ended by handle and not in stack order, which an exception could upset."""

    def __init__(self, nvtx: Any) -> None:
        self._nvtx = nvtx
        self._phase: Any = None
        self._step: Any = None

    def phase(self, phase: int) -> None:
        """End the open phase and begin `phase`; -1 is no phase."""
        if self._phase is not None:
            self._nvtx.range_end(self._phase)
        self._phase = self._nvtx.range_start(f"lostflops.{PHASES[phase]}") if phase >= 0 else None

    def step(self, number: int) -> None:
        """End the open step and begin step `number`."""
        if self._step is not None:
            self._nvtx.range_end(self._step)
        self._step = self._nvtx.range_start(f"lostflops.step {number}")


def show_in_nvtx(clock: StepClock) -> None:
    import torch

    if torch.cuda.is_initialized():
        clock.watchers.append(Ranges(torch.cuda.nvtx))
