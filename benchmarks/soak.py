"""Does anything leak when Lostflops runs for hours?

    python benchmarks/soak.py --hours 1 --json numbers.json

A job is recorded, `lostflops watch` follows it, and `lostflops serve` answers questions, all in processes that live to
the end. Each round profiles a step (`snap`), ingests the capture into a new run, ingests traces in this process, and
asks the server. After each round it measures memory, descriptors and processes of all four, and counts temporary files.
Exit code 1 means that one of them grows: a trend over the rounds, not a single large value. Linux only: it reads /proc.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from process_tree import is_there, memory_of, pids_of

from lostflops.ingest import ingest
from lostflops.testing import SyntheticCluster

FEWEST = 9
"""Rounds without which there is no trend."""
MOST_GROWTH, MOST_BYTES = 0.10, 16_000_000
"""Memory leaks if it grows by more than both, from the first to the last third of the rounds."""
LAST_SECONDS = 1200
"""The job that ran for hours is ingested when it ends: on a busy machine that takes minutes."""
PROGRAM = [sys.executable, "-c", "from lostflops.cli.main import main; main()"]
JOB = """
import pathlib, sys, time, torch
net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
optimizer, data = torch.optim.SGD(net.parameters(), lr=0.01), torch.randn(8, 8)
while not pathlib.Path(sys.argv[1]).exists():
    optimizer.zero_grad()
    net(data).sum().backward()
    optimizer.step()
    time.sleep(0.02)
