"""How long the report takes beside the ingest it follows, and how it grows with ranks.

    python benchmarks/report.py --folder /tmp/bench --json numbers.json

Makes traces of a million events (see big_trace.py), ingests one of them and then all, and runs `lostflops ingest`,
`report`, `diagnose` and a what-if as commands, in turn, start-up included. Ingest accounts for the ranks and diagnoses
the run. Exit code 1 means that a target was missed.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from big_trace import write_trace

MEGABYTES, RANKS, ROUNDS = 330, 8, 3
MOST_OF_INGEST = 1 / 3
MOST_MEMORY_MB = 1_000.0
MOST_GROWTH = 1.0
MOST_SECONDS = {"report of all": 2.0, "diagnosis of all": 8.0, "what-if of all": 3.0}
WHAT_IF = ("whatif", "--change", "launch=free")
"""Of time for all ranks over that for one, per rank."""


def measure(*arguments: str | Path) -> tuple[float, float]:
    """Seconds and peak MB of one command of ours."""
    began = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "lostflops", *map(str, arguments)], stdout=subprocess.DEVNULL, env=os.environ
    )
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{arguments[0]} failed with exit code {process.returncode}")
    return seconds, _megabytes(usage)


def _megabytes(usage: resource.struct_rusage) -> float:
    return usage.ru_maxrss / 1024


def run(folder: Path, ranks: int, rounds: int) -> dict[str, Any]:
    traces = [folder / f"rank-{rank}.json" for rank in range(ranks)]
    for rank, path in enumerate(traces):
        if not path.exists():
            write_trace(path, MEGABYTES, rank)
    one, every = folder / "one", folder / "every"
    of_all = {"report of all": ["report"], "diagnosis of all": ["diagnose"], "what-if of all": list(WHAT_IF)}
    samples: dict[str, list[tuple[float, float]]] = {"ingest of all": [], "ingest": [], "report": []}
    samples |= {name: [] for name in of_all}
    shutil.rmtree(every, ignore_errors=True)
    samples["ingest of all"].append(measure("ingest", *traces, "-o", every))
    for _ in range(rounds):
        shutil.rmtree(one, ignore_errors=True)
        samples["ingest"].append(measure("ingest", traces[0], "-o", one, "--workers", "1"))
        samples["report"].append(measure("report", one, "--json"))
        for name, (verb, *options) in of_all.items():
            samples[name].append(measure(verb, every, *options, "--json"))
    best = {name: min(seconds for seconds, _ in measured) for name, measured in samples.items()}
    peak = {name: max(megabytes for _, megabytes in measured) for name, measured in samples.items()}
    return {
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
        "ranks": ranks,
        "seconds": best,
        "peak_mb": peak,
        "report_of_ingest": best["report"] / best["ingest"],
        "growth_per_rank": best["report of all"] / best["report"] / ranks,
    }


def missed(numbers: dict[str, Any]) -> list[str]:
    found = [
        f"the {name} takes {numbers['seconds'][name]:.1f} s, more than {most:g} s"
        for name, most in MOST_SECONDS.items()
        if numbers["seconds"][name] > most
    ]
    if numbers["report_of_ingest"] > MOST_OF_INGEST:
        found.append(f"the report takes {numbers['report_of_ingest']:.2f} of the ingest, more than a third")
    if max(numbers["peak_mb"]["report"], numbers["peak_mb"]["report of all"]) > MOST_MEMORY_MB:
        found.append(f"the report needs more than {MOST_MEMORY_MB:g} MB")
    if numbers["growth_per_rank"] > MOST_GROWTH:
        found.append(f"time grows by {numbers['growth_per_rank']:.2f} of one rank's for each rank")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, help="where the traces are made, and kept; a temporary one by default")
    parser.add_argument("--ranks", type=int, default=RANKS)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--json", type=Path, help="also write the numbers to this file")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        numbers = run(folder, options.ranks, options.rounds)
    text = json.dumps(numbers, indent=2)
    print(text)
    if options.json:
        options.json.write_text(text)
    for failure in missed(numbers):
        print(f"missed: {failure}")
    return 1 if missed(numbers) else 0


if __name__ == "__main__":
    sys.exit(main())
