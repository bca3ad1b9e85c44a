"""Peaks of real jobs that were predicted from other runs: record, ask, change, record again."""

from pathlib import Path

import pytest
from benchmarks.memory_whatif.__main__ import EXPERIMENTS, measured

BY_NAME = {experiment.name: experiment for experiment in EXPERIMENTS}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["relu-mask", "zero-1-mlp-2", "zero-3-transformer-2"])
def test_a_changed_job_peaks_where_it_was_predicted_to(name: str, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    found = measured(BY_NAME[name], tmp_path)
    assert abs(found["error"]) < 0.05
    if name == "relu-mask":
        assert abs(found["saving_error"]) < 0.05
