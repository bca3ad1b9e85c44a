"""Estimates against training logs, as benchmarks/estimate.py compares them; the same figures stand in the docs."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from tests.shared_data import TRACES

LOGS = TRACES / "pytorch__torchtitan" / "autoresearch-may19-qwen3-14b"
BENCHMARK = Path(__file__).parents[3] / "benchmarks" / "estimate.py"


@pytest.fixture(scope="module")
def benchmark() -> ModuleType:
    spec = importlib.util.spec_from_file_location("benchmark_estimate", BENCHMARK)
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
    assert compared["spearman"] >= 0.7
    assert compared["median_absolute_error"] < 0.35
    assert compared["inside_range"] > 0.8


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


def test_rank_correlation_of_ties(benchmark: ModuleType) -> None:
    """Ranks 0, 1.5, 1.5, 3 and 0, 1, 2.5, 2.5: 3.75 of 4.5."""
    assert benchmark.spearman([(1, 1), (2, 2), (2, 3), (4, 3)]) == pytest.approx(3.75 / 4.5)
