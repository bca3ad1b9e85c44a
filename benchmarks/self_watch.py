"""Do jobs that watch themselves notice what goes wrong in mid-run, and nothing else?

    python benchmarks/self_watch.py --repetitions 10 --healthy 17 --minutes 7 --json numbers.json

Gloo jobs run under `lostflops run` with its defaults, several at once, and are added to one fleet. From step 200 on,
one of four ranks computes twice as long, or its loader starves, or it waits for ever for a lock. Others have two ranks
and stay healthy. A job is right if its log has what was planted: a window whose first finding names the rank and the
cause, or a verdict that names the rank and the line. A healthy job is right if its log is empty. The report at the end
of the job must name the same cause as the window.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Any, Final

import lostflops

ROOT: Final = Path(__file__).resolve().parent.parent
TRAIN: Final = ROOT / "clinic" / "jobs" / "train.py"
BEGIN: Final = 200
RANK: Final = 1
STEP_SECONDS: Final = 0.2
MOST_WAITED: Final = 600
"""Seconds until a job is ended whose log lacks what was planted."""
LONGEST: Final = 1800


@dataclass(frozen=True, slots=True)
class Kind:
    flags: tuple[str, ...]
    is_right: Callable[[list[dict[str, Any]]], bool]
    """Judges the messages of a job."""
    cause: tuple[str, ...] = ()
    """Words of the first finding, also of the whole job's report."""


@dataclass(frozen=True, slots=True)
class Outcome:
    kind: str
    is_right: bool
    minutes: float
    first_message: float | None
    """Seconds from the start of the job."""
    messages: tuple[str, ...]
    own_share: float | None
    """Median share of the step that the collector took."""
    is_report_right: bool | None
    """Whether the report at the end names what was planted first; None for jobs without a cause to name."""


SLOW: Final = (f"rank {RANK} ", "slow device")
STARVED: Final = (f"rank {RANK} ", "data")


def has_finding(words: tuple[str, ...]) -> Callable[[list[dict[str, Any]]], bool]:
    def judge(messages: list[dict[str, Any]]) -> bool:
        found = [one["text"].lower() for one in messages if one["kind"] == "finding"]
        return bool(found) and all(word in found[0] for word in words)

    return judge


def has_hang(messages: list[dict[str, Any]]) -> bool:
    found = [one["text"] for one in messages if one["kind"] == "hang"]
    return bool(found) and f" Rank {RANK} " in found[0] and "_wait_for_lock" in found[0]


KINDS: Final = {
    "slow": Kind(("--slow", f"{RANK}:2", "--begin", f"{BEGIN}"), has_finding(SLOW), SLOW),
    "data": Kind(("--far-disk", f"{RANK}:100", "--begin", f"{BEGIN}"), has_finding(STARVED), STARVED),
    "hang": Kind(("--hang", f"{RANK}:{BEGIN}"), has_hang),
    "healthy": Kind((), lambda messages: not messages),
}


def run_job(kind: str, number: int, folder: Path, minutes: float) -> Outcome:
    run = folder / f"{kind}-{number}"
    is_healthy = kind == "healthy"
    steps = round(60 * minutes / STEP_SECONDS) if is_healthy else 100 * BEGIN  # it is ended when its log is complete
    words = [sys.executable, "-m", "lostflops", "run", "-o", run, "--fleet", folder / "fleet", "--label", f"job={kind}"]
    launch = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--nproc-per-node",
        2 if is_healthy else 4,
        "--master-port",
        free_port(),
    ]
    words += ["--", *launch, TRAIN, "--steps", steps, "--sample-ms", 8, *KINDS[kind].flags]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    began = time.time()
    with (folder / f"{run.name}.log").open("wb") as log:
        process = subprocess.Popen(
            list(map(str, words)), env=environment, stdout=log, stderr=log, start_new_session=True
        )
        try:
            if not is_healthy:
                wait_for_message(process, run, "hang" if kind == "hang" else "finding")
            process.wait(LONGEST)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
    messages = read_log(run)
    first = time_of(messages[0]) - began if messages else None
    return Outcome(
        kind=kind,
        is_right=KINDS[kind].is_right(messages),
        minutes=(time.time() - began) / 60,
        first_message=first,
        messages=tuple(one["text"] for one in messages),
        own_share=own_share(run),
        is_report_right=is_report_right(run, KINDS[kind].cause),
    )


def wait_for_message(process: subprocess.Popen[bytes], run: Path, kind: str) -> None:
    """Wait until the log of the job has a message of this kind, and end the job."""
    until = time.monotonic() + MOST_WAITED
    while process.poll() is None and time.monotonic() < until:
        if any(message["kind"] == kind for message in read_log(run)):
            break
        time.sleep(1)
    process.send_signal(signal.SIGTERM)


def read_log(run: Path) -> list[dict[str, Any]]:
    log = run / "anomalies" / "log.jsonl"
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


def time_of(message: dict[str, Any]) -> float:
    return datetime.fromisoformat(message["time"]).timestamp()


def own_share(run: Path) -> float | None:
    if not (run / "run.json").exists():
        return None
    with lostflops.open(run) as opened:
        [(share,)] = opened.stored.rows(
            "select median(own / (stop - start)) from timings where not profiled and not compiled and step > 1"
        )
    return share


def is_report_right(run: Path, words: tuple[str, ...]) -> bool | None:
    if not words:
        return None
    if not (run / "run.json").exists():
        return False
    with lostflops.open(run) as opened:
        found = opened.diagnose(top=1).findings
    return bool(found) and all(word in found[0].what.lower() for word in words)


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=10, help="of each planted anomaly")
    parser.add_argument("--healthy", type=int, default=17, help="number of healthy jobs")
    parser.add_argument("--minutes", type=float, default=7, help="of training of a healthy job")
    parser.add_argument("--only", nargs="+", choices=list(KINDS))
    parser.add_argument("--at-once", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="where runs stay; by default they are removed")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    kinds = asked.only or list(KINDS)
    planted = [(kind, number) for number in range(asked.repetitions) for kind in KINDS if kind != "healthy"]
    jobs = [job for job in planted + [("healthy", number) for number in range(asked.healthy)] if job[0] in kinds]
    with tempfile.TemporaryDirectory() as made:
        folder = asked.folder or Path(made)
        folder.mkdir(parents=True, exist_ok=True)
        found: list[Outcome] = []
        with ThreadPoolExecutor(asked.at_once) as pool:
            for outcome in pool.map(lambda job: run_job(*job, folder, asked.minutes), jobs):
                found.append(outcome)
                print(json.dumps(asdict(outcome)), flush=True)
                if asked.json:
                    asked.json.write_text(json.dumps([asdict(one) for one in found], indent=1))
        summarise(found, folder / "fleet")
    raise SystemExit(0 if all(one.is_right for one in found) else 1)


def summarise(found: list[Outcome], fleet: Path) -> None:
    for kind in KINDS:
        own = [one for one in found if one.kind == kind]
        if own:
            hours = sum(one.minutes for one in own) / 60
            print(f"{kind}: {sum(one.is_right for one in own)} of {len(own)} right, {hours:.1f} h of jobs")
            if own[0].is_report_right is not None:
                print(f"{kind}: {sum(bool(one.is_report_right) for one in own)} of {len(own)} reports at the end agree")
    shares = [one.own_share for one in found if one.own_share is not None]
    if shares:
        print(f"share of the collector: {100 * median(shares):.2f}% (median of jobs), {100 * max(shares):.2f}% at most")
    print(lostflops.ask_fleet(fleet).verdict)


if __name__ == "__main__":
    main()
