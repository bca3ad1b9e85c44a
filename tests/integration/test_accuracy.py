"""Experiments that hold predictions to real jobs: what the page says of them, and one that is run."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
RENDER = ROOT / "benchmarks" / "accuracy" / "render.py"


def trial(predicted: float, measured: float, *, inside: bool) -> dict[str, Any]:
    return {
        "id": "p-00000001",
        "predicted_on": "2026-01-01T00:00:00+00:00",
        "baseline_ns": 100_000_000,
        "replay_error": 0.01,
        "predicted_ns": predicted * 1e6,
        "low_ns": predicted * 0.9e6,
        "high_ns": predicted * 1.1e6,
        "measured_on": "2026-01-01T00:01:00+00:00",
        "measured_ns": measured * 1e6,
        "error": predicted / measured - 1,
        "inside": inside,
    }


def page(*results: tuple[str, int, list[dict[str, Any]]]) -> str:
    spec = importlib.util.spec_from_file_location("accuracy_render", RENDER)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    fixed = {"what": "", "changes": ["a=1"], "machine": "", "versions": {}}
    text: str = module.page(
        [{"name": name, "batches": batches, "trials": own, **fixed} for name, batches, own in results]
    )
    return text


def test_a_sum_is_that_of_all_trials() -> None:
    text = page(
        ("right", 1, [trial(80, 80, inside=True), trial(88, 80, inside=True)]),
        ("wrong sign", 1, [trial(110, 88, inside=False)]),
        ("a step of four batches", 4, [trial(300, 250, inside=False)]),
        ("refused", 1, [{"predicted_on": "", "refused": "no collective was recorded"}]),
    )
    assert "| experiments, trials | 4, 5 |" in text
    assert "| not predicted | 1 |" in text
    assert "mean absolute | 13.8% |" in text
    assert "wrong sign of a gain or loss over 5% | 1 of 4 |" in text
    assert "inside the range | 2 of 4 (50%) |" in text
    assert "no collective was recorded" in text


def test_the_page_is_fresh() -> None:
    done = subprocess.run([sys.executable, RENDER, "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def namespaces() -> str:
    return subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="network namespaces need root on Linux")
def test_a_loader_that_gets_workers_is_predicted(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    words = [
        sys.executable,
        "-m",
        "benchmarks.accuracy",
        "--only",
        "loader",
        "--rounds",
        "1",
        "--results",
        str(tmp_path),
    ]
    process = subprocess.Popen(words, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT / "src")})
    assert process.wait(300) == 0
    found = json.loads((tmp_path / "loader.json").read_text())["trials"][0]
    assert found["predicted_on"] < found["measured_on"]
    assert found["measured_ns"] < 0.9 * found["baseline_ns"]
    assert abs(found["error"]) < 0.15
    assert f"lf{process.pid}-" not in namespaces()
