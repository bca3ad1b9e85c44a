"""Which accelerator a program uses, on machines that are made up: asking must not begin to use it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch", reason="torch is not installed")

import torch

from lostflops.collect.accelerator import accelerator
from lostflops.collect.device_time import device_time
from lostflops.collect.graph_captures import GraphCaptures
from lostflops.collect.identity import identity
from lostflops.collect.nvtx import show_in_nvtx
from lostflops.collect.steps import StepClock


def begun(*_: Any, **__: Any) -> Any:
    raise AssertionError("the program does not use the device")


@pytest.fixture(params=["accelerator", "cuda alone"])
def cuda(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A machine with CUDA that the program has not touched; torch before 2.6 knows no other kinds."""
    made = SimpleNamespace(
        is_available=lambda: True, is_initialized=lambda: False, get_device_name=begun, Event=begun, nvtx=None
    )
    monkeypatch.setattr(torch, "cuda", made)
    if request.param == "accelerator":
        known = SimpleNamespace(is_available=lambda: True, current_accelerator=lambda: SimpleNamespace(type="cuda"))
        monkeypatch.setattr(torch, "accelerator", known)
    else:
        monkeypatch.delattr(torch, "accelerator")
    return made


def test_a_program_on_the_cpu_of_a_machine_with_a_device_is_a_program_on_the_cpu(cuda: SimpleNamespace) -> None:
    clock = StepClock(lambda _: None)
    show_in_nvtx(clock)
    assert (accelerator(), device_time(GraphCaptures()), clock.watchers) == (None, None, [])
    assert [identity()[fact] for fact in ("device", "device_name", "device_memory")] == ["cpu", None, None]


def test_a_device_that_is_used_is_known(cuda: SimpleNamespace) -> None:
    cuda.is_initialized, cuda.get_device_name, cuda.current_device = lambda: True, lambda: "H100", lambda: 3
    cuda.get_device_properties = lambda device: SimpleNamespace(total_memory=80 << 30 if device == 3 else 0)
    assert accelerator() == "cuda"
    assert device_time(GraphCaptures()) is not None
    assert [identity()[fact] for fact in ("device", "device_name", "device_memory")] == ["cuda", "H100", 80 << 30]
