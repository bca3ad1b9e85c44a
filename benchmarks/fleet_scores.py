"""How many planted slow hosts and regressions are found over many fleets, and how many healthy ones are blamed.

    python benchmarks/fleet_scores.py

Fleets are generated with `lostflops.testing.fleet`: 600 runs of 15 jobs, on 64 to 1,024 ranks of 512 hosts, of which 2%
are slow by 3 to 15%, some only from or until some day; 3 of 10 jobs become 3% slower. A host that was slow in one run
only is never named, so hosts that were slow in at least three count apart. Series are 40 step times, of which half
become 3% slower at a run from 9 to 31, with normal noise, heavy tails, wild runs, or neighbours that are alike
(correlation 0.3), each asked alone or all together. A regression counts as found if it was certain within 5 runs and
placed at most 3 runs off. False alarms are counted in jobs without a regression, and before it in the others. `known
noise` is the limit: the same test, if the noise of each series were known exactly.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from lostflops.fleet.change_points import RUNS_AFTER, RUNS_BEFORE
from lostflops.fleet.host_times import HostTimes, read_host_times
from lostflops.fleet.regressions import JobHistory, find_regressions
from lostflops.fleet.slow_hosts import find_slow_hosts
from lostflops.fleet.step_times import StepTime, read_step_times
from lostflops.fleet.summary import RunSummary
from lostflops.testing.fleet import FleetPlan, GeneratedFleet, SlowHostTruth
from lostflops.testing.mlperf_runs import read_mlperf_runs

Floats = npt.NDArray[np.float64]
SEED: Final = 900_000
LEVELS: Final = (0.5, 1.0, 2.0)
"""Factors on the noise and the spread of hosts of `FleetPlan`."""
NOISES: Final = (0.005, 0.01, 0.015)
KINDS: Final = ("normal", "heavy tails", "wild runs", "alike neighbours")
RUNS: Final = 40
WITHIN: Final = 5
NEAR: Final = 3
OFTEN: Final = 3
PARTS: Final = ("series", "fleets", "healthy", "large", "mlperf")
SHIFT: Final = 0.03
MLPERF: Final = Path(__file__).parents[2] / "shared" / "mlperf"


@dataclass
class Rate:
    """Some of many."""

    count: int = 0
    of: int = 0

    def add(self, count: int, of: int) -> None:
        self.count += count
        self.of += of

    def __str__(self) -> str:
        if not self.of:
            return "no case"
        share, z = self.count / self.of, 1.96
        middle = (share + z**2 / (2 * self.of)) / (1 + z**2 / self.of)
        width = z / (1 + z**2 / self.of) * (share * (1 - share) / self.of + z**2 / (4 * self.of**2)) ** 0.5
        bounds = f"{max(middle - width, 0):.2%} to {min(middle + width, 1):.2%}"
        return f"{share:.2%} ({self.count} of {self.of}; 95% interval {bounds})"


class HostScores:
    """Scores of hosts over fleets."""

    def __init__(self) -> None:
        self.found, self.often, self.blamed, self.wrong, self.covered = Rate(), Rate(), Rate(), Rate(), Rate()

    def add(self, fleet: GeneratedFleet, runs: Iterable[RunSummary]) -> None:
        times = read_host_times(runs)
        verdicts = {host.host: host for host in find_slow_hosts(times).hosts}
        planted = {host.host: host.slower for host in fleet.truth.slow_hosts if host.host in verdicts}
        named = {name for name, host in verdicts.items() if host.is_slow}
        self.found.add(len(named & planted.keys()), len(planted))
        self.blamed.add(len(named - planted.keys()), len(verdicts) - len(planted))
        self.wrong.add(len(named - planted.keys()), len(named))
        often = {host.host for host in fleet.truth.slow_hosts if count_slow_runs(times, host) >= OFTEN}
        self.often.add(len(named & often), len(often))
        hits = [verdicts[name].low <= planted[name] <= verdicts[name].high for name in named & planted.keys()]
        self.covered.add(sum(hits), len(hits))

    def show(self, title: str) -> None:
        print(f"{title}\n  planted slow hosts found     {self.found}")
        print(f"  of those slow in {OFTEN} runs      {self.often}\n  healthy hosts blamed         {self.blamed}")
        print(f"  named hosts that are healthy {self.wrong}")
        print(f"  ranges with the truth {self.covered}", flush=True)


def count_slow_runs(times: HostTimes, host: SlowHostTruth) -> int:
    """Count the runs with a comparison in which a host was slow."""
    if host.host not in times.names:
        return 0
    starts = times.start[times.host == times.names.index(host.host)]
    return int(((starts >= host.since) & (starts <= host.until)).sum())


class ChangeScores:
    """Scores of regressions over series."""

    def __init__(self) -> None:
        self.found, self.late, self.false, self.faster = Rate(), Rate(), Rate(), Rate()

    def add(self, pace: JobHistory, order: dict[str, int], planted: int | None) -> None:
        """Add one job, whose runs have this order, and which became slower at a run, or never."""
        rises = [(order[change.run], order[change.seen]) for change in pace.changes if change.is_slower]
        if planted is not None:
            seen = [stop for first, stop in rises if abs(first - planted) <= NEAR and stop >= planted]
            self.found.add(any(stop < planted + WITHIN for stop in seen), 1)
            self.late.add(any(stop < planted + 2 * WITHIN for stop in seen), 1)
            rises = [rise for rise in rises if rise[1] < planted]
        self.false.add(bool(rises), 1)
        self.faster.add(any(not change.is_slower for change in pace.changes), 1)

    def show(self, title: str) -> None:
        print(f"{title}\n  found within {WITHIN} runs  {self.found}\n  found within {2 * WITHIN} runs {self.late}")
        print(f"  false regressions    {self.false}\n  false improvements   {self.faster}", flush=True)


def score_fleets(count: int, seed: int) -> None:
    """Score generated fleets: levels of noise in turn."""
    hosts = {level: HostScores() for level in LEVELS}
    changes = {noise: ChangeScores() for noise in NOISES}
    for number in range(count):
        level, noise = LEVELS[number % len(LEVELS)], NOISES[number % len(NOISES)]
        usual = {name: level * getattr(FleetPlan(), name) for name in ("job_spread", "host_noise", "host_error")}
        plan = FleetPlan(runs=600, hosts=512, seed=seed + number, run_noise=noise, **usual)
        fleet = GeneratedFleet(plan)
        runs = list(fleet.summaries())
        hosts[level].add(fleet, runs)
        score_jobs(changes[noise], fleet, read_step_times(runs))
    for level, host_scores in hosts.items():
        host_scores.show(f"hosts, {level:g} times the usual noise, fleets with 2% slow hosts")
    for noise, change_scores in changes.items():
        change_scores.show(f"jobs of these fleets, {noise:.1%} between runs")


def score_jobs(scores: ChangeScores, fleet: GeneratedFleet, times: list[StepTime]) -> None:
    """Score the jobs of one fleet."""
    planted = {change.job: change.index for change in fleet.truth.regressions}
    for pace in find_regressions(times):
        order = {time.run: place for place, time in enumerate(time for time in times if time.job == pace.job)}
        scores.add(pace, order, planted.get(pace.job))


def score_large_fleets(count: int, seed: int) -> None:
    """Score fleets of 10,000 runs of 250 jobs on 1,024 hosts."""
    hosts, changes = HostScores(), ChangeScores()
    for number in range(count):
        fleet = GeneratedFleet(FleetPlan(runs=10_000, seed=seed + number))
        runs = list(fleet.summaries())
        hosts.add(fleet, runs)
        score_jobs(changes, fleet, read_step_times(runs))
    hosts.show("hosts, the usual noise, fleets of 10,000 runs")
    changes.show("jobs of these fleets, 0.5% between runs")


def score_healthy_fleets(count: int, seed: int) -> None:
    """Score fleets without slow hosts: in how many of them is any host blamed?"""
    blamed = Rate()
    for number in range(count):
        plan = FleetPlan(runs=200, hosts=512, seed=seed + number, slow_hosts=0, regressions=0)
        named = find_slow_hosts(read_host_times(GeneratedFleet(plan).summaries())).slow
        blamed.add(bool(named), 1)
    print(f"fleets without slow hosts\n  fleets with a host blamed  {blamed}", flush=True)


def draw_noise(random: np.random.Generator, kind: str, count: int) -> Floats:
    """Draw noise with standard deviation 1, wild runs aside."""
    if kind == "heavy tails":
        return np.asarray(random.standard_t(4, (count, RUNS)) / np.sqrt(2))
    noise = random.standard_normal((count, RUNS))
    if kind == "wild runs":
        return noise + (random.random((count, RUNS)) < 0.03) * random.uniform(3, 20, (count, RUNS))
    if kind == "alike neighbours":
        for place in range(1, RUNS):
            noise[:, place] = 0.3 * noise[:, place - 1] + np.sqrt(1 - 0.3**2) * noise[:, place]
    return noise


def make_series(random: np.random.Generator, values: Floats, places: list[int | None]) -> list[list[StepTime]]:
    """Make the step times of series; commits change often, and where a series becomes slower."""
    made = []
    for number, (row, place) in enumerate(zip(values.tolist(), places, strict=True)):
        is_new = random.random(RUNS) < 0.35
        if place is not None:
            is_new[place] = True
        commits = np.cumsum(is_new).tolist()
        times = [
            StepTime(
                f"job-{number:05d}", 64, "H100", f"run-{at:03d}", at, 1e9 * np.exp(row[at]), 5e-4, str(commits[at])
            )
            for at in range(RUNS)
        ]
        made.append(times)
    return made


def score_series(kind: str, noise: float, count: int, seed: int, *, is_alone: bool) -> ChangeScores:
    """Score series of one kind; the first half has a regression."""
    random = np.random.default_rng([seed, KINDS.index(kind), round(noise * 1e4)])
    values = noise * draw_noise(random, kind, count)
    places = [int(random.integers(8, 31)) if number < count // 2 else None for number in range(count)]
    for row, place in enumerate(places):
        if place is not None:
            values[row, place:] += np.log1p(SHIFT)
    series = make_series(random, values, places)
    asked = series if is_alone else [[time for times in series for time in times]]
    order = {f"run-{at:03d}": at for at in range(RUNS)}
    scores = ChangeScores()
    for times in asked:
        for pace in find_regressions(times):
            scores.add(pace, order, places[int(pace.job[4:])])
    return scores


def score_known_noise(noise: float, count: int, seed: int) -> Rate:
    """Score the likelihood ratio test that knows the noise, at 1% false alarms in 40 runs."""
    random = np.random.default_rng([seed, 9])
    healthy = noise * random.standard_normal((20 * count, RUNS))
    needed = float(np.quantile(_known_deviates(healthy, noise).max(axis=1), 0.99))
    places = random.integers(8, 31, count)
    values = noise * random.standard_normal((count, RUNS)) + np.log1p(SHIFT) * (np.arange(RUNS) >= places[:, None])
    is_near = (np.arange(RUNS) >= places[:, None]) & (np.arange(RUNS) < places[:, None] + WITHIN)
    rate = Rate()
    rate.add(int(((_known_deviates(values, noise) > needed) & is_near).any(axis=1).sum()), count)
    return rate


def _known_deviates(values: Floats, noise: float) -> Floats:
    """Compute, after each run, the largest deviate of all divisions."""
    found = np.zeros(values.shape)
    for stop in range(RUNS_BEFORE + RUNS_AFTER, RUNS + 1):
        sums, before = np.cumsum(values[:, :stop], axis=1), np.arange(RUNS_BEFORE, stop - RUNS_AFTER + 1)
        low, high = sums[:, before - 1] / before, (sums[:, -1:] - sums[:, before - 1]) / (stop - before)
        found[:, stop - 1] = ((high - low) / noise / np.sqrt(1 / before + 1 / (stop - before))).max(axis=1)
    return found


def score_mlperf(folder: Path) -> None:
    """Count changes in the runs of MLPerf Training: three unchanged runs of each system, so there must be none."""
    paces = find_regressions(read_step_times(read_mlperf_runs(folder)))
    print(f"MLPerf: {sum(bool(pace.changes) for pace in paces)} of {len(paces)} systems with a change")


def score_all_series(count: int, seed: int) -> None:
    """Score series of all kinds and levels of noise, and what would be found if the noise were known."""
    for noise in NOISES:
        known = score_known_noise(noise, count, seed)
        print(f"known noise, {noise:.1%} between runs\n  found within {WITHIN} runs  {known}", flush=True)
    for kind in KINDS:
        for noise in NOISES:
            title = f"series, {kind}, {noise:.1%} between runs"
            score_series(kind, noise, count, seed, is_alone=True).show(f"{title}, each alone")
            score_series(kind, noise, count, seed, is_alone=False).show(f"{title}, all together")


def main() -> None:
    parser = argparse.ArgumentParser(description="Score slow hosts and regressions on known truth.")
    parser.add_argument("--parts", nargs="+", default=PARTS, choices=PARTS)
    parser.add_argument("--fleets", type=int, default=200)
    parser.add_argument("--large", type=int, default=5, help="fleets of 10,000 runs; each takes 2 GB for a moment")
    parser.add_argument("--series", type=int, default=300, help="for each kind and level of noise; half are unchanged")
    parser.add_argument("--seed", type=int, default=SEED)
    options = parser.parse_args()
    if "series" in options.parts:
        score_all_series(options.series, options.seed)
    if "fleets" in options.parts:
        score_fleets(options.fleets, options.seed)
    if "healthy" in options.parts:
        score_healthy_fleets(options.fleets // 2, options.seed + 10_000)
    if "large" in options.parts:
        score_large_fleets(options.large, options.seed + 20_000)
    if "mlperf" in options.parts and MLPERF.exists():
        score_mlperf(MLPERF)


if __name__ == "__main__":
    main()
