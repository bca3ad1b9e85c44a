"""The kernel model against jobs that were measured on twelve devices, and against pairs of recorded traces."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from tests.predict.estimate.test_against_logs import BENCHMARKS, load
from tests.shared_data import SHARED, TRACES

from lostflops.account.facts.devices import find_device
from lostflops.predict.costs.kernels.constants import FITTED
from lostflops.predict.costs.kernels.model import kernel_times

MEASURED = SHARED / "gpu-kernels"
PAIRS = TRACES / "AMD-AGI__TraceLens"


@pytest.fixture
def path_to_benchmarks(monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys, "path", [*sys.path, str(BENCHMARKS)])
    return BENCHMARKS


@pytest.mark.skipif(not MEASURED.exists(), reason="no measured kernels beside the checkout")
def test_jobs_on_twelve_devices(path_to_benchmarks: Path) -> None:
    """With the constants that are shipped; `benchmarks/kernel_model.py score` hides each device from the fit."""
    errors = []
    for job in load("model_jobs").read_jobs(MEASURED):
        device = find_device(job.device)
        assert device
        works, counts = zip(*job.works(), strict=True)
        predicted = max(float(kernel_times(device, works, FITTED) @ np.array(counts)), job.host_ns())
        errors.append(abs(predicted / 1e6 / job.total_ms - 1))
    assert len(errors) == 113
    assert np.mean(errors) < 0.1
    assert np.quantile(errors, 0.9) < 0.25


@pytest.mark.slow
@pytest.mark.skipif(not PAIRS.exists(), reason="no real traces beside the checkout")
def test_five_jobs_recorded_on_two_devices() -> None:
    outcomes = list(load("device_pairs").compare(PAIRS))
    assert len(outcomes) == 10
    assert np.mean([abs(one.error) for one in outcomes]) <= 0.15
    assert all(one.is_inside for one in outcomes)
    assert not any(one.has_wrong_sign for one in outcomes)
