"""Steps and phases as NVTX ranges, so that Nsight Systems shows them; only where there is CUDA."""

from __future__ import annotations

from typing import Any

from lostflops.collect.steps import PHASES, StepClock


class Ranges:
    """Ranges are ended by their handles and not in the order of a stack, which an exception could upset."""

    def __init__(self, nvtx: Any) -> None:
        self._nvtx = nvtx
        self._phase: Any = None
        self._step: Any = None

    def phase(self, phase: int) -> None:
        """`phase` begins, or none where it is -1."""
        if self._phase is not None:
            self._nvtx.range_end(self._phase)
        self._phase = self._nvtx.range_start(f"lostflops.{PHASES[phase]}") if phase >= 0 else None

    def step(self, number: int) -> None:
        """Step `number` begins."""
        if self._step is not None:
            self._nvtx.range_end(self._step)
        self._step = self._nvtx.range_start(f"lostflops.step {number}")


def show_in_nvtx(clock: StepClock) -> None:
    import torch

    if torch.cuda.is_initialized():
        clock.watchers.append(Ranges(torch.cuda.nvtx))
