"""How well `lostflops scale` tells step times at 4 and 8 ranks from a recorded run at 2.

    sudo python benchmarks/scale.py --rounds 3 --json numbers.json

Ranks are network namespaces on a common bridge (benchmarks/namespaces.py), each with a link of limited rate; they run
the jobs of benchmarks/scale_job.py. The run at 2 is recorded, the others are not: the job times its steps itself.
Rounds take turns, and medians are compared. Exit code 1 means that a prediction misses by more than 10%.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from namespaces import hosts, run

JOBS = ("blocking", "ddp", "overlapped")
MEASURED, PREDICTED = 2, (4, 8)
MBIT = 100
STEPS, WARM_UP, WINDOW = 24, 5, "6:14"
TOLERANCE = 0.10
PORT = 29_511
FIRST = ("nice", "-n", "-10")
"""Ranks hardly compute; what else the machine does should not hold them up."""


@dataclass(frozen=True, slots=True)
class Answer:
    job: str
    ranks: int
    measured_ms: float
    predicted_ms: float
    low_ms: float
    high_ms: float
    unchanged_ms: float
    """The step at 2 ranks: what a prediction that does nothing would say."""

    @property
    def error(self) -> float:
        return self.predicted_ms / self.measured_ms - 1

    @property
    def holds(self) -> bool:
        return abs(self.error) <= TOLERANCE


def steps(job: str, ranks: int, folder: Path, *record: str) -> float:
    """Milliseconds of a step, the median of a job."""
    times = folder / "times.json"
    script = str(Path(__file__).with_name("scale_job.py"))
    words = [*FIRST, sys.executable, script, job, "--steps", str(STEPS), "--times", str(times), *record]
    with hosts(ranks, MBIT) as places:
        common = {"WORLD_SIZE": str(ranks), "MASTER_ADDR": places[0].address, "MASTER_PORT": str(PORT)}
        run([(place, words, {**common, "RANK": str(rank)}) for rank, place in enumerate(places)], seconds=300)
    return 1e3 * median(json.loads(times.read_text())[WARM_UP:])


def lostflops(*words: str) -> str:
    return subprocess.run(
        [sys.executable, "-m", "lostflops", *words], check=True, capture_output=True, text=True
    ).stdout


def predicted(folder: Path) -> dict[int, dict[str, Any]]:
    lostflops("ingest", str(folder / "capture"), "-o", str(folder))
    result = json.loads(lostflops("scale", str(folder), "--ranks", ",".join(map(str, PREDICTED)), "--json"))
    return {row["ranks"]: row for row in result["ranks"]}


def one_round(job: str, folder: Path) -> dict[str, Any]:
    recorded = folder / "run"
    found: dict[str, Any] = {MEASURED: steps(job, MEASURED, folder, "--run", str(recorded), "--window", WINDOW)}
    found |= {ranks: steps(job, ranks, folder) for ranks in PREDICTED}
    return {"measured": found, "predicted": predicted(recorded)}


def answers(job: str, rounds: list[dict[str, Any]]) -> Iterator[Answer]:
    unchanged = median(each["measured"][MEASURED] for each in rounds)
    for ranks in PREDICTED:
        told = [each["predicted"][ranks] for each in rounds]
        times = (1e-6 * median(row[f"{name}_ns"] for row in told) for name in ("step", "low", "high"))
        yield Answer(job, ranks, median(each["measured"][ranks] for each in rounds), *times, unchanged)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--jobs", nargs="+", choices=JOBS, default=JOBS)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    machine = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    print(f"{machine}; links of {MBIT} Mbit/s, {asked.rounds} rounds of {STEPS} steps")
    print(f"{'job':12}{'ranks':>6}{'measured':>11}{'predicted':>11}{'error':>8}   interval          {'at 2':>8}")
    rounds: dict[str, list[dict[str, Any]]] = {job: [] for job in asked.jobs}
    for _ in range(asked.rounds):
        for job in asked.jobs:
            with tempfile.TemporaryDirectory() as folder:
                rounds[job].append(one_round(job, Path(folder)))
            if asked.json:
                asked.json.write_text(json.dumps(rounds))
    found = [answer for job in asked.jobs for answer in answers(job, rounds[job])]
    for answer in found:
        print(
            f"{answer.job:12}{answer.ranks:>6}{answer.measured_ms:>8.0f} ms{answer.predicted_ms:>8.0f} ms"
            f"{answer.error:>+8.1%}   {answer.low_ms:.0f} to {answer.high_ms:.0f} ms{answer.unchanged_ms:>10.0f} ms"
            f"{'' if answer.holds else '   missed'}"
        )
    if asked.json:
        told = {"machine": machine, "mbit": MBIT, "answers": [asdict(answer) for answer in found], "rounds": rounds}
        asked.json.write_text(json.dumps(told, indent=2))
    raise SystemExit(0 if all(answer.holds for answer in found) else 1)


if __name__ == "__main__":
    main()
