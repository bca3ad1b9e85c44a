"""How well `lostflops whatif` predicts changes that are then made for real, on jobs that no rule was written with.

    sudo python -m benchmarks.whatif_real                    # without root, links between namespaces are skipped
    python -m benchmarks.whatif_real --only fused,no_sync --rounds 1
    python -m benchmarks.whatif_real --json >whatif.json

A job is recorded by `lostflops run` with its defaults, and the change is predicted from that recording. Then the job
and the changed job run in turn without a recorder, and time their own steps. The prediction is a ratio of the recorded
step; the error is that of the ratio times the measured step of the unchanged job.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean, median
from typing import Final

from clinic.held_out_3.real import adapters, job, language, speech, vision
from clinic.linked import Rates, record_linked, time_linked
from clinic.patients import NotHere
from clinic.record import Job, record, time_job
from clinic.tables import table


@dataclass(frozen=True, slots=True)
class Experiment:
    """A job, a change as `lostflops whatif` is asked for it, and the flags that make that change for real."""

    name: str
    change: str
    job: Job
    flags: str
    rates: tuple[Rates, Rates] | None = None
    """Rates of the links before and after, where ranks are in network namespaces."""
    ranks: int | None = None
    """Ranks of the changed job, where they are others."""

    def record(self, folder: Path) -> Path:
        return record(self.job, folder) if self.rates is None else record_linked(self.job, folder, self.rates[0])

    def time(self, *, is_changed: bool) -> float:
        job = self.job.with_flags(self.flags) if is_changed else self.job
        if is_changed and self.ranks is not None:
            job = Job(job.script, job.flags, self.ranks)
        return time_job(job) if self.rates is None else time_linked(job, self.rates[is_changed])


WIDE: Final = "--layers 6 --width 192 --length 8 --batch 4 --optimizer sgd"
EXPERIMENTS: Final = (
    Experiment(
        "larger_buckets",
        "bucket_mb=25",
        adapters("--layers 120 --width 80 --device-ms 3 --bucket-mb 0.01"),
        "--bucket-mb 25",
    ),
    Experiment(
        "smaller_buckets", "bucket_mb=2", language(f"{WIDE} --device-ms 10 --bucket-mb 500", 3), "--bucket-mb 2"
    ),
    Experiment(
        "fused",
        "optimizer=fused",
        adapters("--layers 200 --width 40 --device-ms 1 --optimizer loop"),
        "--optimizer fused",
    ),
    Experiment(
        "no_sync", "no_sync=on", language(f"{WIDE} --batch 2 --passes 3 --device-ms 3 --sync every"), "--sync last"
    ),
    Experiment("accumulate", "accumulate=2", language(f"{WIDE} --device-ms 4 --bucket-mb 4"), "--passes 2"),
    Experiment(
        "straggler",
        "straggler=removed",
        speech("--device-ms 2.5 --width 32 --length 20 --device-factor 1:1.4", 3),
        "--device-factor 1:1",
    ),
    Experiment(
        "logging",
        "python=removed",
        speech("--device-ms 3 --width 64 --length 16 --log-values 9000"),
        "--log-every 1000",
    ),
    Experiment(
        "histograms",
        "python=removed",
        language("--device-ms 3 --width 48 --length 16 --histograms-every 1"),
        "--histograms-every 1000",
    ),
    Experiment(
        "first_workers",
        "data=1",
        vision("--device-ms 6 --side 72 --decode-passes 3 --layers 2 --width 16"),
        "--workers 1",
    ),
    Experiment(
        "more_workers",
        "data=2x",
        vision("--device-ms 3 --layers 2 --width 16 --far-disk all:20 --workers 1"),
        "--workers 2",
    ),
    Experiment(
        "recompute_off",
        "recompute=off",
        language("--layers 5 --width 80 --length 48 --batch 6 --recompute yes"),
        "--recompute no",
    ),
    Experiment(
        "recompute_on", "recompute=on", language("--layers 5 --width 80 --length 48 --batch 6"), "--recompute yes"
    ),
    Experiment(
        "ddp_for_each",
        "ddp=25",
        adapters("--layers 104 --width 64 --device-ms 3 --reduce each"),
        "--reduce ddp --bucket-mb 25",
    ),
    Experiment("ddp_for_flat", "ddp=2", language(f"{WIDE} --device-ms 8 --reduce flat"), "--reduce ddp --bucket-mb 2"),
    Experiment("double_batch", "batch=2", speech("--device-ms 2 --width 96 --length 32 --batch 6"), "--batch 12"),
    Experiment("half_batch", "batch=0.5", language("--layers 3 --width 96 --length 48 --batch 12"), "--batch 6"),
    Experiment(
        "more_microbatches",
        "microbatches=8",
        job("stages", "--device-ms 0.8 --batch 16 --microbatches 4", 3),
        "--microbatches 8",
    ),
    Experiment(
        "gpipe", "schedule=gpipe", job("stages", "--device-ms 0.8 --batch 16 --microbatches 8", 3), "--schedule gpipe"
    ),
    Experiment(
        "even_stages", "stages=even", job("stages", "--layers 3,1,2 --device-ms 0.8 --batch 16", 3), "--layers 2,2,2"
    ),
    Experiment(
        "no_metrics", "blocking=removed", vision("--device-ms 3 --layers 2 --width 16 --metrics 16"), "--metrics 0"
    ),
    Experiment(
        "even_lengths", "work=even", speech("--device-ms 2 --width 40 --layers 2 --length 20,40"), "--length 30"
    ),
    Experiment("third_rank", "world_size=3", language(f"{WIDE} --device-ms 6 --bucket-mb 4"), "", ranks=3),
    Experiment(
        "double_bandwidth",
        "network.bandwidth=2x",
        vision("--layers 6 --width 160 --side 8 --batch 4 --device-ms 4 --bucket-mb 1"),
        "",
        (Rates(300), Rates(600)),
    ),
)


@dataclass(frozen=True, slots=True)
class Trial:
    """Step times in seconds: measured ones are medians over rounds, predicted ones belong to the measured baseline."""

    name: str
    change: str
    before: float
    predicted: float
    low: float
    high: float
    measured: float
    load: float

    @property
    def error(self) -> float:
        return self.predicted / self.measured - 1

    @property
    def is_inside(self) -> bool:
        return self.low <= self.measured <= self.high


def predict(run: Path, change: str) -> tuple[float, float, float]:
    """Return the predicted step and its interval, as ratios of the recorded step."""
    words = [sys.executable, "-m", "lostflops", "whatif", str(run), "--change", change, "--json"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr.strip() or f"exit code {done.returncode}")
    told = json.loads(done.stdout)
    before = told["baseline"]["measured_ns"]
    low, high = told["interval"]
    return told["predicted_ns"] / before, low / before, high / before


def try_change(experiment: Experiment, rounds: int) -> Trial:
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="whatif-") as folder:
        ratios = predict(experiment.record(Path(folder) / "run"), experiment.change)
    seconds = [(experiment.time(is_changed=False), experiment.time(is_changed=True)) for _ in range(rounds)]
    before, after = (median(times) for times in zip(*seconds, strict=True))
    predicted, low, high = (before * ratio for ratio in ratios)
    return Trial(experiment.name, experiment.change, before, predicted, low, high, after, load)


def show(trials: list[Trial], refused: dict[str, str]) -> str:
    heads = ("experiment", "change", "before", "predicted", "interval", "measured", "error", "inside", "load")
    rows = [
        (
            one.name,
            one.change,
            *(f"{1e3 * seconds:.0f}" for seconds in (one.before, one.predicted)),
            f"{1e3 * one.low:.0f} to {1e3 * one.high:.0f}",
            f"{1e3 * one.measured:.0f}",
            f"{one.error:+.1%}",
            "yes" if one.is_inside else "NO",
            f"{one.load:.1f}",
        )
        for one in trials
    ]
    parts = [table(heads, rows, right=range(2, len(heads)))]
    if trials:
        errors = [abs(one.error) for one in trials]
        inside = sum(one.is_inside for one in trials)
        parts.append(
            f"Step times in ms. Mean error {mean(errors):.1%} of the step, median {median(errors):.1%}, "
            f"worst {max(errors):.1%}; {inside} of {len(trials)} inside the range."
        )
    parts += [f"{name}: {why}" for name, why in refused.items()]
    return "\n\n".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="NAME,...", help="these experiments")
    parser.add_argument("--rounds", type=int, default=2, help="of the job and the changed job, in turn")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    only = set(filter(None, asked.only.split(",")))
    if unknown := only - {one.name for one in EXPERIMENTS}:
        parser.error(f"no experiment {', '.join(sorted(unknown))}")
    trials: list[Trial] = []
    refused: dict[str, str] = {}
    for one in EXPERIMENTS:
        if only and one.name not in only:
            continue
        try:
            trials.append(try_change(one, asked.rounds))
        except (NotHere, RuntimeError, TimeoutError, subprocess.TimeoutExpired) as error:
            refused[one.name] = str(error).splitlines()[0]
        print(one.name, file=sys.stderr, flush=True)
    if asked.json:
        told = [{**asdict(one), "error": one.error, "inside": one.is_inside} for one in trials]
        print(json.dumps({"trials": told, "refused": refused}, indent=1))
    else:
        print(show(trials, refused))


if __name__ == "__main__":
    main()
