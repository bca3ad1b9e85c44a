"""Clocks and stragglers of random clusters against their truth, by the thousand.

    python tests/integration/cluster_trials.py --sick 500 --healthy 500 --seed 1 --jobs 2

A trial is its seed, health and number, so `--only sick/17` repeats one. Each prints a line of JSON when it ends; with
`--log FILE` lines are also kept there, and trials that it holds are not run again. Exit code 1 means that a bound is
broken: a true offset outside its certified interval, a ledger that is wrong, an error, fewer than 99% of the planted
stragglers named with their cause, or more than 1% of the healthy clusters with somebody accused.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parents[2]
if not __package__:  # run as a script, or in a worker of one
    sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from lostflops.account.ledger.windows import WindowKind  # noqa: E402
from lostflops.explain.analyze.report import report  # noqa: E402
from lostflops.store.run import Run  # noqa: E402
from lostflops.testing import store  # noqa: E402
from tests.integration.trial_checks import Json, clock_failures, ledger_failures, straggler_failures  # noqa: E402
from tests.integration.trial_clusters import MOST_RANKS, Health, Trial, make_trial  # noqa: E402

LEAST_NAMED = 0.99
MOST_ACCUSED = 0.01
CHECKS = ("clock", "straggler", "ledger", "error")


@dataclass(slots=True)
class Outcome:
    """How a trial ended: what each check found wrong, and what the cluster was like."""

    name: str
    health: Health
    shape: str = ""
    cause: str = ""
    ranks: int = 0
    effect: float = 0.0
    loses_records: bool = False
    host_names: bool = False
    worst_uncertainty_ns: int = 0
    seconds: float = 0.0
    failures: dict[str, list[str]] = field(default_factory=dict)

    @property
    def is_right(self) -> bool:
        """The straggler was named with its cause, or nobody was accused."""
        return not {"straggler", "error"} & self.failures.keys()


def answers(run: Run) -> tuple[Json, int, Json]:
    """What ranks and report say of a run, and when the offsets hold."""
    from lostflops.explain.analyze.ranks import ranks

    ((instant,),) = run.sql("select distinct instant from clocks where instant is not null").fetchall()
    return ranks(run).to_json(), instant, report(run, window=WindowKind.STEPS).to_json()


def judge(trial: Trial, outcome: Outcome) -> None:
    generated = trial.cluster.generate()
    with TemporaryDirectory(prefix="lostflops-trial-") as folder:
        path = store(generated, Path(folder, "run"), host_names=trial.host_names)
        with Run.open(path) as run:
            said, instant, ledger = answers(run)
    outcome.worst_uncertainty_ns = max((row["uncertainty_ns"] or 0 for row in said["clock"]["ranks"]), default=0)
    found = {
        "clock": clock_failures(generated.truth, said["clock"], instant),
        "straggler": straggler_failures(trial.straggler, said["stragglers"]),
        "ledger": ledger_failures(generated.truth, ledger, is_whole=not trial.loses_records),
    }
    outcome.failures = {check: failures for check, failures in found.items() if failures}


def run_trial(health: Health, number: int, seed: int, most_ranks: int = MOST_RANKS) -> Outcome:
    """Draw, generate, store, ask and judge one; whatever is raised is a failure of its own."""
    began = time.perf_counter()
    outcome = Outcome(f"{seed}/{health}/{number}", health)
    try:
        trial = make_trial(health, number, seed, most_ranks)
        outcome.shape, outcome.ranks, outcome.effect = trial.shape, trial.cluster.ranks, round(trial.effect, 4)
        outcome.loses_records, outcome.host_names = trial.loses_records, trial.host_names
        outcome.cause = trial.straggler.cause if trial.straggler else ""
        judge(trial, outcome)
    except Exception:  # noqa: BLE001 - one trial must not end the others
        outcome.failures["error"] = [traceback.format_exc(limit=-3)]
    outcome.seconds = round(time.perf_counter() - began, 2)
    return outcome


def run_trials(trials: Sequence[tuple[Health, int]], seed: int, jobs: int) -> Iterator[Outcome]:
    """Outcomes in the order of the trials."""
    columns = ([health for health, _ in trials], [number for _, number in trials], [seed] * len(trials))
    if jobs <= 1 or len(trials) <= 1:
        yield from map(run_trial, *columns)
        return
    # Fresh processes: DuckDB's threads do not survive a fork.
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), max_tasks_per_child=100) as pool:
        yield from pool.map(run_trial, *columns)


def wilson(hits: int, total: int, z: float = 1.96) -> tuple[float, float]:
    """The 95% interval of a rate.

    >>> [round(edge, 3) for edge in wilson(495, 500)]
    [0.977, 0.996]
    """
    if not total:
        return 0.0, 1.0
    rate, spread = hits / total, z * z / total
    middle = (rate + spread / 2) / (1 + spread)
    half = z * math.sqrt(rate * (1 - rate) / total + spread / total / 4) / (1 + spread)
    return max(0.0, middle - half), min(1.0, middle + half)


def broken_bounds(outcomes: Sequence[Outcome]) -> list[str]:
    found = []
    for check in ("clock", "ledger", "error"):
        count = sum(check in outcome.failures for outcome in outcomes)
        if count:
            found.append(f"{check}: {count} of {len(outcomes)} trials")
    sick = [outcome.is_right for outcome in outcomes if outcome.health == "sick"]
    named = sum(sick) / max(1, len(sick))
    if sick and named < LEAST_NAMED:
        found.append(f"stragglers named with their cause: {named:.1%}, at least {LEAST_NAMED:.0%} wanted")
    healthy = ["straggler" in outcome.failures for outcome in outcomes if outcome.health == "healthy"]
    accused = sum(healthy) / max(1, len(healthy))
    if accused > MOST_ACCUSED:
        found.append(f"healthy, but accused: {accused:.1%}, at most {MOST_ACCUSED:.0%} wanted")
    return found


def summary(outcomes: Sequence[Outcome]) -> str:
    """Failures by shape and cause, the rates with their intervals, and the trials that failed."""
    lines = [f"{'shape':<10}{'cause':<14}{'trials':>7}" + "".join(f"{check:>11}" for check in CHECKS)]
    for shape, cause in sorted({(outcome.shape, outcome.cause) for outcome in outcomes}):
        own = [outcome for outcome in outcomes if (outcome.shape, outcome.cause) == (shape, cause)]
        counts = "".join(f"{sum(check in outcome.failures for outcome in own):>11}" for check in CHECKS)
        lines.append(f"{shape:<10}{cause or 'healthy':<14}{len(own):>7}{counts}")
    for health, label in (("sick", "stragglers named with their cause"), ("healthy", "healthy, and nobody accused")):
        right = [outcome.is_right for outcome in outcomes if outcome.health == health]
        if right:
            low, high = wilson(sum(right), len(right))
            lines.append(f"{label}: {sum(right)} of {len(right)}, {low:.2%} to {high:.2%} (Wilson, 95%)")
    certified = sum(not {"clock", "error"} & outcome.failures.keys() for outcome in outcomes)
    low, high = wilson(certified, len(outcomes))
    lines.append(f"all offsets as certified: {certified} of {len(outcomes)}, {low:.2%} to {high:.2%}")
    failed = [outcome.name for outcome in outcomes if outcome.failures]
    return "\n".join([*lines, *([f"failed: {' '.join(failed)}"] if failed else [])])


def known_outcomes(log: Path | None) -> dict[str, Outcome]:
    """Outcomes by name; a last line that was cut off is a trial that did not end."""
    found = {}
    for line in log.read_text().splitlines() if log and log.exists() else ():
        with suppress(json.JSONDecodeError):
            outcome = Outcome(**json.loads(line))
            found[outcome.name] = outcome
    return found


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sick", type=int, default=500)
    parser.add_argument("--healthy", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", nargs="+", help="trials to run, such as sick/17")
    parser.add_argument("--log", type=Path, help="keep outcomes here, and skip those that it holds")
    return parser.parse_args()


def main() -> int:
    options = _arguments()
    wanted: list[tuple[Health, int]] = [("sick", n) for n in range(options.sick)]
    wanted += [("healthy", n) for n in range(options.healthy)]
    if options.only:
        wanted = [("sick" if "sick" in name else "healthy", int(name.split("/")[-1])) for name in options.only]
    known = known_outcomes(options.log)
    names = [f"{options.seed}/{health}/{number}" for health, number in wanted]
    outcomes = [known[name] for name in names if name in known]
    left = [trial for trial, name in zip(wanted, names, strict=True) if name not in known]
    for outcome in run_trials(left, options.seed, options.jobs):
        outcomes.append(outcome)
        line = json.dumps(asdict(outcome))
        print(line, flush=True)
        if options.log:
            with options.log.open("a") as log:
                log.write("\n" + line)  # a line that was cut off before stays alone
    print(summary(outcomes))
    broken = broken_bounds(outcomes)
    for bound in broken:
        print(f"broken: {bound}")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
