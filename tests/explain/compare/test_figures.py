"""The figures of docs/explanation/comparing.md are those of the experiments that are kept."""

import json
from pathlib import Path

ROOT = Path(__file__).parents[3]
RESULTS = ROOT / "benchmarks" / "diff" / "results"


def test_made_series_keep_what_is_promised() -> None:
    told = json.loads((RESULTS / "synthetic.json").read_text())
    for kind in told["kinds"]:
        assert kind["alike_called_different"] <= 0.05 * kind["trials"], kind["name"]
        assert kind["found_by_runs"] >= 0.9 * kind["runs_asked_in"], kind["name"]
    asked, found = (sum(kind[name] for kind in told["kinds"]) for name in ("steps_asked_in", "found_by_steps"))
    assert asked > 0
    assert found >= 0.9 * asked


def test_real_runs_keep_what_is_promised() -> None:
    pairs = json.loads((RESULTS / "real.json").read_text())["pairs"]
    assert len(pairs) >= 40
    assert all(pair["runs"] >= 2 for pair in pairs)
    assert sum(pair["same"]["answer"] in ("faster", "slower") for pair in pairs) <= 0.05 * len(pairs)
    assert sum(pair["slow"]["answer"] == "slower" for pair in pairs) >= 0.9 * len(pairs)


def test_one_run_a_side_on_a_busy_machine_is_never_called_wrongly() -> None:
    pairs = json.loads((RESULTS / "one-run.json").read_text())["pairs"]
    assert len(pairs) >= 8
    assert sum(pair["same"]["answer"] in ("faster", "slower") for pair in pairs) <= 0.05 * len(pairs)
    assert not any(pair[side]["answer"] == "faster" for pair in pairs for side in ("third", "double"))
    assert sum(pair["double"]["answer"] == "slower" for pair in pairs) >= 0.5 * len(pairs)
    without = [pair["same"]["sign_without_drift"] for pair in pairs]
    assert sum(map(abs, without)) > 0.5 * len(pairs), "why a constant spread between runs is not enough"
