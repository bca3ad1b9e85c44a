"""How long a fleet of many runs takes to grow and to answer, and how much disk and memory it needs.

    python benchmarks/fleet_scale.py --runs 10000 --adds 1000 --json numbers.json

Most runs are added in bulk, and the last ones one at a time, as jobs do it. Each question is asked in a new process, of
the table as the adds left it. Exit code 1 means that an add or a question exceeds its limit.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any, Final

import msgspec

from lostflops.fleet.catalogs import load_table
from lostflops.fleet.changes import add_runs, compact, expire
from lostflops.fleet.data_files import list_tasks
from lostflops.fleet.kinds import LocalTable
from lostflops.fleet.summary import RunSummary
from lostflops.testing.fleet import FleetPlan, GeneratedFleet

MOST_ADD_SECONDS, MOST_QUESTION_SECONDS, MOST_MB = 1.0, 2.0, 1000
PER_BULK: Final = 2048
LIFE: Final = """
SELECT labels['team'], line.key, sum(line.value) FROM (SELECT labels, unnest(map_entries(life)) AS line FROM runs)
GROUP BY ALL
"""
HOSTS: Final = """
SELECT host.host, count(*), avg(host.slower), avg(host.slower_error) FROM (SELECT unnest(hosts) AS host FROM runs)
GROUP BY ALL
"""
STEPS: Final = "SELECT name, list(step_ns ORDER BY start) FROM runs GROUP BY name"
QUESTIONS: Final = {
    "life by label": (["labels", "life"], LIFE),
    "slow hosts": (["hosts"], HOSTS),
    "step by job": (["name", "start", "step_ns"], STEPS),
}
ASK: Final = """
import json, re, sys, time
start = time.perf_counter()
from lostflops.fleet.place import open_fleet
place, columns, query = json.loads(sys.argv[1])
imported = time.perf_counter()
with open_fleet(place, None).table(columns) as fleet:
    opened = time.perf_counter()
    rows = len(fleet.execute(query).fetchall())
print(json.dumps({
    "rows": rows,
    "import_s": imported - start,
    "open_s": opened - imported,
    "query_s": time.perf_counter() - opened,
    "cpu_s": time.process_time(),
    "memory_mb": int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]) / 1e3,
}))
"""


ADD: Final = """
import sys, time
start = time.perf_counter()
import msgspec
from lostflops.fleet.changes import add_runs
from lostflops.fleet.summary import RunSummary
add_runs(sys.argv[1], [msgspec.json.decode(sys.stdin.buffer.read(), type=RunSummary)])
print(time.perf_counter() - start, time.process_time())
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--adds", type=int, default=1000, help="runs of these that are added one at a time, at the end")
    parser.add_argument("--place", type=Path, help="where to make the fleet; a temporary folder by default")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        place = options.place or Path(folder) / "fleet"
        figures = measure(place, options.runs, options.adds)
    for name, value in figures.items():
        print(f"{name}: {value}")
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1) + "\n")
    return 0 if is_within_limits(figures) else 1


