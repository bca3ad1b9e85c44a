"""The figures of docs/explanation/recomputation.md are those of the runs that are kept."""

import json
from pathlib import Path

ROOT = Path(__file__).parents[4]
BENCHMARK = ROOT / "benchmarks" / "recomputation"


def test_peaks_are_as_near_as_promised():
    trials = json.loads((BENCHMARK / "results" / "checkpointed.json").read_text())["trials"]
    assert {trial["job"] for trial in trials} == {"mlp", "transformer"}
    assert all(abs(trial["predicted"]["peak"] / trial["measured"]["peak"] - 1) <= 0.07 for trial in trials)
