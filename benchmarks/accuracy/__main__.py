"""How well `lostflops whatif` predicts: jobs on this machine, each predicted before it is changed and measured.

    sudo python -m benchmarks.accuracy --rounds 3            # all
    sudo python -m benchmarks.accuracy --only network        # one group
    python benchmarks/accuracy/render.py                     # docs/accuracy.md from the results

Ranks are network namespaces with links of limited rate (benchmarks/namespaces.py). In each round the baseline of a
group is recorded, all its experiments are predicted from it, then each changed job is recorded, and `lostflops score`
compares the two. Results go to benchmarks/accuracy/results, one file for each experiment.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.accuracy.experiments import GROUPS, Experiment, Group, Setting
from benchmarks.namespaces import hosts, run

from lostflops import __version__

HERE = Path(__file__).parent
FIRST_STEP, LAST_STEPS = 5, 2
"""Steps before those that are recorded, and after them."""
PORT = 29_521
BURST_KB = 256
FIRST = ("nice", "-n", "-10")
"""Ranks hardly compute; what else the machine does should not hold them up."""


def record(setting: Setting, steps: int, folder: Path) -> Path:
    """A run of the job, ingested."""
    job = [*FIRST, sys.executable, str(HERE / setting.script), *setting.flags]
    job += ["--steps", str(FIRST_STEP + steps + LAST_STEPS), "--run", str(folder), "--window", f"{FIRST_STEP}:{steps}"]
    with hosts(setting.ranks, setting.mbit, BURST_KB) as places:
        common = {"WORLD_SIZE": str(setting.ranks), "MASTER_ADDR": places[0].address, "MASTER_PORT": str(PORT)}
        run([(place, job, {**common, "RANK": str(rank)}) for rank, place in enumerate(places)], seconds=300)
    lostflops("ingest", str(folder / "capture"), "-o", str(folder))
    return folder


def lostflops(*words: str) -> str:
    done = subprocess.run([sys.executable, "-m", "lostflops", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr.strip() or f"exit code {done.returncode}")
    return done.stdout


def predict(baseline: Path, experiment: Experiment) -> dict[str, Any]:
    words = [word for change in experiment.changes for word in ("--change", change)]
    try:
        told = json.loads(lostflops("whatif", str(baseline), *words, "--json"))
    except RuntimeError as error:
        return {"predicted_on": _now(), "refused": str(error)}
    low, high = told["interval"]
    before = told["baseline"]
    return {
        "id": told["prediction_id"],
        "predicted_on": _now(),
        "baseline_ns": before["measured_ns"],
        "replay_error": before["replay_error"],
        "predicted_ns": told["predicted_ns"],
        "low_ns": low,
        "high_ns": high,
    }


def measure(prediction: dict[str, Any], baseline: Path, changed: Path) -> dict[str, Any]:
    if "refused" in prediction:
        return prediction
    words = ("score", prediction["id"], "--with", str(changed), "--from", str(baseline), "--json")
    score = json.loads(lostflops(*words))["score"]
    told = {name: score[name] for name in ("measured_ns", "error", "inside")}
    return {**prediction, "measured_on": _now(), **told}


def one_round(group: Group, folder: Path) -> dict[str, dict[str, Any]]:
    baseline = record(group.baseline, group.steps, folder / group.name)
    predictions = {each.name: predict(baseline, each) for each in group.experiments}
    found = {}
    for each in group.experiments:
        changed = record(each.changed, group.steps, folder / f"{each.name}-changed")
        found[each.name] = measure(predictions[each.name], baseline, changed)
        print(f"{each.name:24}{_told(found[each.name])}", flush=True)
    return found


def _told(trial: dict[str, Any]) -> str:
    if "refused" in trial:
        return trial["refused"]
    before, told, low, high, after = (
        1e-6 * trial[f"{name}_ns"] for name in ("baseline", "predicted", "low", "high", "measured")
    )
    return (
        f"{before:7.0f} -> {told:5.0f} ms predicted ({low:.0f} to {high:.0f}), {after:5.0f} measured, "
        f"{trial['error']:+.1%}{'' if trial['inside'] else ', outside'}; replay {trial['replay_error']:+.1%}"
    )


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def write(experiment: Experiment, group: Group, trials: list[dict[str, Any]], results: Path) -> None:
    job, changed = (
        {"script": one.script, "flags": " ".join(one.flags), "ranks": one.ranks, "mbit": one.mbit}
        for one in (group.baseline, experiment.changed)
    )
    told = {
        "name": experiment.name,
        "what": experiment.what,
        "changes": list(experiment.changes),
        "batches": experiment.batches,
        "steps": group.steps,
        "baseline": job,
        "changed": changed,
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "versions": {"lostflops": __version__, "torch": version("torch"), "python": platform.python_version()},
        "trials": trials,
    }
    results.mkdir(exist_ok=True)
    (results / f"{experiment.name}.json").write_text(json.dumps(told, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=[group.name for group in GROUPS], help="these groups")
    parser.add_argument("--results", type=Path, default=HERE / "results")
    parser.add_argument("--keep", type=Path, help="where runs stay; else they are removed")
    asked = parser.parse_args()
    chosen = [group for group in GROUPS if not asked.only or group.name in asked.only]
    trials: dict[str, list[dict[str, Any]]] = {each.name: [] for group in chosen for each in group.experiments}
    for number in range(asked.rounds):
        for group in chosen:
            with tempfile.TemporaryDirectory() as folder:
                place = asked.keep / f"round-{number}" if asked.keep else Path(folder)
                found = one_round(group, place)
            for each in group.experiments:
                trials[each.name].append(found[each.name])
                write(each, group, trials[each.name], asked.results)


if __name__ == "__main__":
    main()
