"""A program that memory runs out of ends as it would have, and its last state is kept."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.collect.jobs import PYTHON, finish, recorded, records, run_words

pytest.importorskip("torch")

import torch

from lostflops.account.memory.out_of_memory import explain_out_of_memory, ran_out
from lostflops.collect import out_of_memory
from lostflops.collect.endings import uncaught
from lostflops.store.run import Run

JOB = str(Path(__file__).with_name("out_of_memory_job.py"))
PARAMETERS = (64 * 256 + 256) * 4


def state(folder: Path) -> dict[str, Any]:
    (found,) = [one["value"] for one in records(folder, "job") if one["key"] == "out_of_memory"]
    return dict(found)


def test_a_command_that_runs_out_of_memory_ends_as_it_would_and_is_explained(tmp_path: Path) -> None:
    plain = finish([PYTHON, JOB, "forward"])
    done = finish([*run_words(tmp_path / "run"), PYTHON, JOB, "forward"])
    assert done.code == plain.code == 1
    assert done.stdout == plain.stdout
    own = re.compile(rb'  File "[^"]*torch[^"]*", line \d+, in (inner|_call_impl)\n(    .*\n)+')
    assert own.sub(b"", done.stderr).startswith(own.sub(b"", plain.stderr))
    assert b"it asked for 70.4 TB on cpu in step 5, forward, module last, at out_of_memory_job.py:" in b" ".join(
        done.stderr.split()
    )
    with Run.open(tmp_path / "run") as run:
        (found,) = ran_out(run)
        assert (found.step, found.phase, found.module, found.asked) == (5, "forward", "last", 2**46)
        assert dict(found.held)["parameters"] == dict(found.held)["gradients"] == PARAMETERS
        assert dict(found.held)["optimizer_state"] == 2 * PARAMETERS + 2 * 4
        assert dict(found.held)["buffers"] == 40
        assert "check the shapes at out_of_memory_job.py:" in explain_out_of_memory(found)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("where", "step", "phase"),
    [("first", 0, "forward"), ("loss", 5, "forward"), ("backward", 5, "backward"), ("optimizer", 5, "optimizer")],
)
def test_where_it_was(tmp_path: Path, where: str, step: int, phase: str) -> None:
    assert finish([PYTHON, JOB, where], recorded(tmp_path)).code == 1
    found = state(tmp_path)
    assert (found["step"], found["phase"], found["asked"]) == (step, phase, 2**46)
    assert found["owners"]["parameters"] == PARAMETERS


CUDA = (
    "CUDA out of memory. Tried to allocate 2.50 GiB. GPU 3 has a total capacity of 79.10 GiB of which 1.25 GiB is free."
    " Including non-PyTorch memory, this process has 77.80 GiB memory in use. Of the allocated memory 70.00 GiB is "
    "allocated by PyTorch, and 6.00 GiB is reserved by PyTorch but unallocated. my secret"
)


def test_what_torch_says_of_a_device_is_read_and_nothing_else_is_kept() -> None:
    found = out_of_memory._parse_message(torch.OutOfMemoryError(CUDA))
    gib = 2**30
    assert found == {
        "message": "CUDA out of memory. Tried to allocate 2.50 GiB",
        "asked": 2.5 * gib,
        "device": "cuda:3",
        "capacity": round(79.1 * gib),
        "free": 1.25 * gib,
        "allocated_then": 70 * gib,
        "unused_then": 6 * gib,
    }
    assert out_of_memory._parse_message(MemoryError("secret"))["message"] is None


@pytest.mark.parametrize(
    ("error", "is_found"),
    [
        (MemoryError(), True),
        (torch.OutOfMemoryError(CUDA), True),
        (
            RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 12 bytes."),
            True,
        ),
        (RuntimeError("the size of tensor a must match"), False),
        (KeyboardInterrupt(), False),
    ],
)
def test_only_a_lack_of_memory_counts(monkeypatch: pytest.MonkeyPatch, error: BaseException, is_found: bool) -> None:
    assert (out_of_memory.ending(error) is error) is is_found
    monkeypatch.setattr(sys, "last_value", error, raising=False)
    assert uncaught() is error
    assert uncaught(id(error)) is None


def test_an_error_raised_from_one_of_memory_counts() -> None:
    cause = MemoryError()
    for around in (RuntimeError("training failed"), RuntimeError("hidden")):
        try:
            try:
                raise cause
            except MemoryError as error:
                raise around from (error if "failed" in str(around) else None)
        except RuntimeError as error:
            last = error
        assert out_of_memory.ending(last) is (cause if "failed" in str(around) else None)


def test_storages_count_once_and_subclasses_by_what_they_hold() -> None:
    net = torch.nn.Linear(10, 10, bias=False)
    net.register_buffer("same", net.weight.detach().view(-1))
    kept = [torch.zeros(1000, dtype=torch.float64), torch.empty(7, device="meta")]
    kept.append(kept[0][:10])
    held = out_of_memory._sum_held_bytes([net], [], kept)
    assert held.owners == {"parameters": 400, "others": 8000}
    assert held.shapes() == [{"dtype": "float64", "shape": [1000], "bytes": 8000, "count": 1}]


class _Refusing(torch.Tensor):
    @classmethod
    def __torch_function__(cls, *_: Any, **__: Any) -> Any:
        raise AssertionError


class _HalfMade(torch.optim.Optimizer):
    def __init__(self) -> None:
        """Has neither groups nor state."""


def test_tensors_and_optimizers_that_answer_nothing_do_not_hide_the_others() -> None:
    refusing, half_made = torch.Tensor._make_subclass(_Refusing, torch.ones(3)), _HalfMade()
    model = torch.nn.Linear(64, 64)
    found = out_of_memory.last_state(MemoryError(), 1, is_after_forward=False)
    assert found["owners"]["parameters"] >= (64 * 64 + 64) * 4
    assert len(list(model.parameters())) == 2
    del refusing, half_made
