"""Real jobs against what they count themselves: see benchmarks/memory."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

pytest.importorskip("torch")

from benchmarks.memory.experiments import EXPERIMENTS, Experiment
from benchmarks.memory.judge import judged, missed
from benchmarks.memory.measure import measured
from benchmarks.memory.render import main, page

RESULTS = Path(__file__).parents[3] / "benchmarks" / "memory" / "results"
ALONE = ("mlp-sgd-single", "cnn-adamw-single", "mlp-adamw-single-checkpointed")

needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="no compiler for the library that counts")


def named(name: str) -> Experiment:
    return next(experiment for experiment in EXPERIMENTS if experiment.name == name)


@needs_compiler
@pytest.mark.slow
@pytest.mark.parametrize("name", ALONE)
def test_the_ledger_of_a_process_is_exact(name: str, tmp_path: Path) -> None:
    found = judged(measured(named(name), tmp_path))
    exact = ("parameters", "gradients", "optimizer_state", "activations", "unattributed")
    assert {part: found[part] for part in exact} == dict.fromkeys(exact, 0.0)
    assert abs(found["peak"]) < 1e-4
    assert (found["alike"], found["phase"], found["module"]) == (1, True, True)


@needs_compiler
@pytest.mark.slow
@pytest.mark.parametrize("experiment", EXPERIMENTS, ids=lambda experiment: experiment.name)
def test_the_ledger_of_a_job_is_within_the_limits(experiment: Experiment, tmp_path: Path) -> None:
    """But for the peak where frees were lost, which the ledger says."""
    result = measured(experiment, tmp_path)
    is_told = any("freed without an event" in note for one in result["ranks"] for note in one["notes"])
    unsure = {"peak", "no rank to compare places of"} if is_told else set()
    assert set(missed(judged(result))) <= unsure


def test_a_page_names_what_is_outside_of_the_limits() -> None:
    result = json.loads((RESULTS / "mlp-sgd-single.json").read_text())
    assert "1 of 1 jobs are within all limits" in page([result])
    result["ranks"][0]["ledger"]["gradients"] *= 2
    assert "- mlp-sgd-single: gradients." in page([result])


def test_the_page_is_that_of_the_results(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--check"]) == 0, capsys.readouterr().out
