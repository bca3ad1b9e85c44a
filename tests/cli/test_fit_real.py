"""`lostflops fit` on a real job that never ends by itself, and whose bytes are known by hand."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

import lostflops

pytest.importorskip("torch")

WIDTH = 64
JOB = f"""
import sys, torch
from torch import nn
torch.set_num_threads(1)
layers = [part for _ in range(2) for part in (nn.Linear({WIDTH}, {WIDTH}), nn.ReLU())]
model = nn.Sequential(*layers, nn.Linear({WIDTH}, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
data = torch.utils.data.TensorDataset(torch.randn(1_000_000, {WIDTH}))
for value, in torch.utils.data.DataLoader(data, batch_size=int(sys.argv[2])):
    optimizer.zero_grad()
    model(value).sum().backward()
    optimizer.step()
print("reached the end")
"""
PARAMETERS = 4 * (2 * (WIDTH * WIDTH + WIDTH) + WIDTH + 1)


@pytest.mark.slow
def test_a_job_without_end_is_measured_at_three_sizes_and_ended(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(JOB, encoding="utf-8")
    words = [sys.executable, "-c", "from lostflops.cli.main import main; main()", "fit", "--json", "--steps", "30"]
    words += ["--memory", "4GiB", "--sizes", "512,1024,2048", "--keep", "kept", "--"]
    words += [sys.executable, "job.py", "--batch-size", "1024"]
    environment = {**os.environ, "PYTHONPATH": str(Path(lostflops.__file__).parents[1])}
    began = time.monotonic()
    done = subprocess.run(
        words, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "reached the end" not in done.stderr
    assert time.monotonic() - began < 300
    told = json.loads(done.stdout)
    assert told["sizes"] == [512, 1024, 2048]
    owners = {row["owner"]: row for row in told["owners"]}
    assert (owners["parameters"]["fixed"], owners["parameters"]["each"]) == (PARAMETERS, 0)
    # Two outputs of ReLU, which the next layer keeps too; the last layer's output is kept by none.
    assert owners["activations"]["each"] == pytest.approx(2 * 4 * WIDTH, rel=0.1)
    assert owners["batches"]["each"] == 4 * WIDTH
    for row in told["curve"]:
        if row["measured"]:
            assert row["peak"] == pytest.approx(row["measured_peak"], rel=0.01)
    with lostflops.Run.open(tmp_path / "kept" / "batch-2048") as run:
        assert run.ranks == (0,)
