"""Does a job that is healthy raise an alarm? Step times of real jobs go through the finder of changes.

    python benchmarks/false_alarms.py ../shared/mlperf/llama31_405b_steps.csv.gz

Reads columns system, run and step_s, one row per step. Nothing slowed these jobs down that their logs name, so each
alarm counts as false. Then the second half of each job is made slower, and the alarms that this raises are counted.
"""

from __future__ import annotations

import argparse
import csv
import gzip
from collections import defaultdict
from pathlib import Path
from statistics import median

from lostflops.account.facts.changes import ChangeFinder, ComparedStep, JobChange

_SLOWER = (0.11, 0.15, 0.25, 0.5)


def read(path: Path) -> dict[tuple[str, str], list[float]]:
    jobs: dict[tuple[str, str], list[float]] = defaultdict(list)
    with gzip.open(path, "rt") as file:
        for row in csv.DictReader(file):
            jobs[row["system"], row["run"]].append(float(row["step_s"]))
    return dict(jobs)


def alarms(times: list[float]) -> list[JobChange]:
    finder = ChangeFinder()
    steps = [ComparedStep(step=number, time=round(seconds * 1e9)) for number, seconds in enumerate(times) if number]
    return [change for step in steps if (change := finder.take(step)) is not None]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="+")
    asked = parser.parse_args()
    jobs, steps, hours, found = 0, 0, 0.0, 0
    for path in asked.files:
        for (system, run), times in read(path).items():
            jobs, steps, hours = jobs + 1, steps + len(times), hours + sum(times) / 3600
            for change in alarms(times):
                found += 1
                print(f"{path.name} {system} run {run}: {change}")
    print(f"{found} alarms in {jobs} jobs, {steps:,} steps, {hours:.1f} h")
    every = [times for path in asked.files for times in read(path).values()]
    for share in _SLOWER:
        waits = [after for times in every if (after := steps_until_alarm(times, share)) is not None]
        after = f", after {median(waits):.0f} steps (median)" if waits else ""
        print(f"{100 * share:.0f}% slower: {len(waits)} of {len(every)} jobs raise an alarm{after}")


def steps_until_alarm(times: list[float], share: float) -> int | None:
    """Return the number of slower steps before the first alarm; None if there is none."""
    half, finder = len(times) // 2, ChangeFinder()
    for number, seconds in enumerate(times):
        slower = seconds * (1 + share) if number >= half else seconds
        if number and finder.take(ComparedStep(step=number, time=round(slower * 1e9))) is not None:
            return number - half
    return None


if __name__ == "__main__":
    main()
