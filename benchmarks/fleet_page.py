"""How long each view of a fleet's page takes, and how much memory the server needs.

    python benchmarks/fleet_page.py --runs 10000 --json numbers.json

A fleet is generated and served by a program of its own. Each view is asked for first of a new server, which has judged
no job and no host yet, and then again with other filters, as after a click. Exit code 1 means that a view takes longer
than 2 s or the server needs more than 1 GB.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode
from urllib.request import Request, urlopen

from lostflops.fleet.changes import add_runs
from lostflops.testing.fleet import FleetPlan, GeneratedFleet

MOST_SECONDS, MOST_MB = 2.0, 1000
PER_COMMIT: Final = 1024
SCOPE: Final = dict.fromkeys(("job", "team", "model", "host", "week", "status"), "") | {"width": "1400"}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--place", type=Path, help="a fleet that was generated before; a new one by default")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        plan = FleetPlan(runs=options.runs)
        place = options.place or Path(folder) / "fleet"
        if not place.exists():
            generate(place, plan)
        figures = measure(place, plan)
    for name, value in figures.items():
        print(f"{name}: {value}")
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1) + "\n")
    slowest = max(max(seconds) for seconds in figures["seconds, first and again"].values())
    return 0 if slowest <= MOST_SECONDS and figures["memory_mb"] <= MOST_MB else 1


def generate(place: Path, plan: FleetPlan) -> None:
    runs = GeneratedFleet(plan).summaries()
    while some := list(islice(runs, PER_COMMIT)):
        add_runs(place, some)


def measure(place: Path, plan: FleetPlan) -> dict[str, Any]:
    truth = GeneratedFleet(plan).truth
    job, other = truth.jobs[:2]
    again = {**SCOPE, "team": "language"}
    views: dict[str, tuple[tuple[str, dict[str, str]], tuple[str, dict[str, str]]]] = {
        "overview": (("overview", {**SCOPE, "by": ""}), ("overview", {**SCOPE, "by": "team"})),
        "jobs": (("jobs", {**SCOPE, "order": ""}), ("jobs", {**SCOPE, "order": "", "status": "slower"})),
        "jobs of a team": (("jobs", {**again, "order": ""}), ("jobs", {**again, "order": "", "job": "llama"})),
        "job": (("job", named(job)), ("job", named(other))),
        "hosts": (("hosts", SCOPE), ("hosts", {**SCOPE, "job": job})),
        "host": (("host", named(truth.hosts[0])), ("host", named(truth.slow_hosts[0].host))),
        "compare": (("compare", pair(job, other)), ("compare", pair(other, job))),
        "run": (("run", named("run-000000")), ("run", named("run-000001"))),
    }
    seconds, cpu, peak = {}, {}, 0.0
    for name, asked in views.items():
        with serving(place) as (process, address):
            before = read_cpu(process.pid)
            first = ask(address, *asked[0])
            middle = read_cpu(process.pid)
            seconds[name] = [first, ask(address, *asked[1])]
            cpu[name] = [round(middle - before, 2), round(read_cpu(process.pid) - middle, 2)]
            peak = max(peak, read_peak(process.pid))
    with serving(place) as (process, address):
        for asked in views.values():
            for question in asked:
                ask(address, *question)
        peak = max(peak, read_peak(process.pid))
    machine = f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"
    return {"machine": machine, "runs": plan.runs, "seconds, first and again": seconds, "cpu_s": cpu, "memory_mb": peak}


def named(name: str) -> dict[str, str]:
    return {"name": name, "width": "1400"}


def pair(first: str, second: str) -> dict[str, str]:
    return {"first": first, "second": second, "width": "1400"}


@contextmanager
def serving(place: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    command = [sys.executable, "-m", "lostflops", "serve", str(place), "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process, next(found[0] for line in process.stdout if (found := re.search(r"http://\S+", line)))
        process.send_signal(signal.SIGINT)


def ask(address: str, view: str, parameters: dict[str, str]) -> float:
    place, _, token = address.partition("#token=")
    request = Request(f"{place}api/{view}?{urlencode(parameters)}", headers={"Authorization": f"Bearer {token}"})
    start = time.perf_counter()
    with urlopen(request, timeout=120) as response:
        response.read()
    return round(time.perf_counter() - start, 2)


def read_cpu(pid: int) -> float:
    """Return the CPU time of all threads of a process, which other programs of the machine do not change much."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def read_peak(pid: int) -> float:
    """Return the most memory that a process had, in MB."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.findall(r"VmHWM:\s+(\d+)", status)[0]) / 1e3


if __name__ == "__main__":
    sys.exit(main())
