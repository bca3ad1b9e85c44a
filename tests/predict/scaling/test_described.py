"""A described job, scaled from its measured step to other numbers of ranks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

import lostflops as lf
from lostflops.cli.main import build
from lostflops.core.errors import UsageError
from lostflops.predict.estimate.description import ModelDescription, PlannedJob
from lostflops.predict.estimate.machine import machine
from lostflops.predict.estimate.request import Request
from lostflops.predict.scaling.described import predict, resize

MODEL = ModelDescription(layers=16, hidden=4096, heads=32, ffn=16384, vocabulary=32000)
JOB = PlannedJob(sequence=4096, dp=4, tp=8, pp=4, virtual_stages=4, batch=128, zero=1, step_seconds=3)
DGX = machine("bf16", device="H100-SXM5", topology=None, calibration=None, memory=None)
DESCRIPTION = """
layers = 16
hidden = 4096
heads = 32
ffn = 16384
vocabulary = 32000
sequence = 4096
dp = 4
tp = 8
pp = 4
virtual_stages = 4
batch = 128
zero = 1
"""


@pytest.fixture
def described(tmp_path: Path) -> Path:
    path = tmp_path / "job.toml"
    path.write_text(f"{DESCRIPTION}step_seconds = 3.0\n")
    return path


def test_the_measured_job_takes_its_measured_step() -> None:
    answer = predict(Request(MODEL, JOB), DGX, JOB)
    assert answer.step.low == pytest.approx(3e9)
    assert answer.step.high == pytest.approx(3e9)


def test_half_of_the_microbatches_take_half_and_the_bubble() -> None:
    """A step is m microbatches, a bubble of (p - 1) / v and a little communication: 32 + 3/4 become 16 + 3/4."""
    strong = resize(JOB, 256, strong=True)
    assert (strong.dp, strong.microbatches) == (8, 16)
    answer = predict(Request(MODEL, JOB), DGX, strong)
    assert 1 < answer.middle / (3e9 * (16 + 3 / 4) / (32 + 3 / 4)) < 1.03
    assert answer.step.high / answer.step.low < 1.15


def test_more_replicas_take_at_least_as_long() -> None:
    steps = [predict(Request(MODEL, JOB), DGX, resize(JOB, ranks)) for ranks in (128, 1024, 8192)]
    assert [step.job.sequences for step in steps] == [128, 1024, 8192]
    assert steps[0].middle <= steps[1].middle <= steps[2].middle
    assert steps[2].step.high / steps[2].step.low > steps[1].step.high / steps[1].step.low


def test_slow_communication_leaves_something_to_scale() -> None:
    """A measured step shorter than the estimated communication scales all of the estimate."""
    wrong = PlannedJob(sequence=4096, dp=1024, batch=1024, step_seconds=1e-6)
    answer = predict(Request(MODEL, wrong), DGX, resize(wrong, 2048))
    assert 0 < answer.step.low <= answer.step.high < 1e4


def test_replicas_grow_and_shards_stay() -> None:
    hybrid = PlannedJob(sequence=1024, dp=16, replicas=2, zero=3)
    assert (resize(hybrid, 64).replicas, resize(hybrid, 64).shards) == (8, 8)


def test_ranks_are_whole_replicas() -> None:
    with pytest.raises(UsageError, match="each has 32 ranks"):
        resize(JOB, 100)


def test_the_command_and_python_agree(described: Path) -> None:
    done = CliRunner().invoke(
        build(), ["scale", str(described), "--ranks", "512,1024", "--topology", "dgx-h100", "--batch", "512", "--json"]
    )
    assert done.exit_code == 0, done.output
    mine = lf.scale(described, [512, 1024], topology="dgx-h100", batch=512).to_json()
    assert json.loads(done.stdout)["ranks"] == json.loads(json.dumps(mine["ranks"]))
    assert [row["batch"] for row in mine["ranks"]] == [512, 512]
    assert mine["ranks"][1]["hosts"] == 128


def test_a_description_without_a_measured_step_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    for step in ("", "step_seconds = nan\n", "step_seconds = inf\n", "step_seconds = 0\n"):
        path.write_text(DESCRIPTION + step)
        with pytest.raises(UsageError, match="step_seconds"):
            lf.scale(path, [512], topology="dgx-h100")


def test_a_machine_is_needed(described: Path) -> None:
    with pytest.raises(UsageError, match="give --topology or --calibration"):
        lf.scale(described, [512])


@pytest.mark.parametrize("option", [("--mesh", "dp=4"), ("--ranks-per-host", "8")])
def test_options_of_a_run_are_refused_for_a_description(described: Path, option: tuple[str, str]) -> None:
    done = CliRunner().invoke(build(), ["scale", str(described), "--ranks", "512", *option])
    assert isinstance(done.exception, UsageError)
    assert "leave out --ranks-per-host and --mesh" in str(done.exception)