def measure(place: Path, runs: int, adds: int) -> dict[str, Any]:
    summaries = GeneratedFleet(FleetPlan(runs=runs)).summaries()
    figures: dict[str, Any] = {"machine": describe_machine(), "runs": runs}
    figures |= add_in_bulk(place, summaries, runs - adds)
    figures |= add_single(place, summaries)
    figures |= describe_table(place, runs)
    for name, (columns, query) in QUESTIONS.items():
        figures[name] = ask(place, columns, query)
    figures["add in a new process"] = add_in_process(place)
    figures["replace_s"] = [replace_run(place, run) for run in (0, runs // 2)]
    figures["compact_s"] = time_call(lambda: compact(place))
    figures["expire_s"] = time_call(lambda: expire(place, datetime.now(UTC)))
    figures["bytes_per_run_after_expire"] = round(count_bytes(place) / runs)
    for name, (columns, query) in QUESTIONS.items():
        figures[f"{name}, compacted"] = ask(place, columns, query)
    return figures


def add_in_bulk(place: Path, summaries: Iterator[RunSummary], count: int) -> dict[str, Any]:
    spent = size = 0.0
    for first in range(0, count, PER_BULK):
        some = list(islice(summaries, min(PER_BULK, count - first)))
        size += sum(len(msgspec.json.encode(summary)) for summary in some)
        spent += time_call(lambda some=some: add_runs(place, some))  # type: ignore[misc]
    return {"json_bytes_per_run": round(size / count), "bulk_s_per_1000_runs": spent / count * 1000}


def add_single(place: Path, summaries: Iterator[RunSummary]) -> dict[str, Any]:
    """Add the rest one at a time; `_cpu_s` leaves out what other programs of the machine take."""
    walls, cpus = [], []
    for summary in summaries:
        cpu = time.process_time()
        walls.append(time_call(lambda summary=summary: add_runs(place, [summary])))  # type: ignore[misc]
        cpus.append(time.process_time() - cpu)
    return {"add_s": describe_times(walls), "add_cpu_s": describe_times(cpus)}


def describe_times(times: list[float]) -> dict[str, float]:
    ordered = sorted(times)
    at = {"median": 0.5, "p90": 0.9, "p99": 0.99, "most": 1.0}
    return {name: round(ordered[min(int(part * len(ordered)), len(ordered) - 1)], 3) for name, part in at.items()}


def describe_table(place: Path, runs: int) -> dict[str, Any]:
    table = load_table(LocalTable(place.resolve()))
    sizes = [task.file.file_size_in_bytes for task in list_tasks(table)]
    metadata = Path(table.metadata_location.removeprefix("file://"))
    return {
        "data_files": len(sizes),
        "bytes_per_run": round(sum(sizes) / runs),
        "bytes_on_disk_per_run": round(count_bytes(place) / runs),
        "files_on_disk": sum(1 for path in place.rglob("*") if path.is_file()),
        "metadata_bytes": metadata.stat().st_size,
        "versions": len(table.metadata.snapshots),
    }


def count_bytes(place: Path) -> int:
    return sum(path.stat().st_size for path in place.rglob("*") if path.is_file())


def replace_run(place: Path, number: int) -> float:
    """Add a run again, which writes the whole file that has it."""
    summary = next(islice(GeneratedFleet(FleetPlan(runs=number + 1)).summaries(), number, None))
    return time_call(lambda: add_runs(place, [summary]))


def ask(place: Path, columns: list[str], query: str) -> dict[str, Any]:
    command = [sys.executable, "-c", ASK, json.dumps([str(place), columns, query])]
    start = time.perf_counter()
    answer = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    answer["process_s"] = time.perf_counter() - start
    return {name: round(value, 3) for name, value in answer.items()}


def add_in_process(place: Path) -> dict[str, float]:
    """Add one more run as a command does it: with the start of Python and all imports."""
    summary = msgspec.structs.replace(next(GeneratedFleet(FleetPlan(runs=1)).summaries()), run="one more")
    command = [sys.executable, "-c", ADD, str(place)]
    start = time.perf_counter()
    done = subprocess.run(command, check=True, capture_output=True, input=msgspec.json.encode(summary))
    process = time.perf_counter() - start
    return {"process_s": round(process, 3), "cpu_s": round(float(done.stdout.split()[1]), 3)}


def time_call(call: Any) -> float:
    start = time.perf_counter()
    call()
    return round(time.perf_counter() - start, 3)


def describe_machine() -> str:
    return f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"


def is_within_limits(figures: dict[str, Any]) -> bool:
    answers = [figures[name] for name in QUESTIONS]
    return (
        figures["add_s"]["p90"] <= MOST_ADD_SECONDS
        and all(answer["open_s"] + answer["query_s"] <= MOST_QUESTION_SECONDS for answer in answers)
        and all(answer["memory_mb"] <= MOST_MB for answer in answers)
    )


if __name__ == "__main__":
    sys.exit(main())
