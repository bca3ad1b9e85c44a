"""How long `lostflops watch` takes to take in one step of many ranks, and whether it names the late one.

    python benchmarks/watch.py --ranks 1000 --json numbers.json

Appends steps of a synthetic job to one file per rank, then to one file for all, and measures one look after each step:
reading, merging, and writing the Prometheus file. Exit code 1 means that an answer was wrong.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from lostflops.live import prometheus
from lostflops.live.board import Board, StepLine
from lostflops.live.follow import Follower
from lostflops.live.metrics import collect
from made_jobs import MadeJob

LATE, LATE_MS = 7, 5
STEPS = 10
UNNAMED = 7
"""Steps before anybody is named."""


@dataclass(frozen=True, slots=True)
class Look:
    """Medians over steps."""

    files: str
    ranks: int
    collectives: int
    bytes_per_step: int
    idle_cpu_ms: float
    """Of a look that finds nothing."""
    cpu_ms: float
    seconds: float
    prometheus_cpu_ms: float


def measure(folder: Path, ranks: int, collectives: int, one_file: bool) -> Look:
    per_host = ranks if one_file else 8
    job = MadeJob(folder, ranks, per_host, late_ms={LATE: LATE_MS}, one_file_per_host=one_file, collectives=collectives)
    follower, board = Follower(folder=folder), Board()
    job.start()
    look(follower, board)
    idle = look(follower, board)[0]
    looks, exports = [], []
    for number in range(STEPS):
        job.run(number, 1)
        *taken, said = look(follower, board)
        looks.append(taken)
        (line,) = [item for item in said if isinstance(item, StepLine)]
        named = line.latecomer.rank if line.latecomer else None
        if line.missing or named != (LATE if number >= UNNAMED else None):
            raise SystemExit(f"wrong: {line}")
        began = time.process_time()
        prometheus.write(folder / "lostflops.prom", collect(board, None))
        exports.append(1e3 * (time.process_time() - began))
    size = sum(path.stat().st_size for path in folder.glob("*.capture")) // STEPS
    cpu, wall = (median(column) for column in zip(*looks, strict=True))
    kind = "one for all" if one_file else "one per rank"
    return Look(kind, ranks, collectives, size, idle, cpu, wall, median(exports))


def look(follower: Follower, board: Board) -> tuple[float, float, list[object]]:
    """CPU time in ms, seconds, and what was said."""
    cpu, wall = time.process_time(), time.perf_counter()
    board.take(follower.poll(), wall)
    said: list[object] = list(board.settle(wall))
    return 1e3 * (time.process_time() - cpu), time.perf_counter() - wall, said


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=1000)
    parser.add_argument("--collectives", type=int, nargs="+", default=[1, 10, 100], help="of each rank in one step")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    found = []
    for collectives in asked.collectives:
        for one_file in (False, True):
            with tempfile.TemporaryDirectory() as folder:
                found.append(measure(Path(folder), asked.ranks, collectives, one_file))
            print(asdict(found[-1]), flush=True)
    machine = {"cores": os.cpu_count(), "python": platform.python_version()}
    if asked.json:
        asked.json.write_text(json.dumps({"machine": machine, "looks": [asdict(each) for each in found]}, indent=2))


if __name__ == "__main__":
    main()
