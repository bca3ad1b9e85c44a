"""A program that updates its parameters itself, without an optimizer of PyTorch, has steps."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.collect.jobs import PYTHON, finish, recorded, records

pytest.importorskip("torch")

JOB = """
import torch
torch.manual_seed(1)
model = torch.nn.Linear(8, 8)
for number in range(20):
    model(torch.ones(4, 8)).sum().backward()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.sub_(0.01 * parameter.grad)
    model.zero_grad()
"""


def test_steps_end_with_updates_that_call_no_hook(tmp_path: Path) -> None:
    done = finish([PYTHON, "-c", JOB], recorded(tmp_path / "capture"))
    assert (done.code, done.stdout) == (0, b""), done
    steps = [record["step"] for record in records(tmp_path / "capture", "step")]
    # Updates are looked for at the third backward pass.
    assert len(steps) >= 15, steps