"""
QUESTIONS = ("/api/alive", "/api/questions", "/api/result?name=verdict", "/api/result?name=timeline")


@dataclass
class Series:
    """What was measured of one thing, once a round."""

    values: list[int] = field(default_factory=list)
    is_memory: bool = False

    def grows(self) -> str:
        """Return by how much it grows; empty if it does not. The first quarter of the rounds is a warm-up."""
        settled = self.values[len(self.values) // 4 :]
        third = len(settled) // 3
        if len(self.values) < FEWEST or not third:
            return ""
        first, last = settled[:third], settled[-third:]
        if not self.is_memory:
            return f"from {max(first)} to {min(last)}" if min(last) > max(first) else ""
        before, after = statistics.median(first), statistics.median(last)
        is_growth = after > before * (1 + MOST_GROWTH) and after > before + MOST_BYTES and min(last) > max(first)
        return f"from {before / 1e6:.0f} to {after / 1e6:.0f} MB" if is_growth else ""


@contextmanager
def started(words: list[str], environment: dict[str, str], **more: Any) -> Iterator[subprocess.Popen[str]]:
    """A program that is ended afterwards, by SIGTERM if it does not end by itself."""
    process = subprocess.Popen([*PROGRAM, *words], env=environment, text=True, start_new_session=True, **more)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()


def finish(words: list[str], environment: dict[str, str], *codes: int) -> int:
    """Run a command to its end, and return its exit code, which must be 0 or one of `codes`."""
    done = subprocess.run([*PROGRAM, *words], env=environment, capture_output=True, text=True, check=False)
    if done.returncode not in (0, *codes) or "Traceback" in done.stderr:
        raise SystemExit(f"lostflops {words[0]} ended with {done.returncode}: {(done.stdout + done.stderr)[-2000:]}")
    return done.returncode


def count_descriptors(root: int) -> int:
    total = 0
    for pid in pids_of(root):
        try:
            total += len(list(Path(f"/proc/{pid}/fd").iterdir()))
        except OSError:  # it has ended meanwhile
            continue
    return total


class Soak:
    """The processes that live to the end, and what was measured of them."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.scratch = folder, folder / "tmp"
        self.scratch.mkdir()
        self.series: dict[str, Series] = {}
        self.environment = os.environ | {"TMPDIR": str(self.scratch), "XDG_CACHE_HOME": str(folder / "cache")}
        self.rounds = self.late_windows = 0
        self.traces = SyntheticCluster(ranks=2, steps=2).generate().traces.write(folder / "traces")
        ingest(self.traces, folder / "served", workers=1)

    def note(self, name: str, value: int, *, is_memory: bool = False) -> None:
        self.series.setdefault(name, Series(is_memory=is_memory)).values.append(value)

    def measure(self, roots: dict[str, int]) -> None:
        for name, root in roots.items():
            self.note(f"{name}: memory", memory_of(root), is_memory=True)
            self.note(f"{name}: descriptors", count_descriptors(root))
            self.note(f"{name}: processes", len(pids_of(root)))
        self.note("temporary files", sum(1 for _ in self.scratch.rglob("*")))

    def play(self, server: str, token: str) -> None:
        """One round."""
        # On a loaded machine the job may not reach the step in time: that is counted, and is no leak.
        asked = ["snap", str(self.folder / "job"), "--steps", "1", "--timeout", "60"]
        self.late_windows += finish(asked, self.environment, 1)
        again = self.folder / "again"
        finish(["ingest", str(self.folder / "job" / "capture"), "-o", str(again), "--workers", "2"], self.environment)
        finish(["verify", str(again)], self.environment)
        shutil.rmtree(again)
        ingest(self.traces, again, workers=1)
        shutil.rmtree(again)
        for question in QUESTIONS * 5:
            request = urllib.request.Request(server + question, headers={"Authorization": f"Bearer {token}"})
            with urllib.request.urlopen(request, timeout=60) as answer:
                answer.read()
        self.rounds += 1
        print(f"round {self.rounds}", file=sys.stderr, flush=True)

    def run(self, seconds: float) -> None:
        stop, job, quiet = self.folder / "stop", self.folder / "job", subprocess.DEVNULL
        until = time.monotonic() + seconds
        record = ["run", "--out", str(job), "--", sys.executable, "-c", JOB, str(stop)]
        serve = ["serve", str(self.folder / "served"), "--no-browser"]
        follow = ["watch", str(job), "--prometheus", str(self.folder / "metrics.prom")]
        with (
            started(serve, self.environment, stdout=subprocess.PIPE) as served,
            started(record, self.environment, stdout=quiet, stderr=quiet) as recorded,
            started(follow, self.environment, stdout=quiet, stderr=quiet) as watched,
        ):
            assert served.stdout is not None
            found = next(one for line in served.stdout if (one := re.search(r"(http://\S+)/#token=(\S+)", line)))
            while not list((job / "capture").rglob("rank-*")):
                time.sleep(0.2)
            roots = {"serve": served.pid, "job": recorded.pid, "watch": watched.pid}
            while time.monotonic() < until and not self.leaks():
                self.play(found[1], found[2])
                if ended := [name for name, pid in roots.items() if not is_there(pid)]:
                    raise SystemExit(f"ended by themselves: {ended}")
                self.measure(roots)
                self.note("ingest: memory", _own_memory(), is_memory=True)
                self.note("ingest: descriptors", len(list(Path("/proc/self/fd").iterdir())))
            stop.touch()
            recorded.wait(LAST_SECONDS)

    def leaks(self) -> list[str]:
        return [f"{name} grows {growth}" for name, one in self.series.items() if (growth := one.grows())]


def _own_memory() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hours", type=float, default=1.0)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        soak = Soak(Path(folder))
        soak.run(options.hours * 3600)
    found = {
        name: {"first": one.values[0], "last": one.values[-1], "most": max(one.values)}
        for name, one in soak.series.items()
    }
    summary = {"rounds": soak.rounds, "late_windows": soak.late_windows, "leaks": soak.leaks(), "measured": found}
    print(json.dumps(summary, indent=1))
    if options.json:
        options.json.write_text(json.dumps(summary, indent=1))
    if soak.rounds < FEWEST:
        print(f"only {soak.rounds} rounds: too few for a trend", file=sys.stderr)
        return 2
    return 1 if soak.leaks() else 0


if __name__ == "__main__":
    sys.exit(main())
