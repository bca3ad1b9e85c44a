"""Estimates against training logs and MLPerf, as benchmarks compare them; the same figures are in the docs."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from tests.shared_data import SHARED, TRACES

LOGS = TRACES / "pytorch__torchtitan" / "autoresearch-may19-qwen3-14b"
MLPERF = SHARED / "mlperf"
BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


@pytest.fixture(scope="module")
def benchmark() -> ModuleType:
    return load("estimate")


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"benchmark_{name}", BENCHMARKS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def compared(benchmark: ModuleType) -> dict[str, Any]:
    if not LOGS.exists():
        pytest.skip("no logs beside the checkout")
    return benchmark.against_logs(benchmark.read_logs(LOGS))


def test_throughput_ranks_as_logged(compared: dict[str, Any]) -> None:
    assert compared["runs"] == 273
    assert compared["spearman"] >= 0.73
    assert compared["median_absolute_error"] < 0.13
    assert compared["inside_range"] > 0.93
    assert compared["range_high_over_low"] < 1.7


def test_mfu_is_that_of_the_trainer(compared: dict[str, Any]) -> None:
    assert compared["our_mfu_over_logged_min"] > 0.999
    assert compared["our_mfu_over_logged_max"] < 1.001


def test_memory_is_in_range_and_no_job_that_ran_out_was_said_to_fit(compared: dict[str, Any]) -> None:
    assert compared["memory_inside_range"] == 1
    assert compared["out_of_memory"] == 17
    assert compared["out_of_memory_told_to_fit"] == compared["ran_told_not_to_fit"] == 0


def test_published_runs_are_in_range(benchmark: ModuleType) -> None:
    rows = benchmark.against_published()
    assert all(row["inside"] for row in rows)
    assert max(abs(row["error"]) for row in rows) < 0.45


@pytest.fixture(scope="module")
def scores() -> dict[str, Any]:
    if not MLPERF.exists():
        pytest.skip("no results of MLPerf beside the checkout")
    benchmark = load("mlperf")
    scores: dict[str, Any] = benchmark.score(MLPERF)
    assert benchmark.list_misses(scores) == []
    return scores


def test_held_out_systems_are_as_near_as_published(scores: dict[str, Any]) -> None:
    held_out = scores["held_out"]
    assert held_out["systems"] == 11
    assert held_out["median_absolute_error"] < 0.035
    assert held_out["largest_absolute_error"] < 0.14
    assert held_out["inside_range"] == 1
    assert held_out["widest_range"] < 1.55


def test_a_measured_step_at_512_gpus_scales_as_near_as_published(scores: dict[str, Any]) -> None:
    assert scores["scale"]["systems"] == 11
    assert scores["scale"]["median_absolute_error"] < 0.0185
    assert scores["scale"]["inside_range"] > 0.8


def test_systems_that_rates_were_fitted_to(scores: dict[str, Any]) -> None:
    assert scores["fitted"]["systems"] == 6
    assert scores["fitted"]["largest_absolute_error"] < 0.03


def test_rank_correlation_of_ties(benchmark: ModuleType) -> None:
    """Ranks 0, 1.5, 1.5, 3 and 0, 1, 2.5, 2.5: 3.75 of 4.5."""
    assert benchmark.spearman([(1, 1), (2, 2), (2, 3), (4, 3)]) == pytest.approx(3.75 / 4.5)
