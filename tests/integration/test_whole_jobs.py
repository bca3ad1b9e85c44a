"""The first sentence of programs as people write them is about what took most of the time, or what ended the job."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import lostflops
from tests.integration import whole_jobs

pytest.importorskip("torch")

PYTHON = [sys.executable]
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port"]
EXAMPLES = Path(__file__).parents[2] / "examples"
RAISES = r"raised ValueError at whole_jobs\.py:\d+ \(check_batch\), after step 39\."
SHORT = r"Of [\d.]+ s( \(mean of ranks\))?, [\d.]+ m?s is training; "
"""Of a job of a few seconds, most is its start: that is its right first sentence."""


def free_port() -> str:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return str(one.getsockname()[1])


def lostflops_run(folder: Path, words: list[str]) -> tuple[subprocess.CompletedProcess[str], int]:
    """Record a command with the defaults; return what came of it, and its wall time in ns."""
    more = {"OMP_NUM_THREADS": "1", "SPAWN_PORT": free_port(), "TORCHINDUCTOR_CACHE_DIR": str(folder / "cache")}
    environment = os.environ | more | {"PYTHONPATH": str(Path(lostflops.__file__).parents[1])}
    command = [sys.executable, "-m", "lostflops", "run", "-o", "run", "--", *words]
    began = time.time_ns()
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=280, check=False
    )
    return done, time.time_ns() - began


def first_words(done: subprocess.CompletedProcess[str]) -> str:
    return " ".join(done.stderr.split()).partition("Where the time went ")[2]


def script(name: str, *launcher: str) -> list[str]:
    return [*(launcher or PYTHON), str(whole_jobs.__file__), name]


def report_of(folder: Path) -> dict[str, Any]:
    with lostflops.open(folder / "run") as run:
        return run.report().to_json()


slow = pytest.mark.slow


@pytest.mark.parametrize(
    ("name", "ranks", "status", "first"),
    [
        pytest.param("plain", 1, 0, r"1 rank on 1 host \(CPU\), [\d.]+ ms per step\.", id="plain", marks=slow),
        pytest.param("five_steps", 1, 0, SHORT, id="five steps", marks=slow),
        pytest.param("slow_start", 1, 0, SHORT + r"[\d.]+ s passed before the first step", id="slow start", marks=slow),
        pytest.param("compiled", 1, 0, SHORT + r".*[\d.]+ s compiling", id="compile, cold", marks=slow),
        pytest.param("crash_alone", 1, 1, f"Rank 0 {RAISES}", id="crash"),
        pytest.param("crash", 2, 1, f"Rank 1 {RAISES} Then rank 0 ", id="crash of two"),
        pytest.param("abort", 2, 1, r"Rank 1 was ended by SIGABRT, after step 39\.", id="abort", marks=slow),
        pytest.param("leave", 2, 1, r"Rank 1 ended with exit code 3, after step 39\.", id="exit", marks=slow),
        pytest.param("terminated", 1, 143, r"The job was ended by SIGTERM after step 39\.", id="SIGTERM", marks=slow),
        pytest.param(
            "out_of_memory",
            1,
            1,
            r"Rank 0 raised MemoryError at whole_jobs\.py:\d+ \(out_of_memory\), after step 39\.",
            id="out of memory",
            marks=slow,
        ),
        pytest.param("spawn", 1, 0, SHORT, id="mp.spawn", marks=slow),
        pytest.param("spawn_crash", 1, 1, f"Rank 1 {RAISES}", id="mp.spawn, crash", marks=slow),
        pytest.param("spawn_killed", 1, 1, r"Rank 1 was ended by SIGKILL, after step 39\.", id="mp.spawn, killed"),
    ],
)
def test_the_first_sentence(tmp_path: Path, name: str, ranks: int, status: int, first: str) -> None:
    launcher = [*TORCHRUN, free_port()] if ranks > 1 else []
    done, wall = lostflops_run(tmp_path, script(name, *launcher))
    assert done.returncode in (status, 128 - status, -(status - 128)), done.stderr
    assert re.match(first, first_words(done)), done.stderr
    assert_closed(report_of(tmp_path), wall)


def assert_closed(report: dict[str, Any], wall: int) -> None:
    """Each rank's lines sum to the same time, of the command; only Lostflops' own start and report are not in it."""
    wholes = {row["wall_ns"] for row in report["life_by_rank"]}
    assert len(wholes) == 1
    [whole] = wholes
    assert all(sum(row["lines"].values()) == whole for row in report["life_by_rank"])
    assert report["job"]["wall_ns"] == whole
    assert sum(row["ns"] for row in report["job"]["life"]) == pytest.approx(whole, abs=len(report["job"]["life"]))
    assert 0.3 * wall < whole < wall


@slow
def test_two_models_in_turn_are_two_kinds_of_steps(tmp_path: Path) -> None:
    """The large one takes nearly all the time. Nothing is wrong with either."""
    done, _ = lostflops_run(tmp_path, script("two_models"))
    said = first_words(done)
    assert re.match(r"1 rank on 1 host \(CPU\), [\d.]+ m?s per step\. Steps are of 2 kinds: 60 with SGD of 4", said), (
        said
    )
    report = report_of(tmp_path)
    assert not [one for one in report["findings"] if one["cause"] in ("warmup", "periodic", "stalls")]
    assert "far slower" not in said


@slow
def test_two_optimizers_in_turn_are_no_fault(tmp_path: Path) -> None:
    done, _ = lostflops_run(tmp_path, script("two_optimizers"))
    assert re.match(r"1 rank on 1 host \(CPU\), [\d.]+ m?s per step\.", first_words(done)), done.stderr
    assert not [one for one in report_of(tmp_path)["findings"] if one["level"] == "found"]


def test_a_job_that_fails_before_it_trains_says_so(tmp_path: Path) -> None:
    done, _ = lostflops_run(tmp_path, script("crash_before"))
    assert done.returncode == 1
    assert "nothing was recorded: the command ended with exit code 1 before a process of it trained" in done.stderr
    assert "doctor" not in done.stderr


@slow
def test_a_warm_cache_is_seen(tmp_path: Path) -> None:
    lostflops_run(tmp_path, script("compiled"))
    cold = report_of(tmp_path)
    (tmp_path / "run").rename(tmp_path / "cold")
    lostflops_run(tmp_path, script("compiled"))
    warm = report_of(tmp_path)
    spent = [sum(one["ns"] for one in made["compilations"]) for made in (cold, warm)]
    assert spent[1] < 0.5 * spent[0]
    assert any(one["cached"] for one in warm["compilations"])
    [again] = [one for one in cold["compilations"] if one["reason"]]
    assert "size mismatch at index 0. expected 32, actual 48" in again["reason"]
    assert (again["function"], again["step"]) == ("train_step", 30)


@slow
def test_a_launcher_that_is_stopped_is_no_fault_of_a_rank(tmp_path: Path) -> None:
    """As a scheduler does at the end of a job's time: it sends SIGTERM to the process that it started."""
    command = [sys.executable, "-m", "lostflops", "run", "-o", "run", "--", *TORCHRUN, free_port()]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(lostflops.__file__).parents[1])}
    words = [*command, str(EXAMPLES / "ddp_transformer.py"), "--steps", "100000"]
    process = subprocess.Popen(words, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
    try:
        until = time.monotonic() + 60
        while time.monotonic() < until and not list(tmp_path.glob("run/capture/rank-*.capture")):
            time.sleep(0.2)
        time.sleep(5)
        process.send_signal(signal.SIGTERM)
        said = process.communicate(timeout=120)[1].decode()
    finally:
        process.kill()
    first = " ".join(said.split()).partition("Where the time went ")[2]
    assert re.match(r"The job (was ended by SIGTERM|ended with exit code 1) after step \d+\.", first), said
    assert json.dumps(report_of(tmp_path)["job"]["failed_rank"]) == "null"


@slow
@pytest.mark.parametrize(
    ("package", "example"), [("transformers", "huggingface_trainer.py"), ("lightning", "lightning_module.py")]
)
def test_frameworks(tmp_path: Path, package: str, example: str) -> None:
    """Their jobs of a few seconds are mostly imports and preparation."""
    pytest.importorskip(package)
    done, wall = lostflops_run(tmp_path, [*PYTHON, str(EXAMPLES / example)])
    assert done.returncode == 0, done.stderr
    assert re.match(SHORT + r".*passed before the first step", first_words(done)), done.stderr
    assert_closed(report_of(tmp_path), wall)
