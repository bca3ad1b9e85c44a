from __future__ import annotations

import pytest

from lostflops.collect.nvtx import Ranges, show_in_nvtx
from lostflops.collect.steps import BACKWARD, FORWARD, StepClock


class Nvtx:
    """Hands out handles as the library does, and keeps what was said."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self._names: dict[int, str] = {}

    def range_start(self, name: str) -> int:
        handle = len(self._names)
        self._names[handle] = name
        self.said.append(f"+{name.removeprefix('lostflops.')}")
        return handle

    def range_end(self, handle: int) -> None:
        self.said.append(f"-{self._names[handle].removeprefix('lostflops.')}")


def test_steps_and_phases_are_ranges() -> None:
    nvtx = Nvtx()
    clock = StepClock(lambda _: None)
    clock.watchers.append(Ranges(nvtx))
    for start in (0, 10):
        clock.enter(FORWARD, start)
        clock.enter(FORWARD, start + 1)
        clock.leave(start + 2)
        clock.leave(start + 3)
        clock.enter(BACKWARD, start + 4)
        clock.leave(start + 5)
        clock.end(start + 6)
    one_step = ["+forward", "-forward", "+backward", "-backward"]
    assert nvtx.said == [*one_step, "+step 1", *one_step, "-step 1", "+step 2"]


def test_there_are_no_ranges_without_cuda() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    if torch.cuda.is_available():
        pytest.skip("there is CUDA")
    clock = StepClock(lambda _: None)
    show_in_nvtx(clock)
    assert clock.watchers == []
