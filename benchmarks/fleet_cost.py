"""What a fleet in an object store costs: requests and bytes, counted at a store on loopback, and money for many jobs.

    python benchmarks/fleet_cost.py --runs 512 1536 3072 --jobs-a-day 100000 --markdown

Fleets of several sizes are made in a bucket, in files of 512 rows. For each, every request of adding one run, adding
512, asking, asking for the newest tenth, and compacting is counted by kind, with its bytes. A line through the sizes
gives what each costs for every data file of the table, and is extended to the jobs of a year. Prices are options; their
defaults are those of Amazon S3 Standard in US East (N. Virginia) as published in 2025, for requests from the same
region, which pay nothing for the transfer. Deleting is free there.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

from lostflops.fleet import answer
from lostflops.fleet.changes import add_runs, compact
from lostflops.fleet.choose import JUDGED
from lostflops.fleet.data_files import FILE_ROWS
from lostflops.fleet.place import open_fleet
from lostflops.fleet.summary import RunSummary
from lostflops.testing.fleet import FleetPlan, GeneratedFleet

KINDS: Final = {"PUT": "writes", "POST": "deletes", "DELETE": "deletes", "GET": "reads", "HEAD": "reads"}
"""Kinds of requests that have a price of their own. A POST deletes several objects."""
COLUMNS: Final = JUDGED.union(answer.COLUMNS)
"""Columns that an answer of `lostflops fleet` reads."""
ADDS: Final = 16
"""Single runs to add: one of as many commits looks whether small files are to be merged."""
AGES: Final = {"a day": 1, "a week": 7, "a month": 30, "a year": 365}
"""Days of jobs that a fleet has."""


@dataclass
class Traffic:
    """Requests by kind, and bytes to and from the store."""

    requests: Counter[str] = field(default_factory=Counter)
    sent: int = 0
    received: int = 0

    def figures(self) -> dict[str, float]:
        names = ("writes", "lists", "reads", "deletes")
        return {**{name: self.requests[name] for name in names}, "sent": self.sent, "received": self.received}


class CountingStore:
    """A store of moto behind a counter."""

    def __init__(self) -> None:
        self.traffic = Traffic()
        self._store = DomainDispatcherApplication(create_backend_app)
        self._lock = threading.Lock()

    def __call__(self, environment: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        method, is_list = environment["REQUEST_METHOD"], "list-type=" in environment.get("QUERY_STRING", "")
        parts = list(self._store(environment, start))
        with self._lock:
            self.traffic.requests["lists" if is_list else KINDS[method]] += 1
            self.traffic.sent += int(environment.get("CONTENT_LENGTH") or 0)
            self.traffic.received += 0 if method == "HEAD" else sum(map(len, parts))
        return parts

    def count(self, call: Callable[[], Any]) -> Traffic:
        with self._lock:
            self.traffic = Traffic()
        call()
        return self.traffic


@contextmanager
def serve(store: CountingStore) -> Iterator[str]:
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = make_server("127.0.0.1", 0, store, threaded=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, nargs="+", default=[512, 1536, 3072], help="sizes of the fleets")
    parser.add_argument("--jobs-a-day", type=int, default=100_000)
    parser.add_argument("--usd-per-1000-writes", type=float, default=0.005, help="PUT and LIST")
    parser.add_argument("--usd-per-1000-reads", type=float, default=0.0004, help="GET and HEAD")
    parser.add_argument("--usd-per-gb-month", type=float, default=0.023)
    parser.add_argument("--request-seconds", type=float, default=0.03, help="time of one request, for commits a second")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--markdown", action="store_true", help="print the table for the docs")
    options = parser.parse_args()
    measured = measure(sorted(options.runs))
    figures = {"measured": measured, "a year": extend(measured, options)}
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1) + "\n")
    print(as_markdown(figures, options) if options.markdown else json.dumps(figures, indent=1))
    return 0


def measure(sizes: list[int]) -> list[dict[str, Any]]:
    os.environ |= {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_DEFAULT_REGION": "us-east-1"}
    store = CountingStore()
    with serve(store) as endpoint:
        os.environ["AWS_ENDPOINT_URL"] = endpoint
        import fsspec  # noqa: PLC0415 - reads the environment

        fsspec.filesystem("s3", endpoint_url=endpoint).mkdir("fleets")
        return [measure_size(store, f"s3://fleets/of{size}", size) for size in sizes]


def measure_size(store: CountingStore, place: str, size: int) -> dict[str, Any]:
    """Make a fleet, and count the requests of everything that is done with it."""
    runs = name_randomly(GeneratedFleet(FleetPlan(runs=size + FILE_ROWS + ADDS)).summaries())
    while (some := list(islice(runs, min(FILE_ROWS, size)))) and size > 0:
        size -= len(some)
        add_runs(place, some)
        newest = some[-1].start, some[0].start
    total = count_rows(place)
    bulk, single = list(islice(runs, FILE_ROWS)), list(islice(runs, ADDS))
    figures: dict[str, Any] = {"runs": total, "files": total // FILE_ROWS}
    asked = {"ask": None, "ask for the newest file": newest[1]}
    for name, since in asked.items():
        figures[name] = store.count(lambda since=since: ask(place, since)).figures()  # type: ignore[misc]
    one = store.count(lambda: [add_runs(place, [run]) for run in single]).figures()
    figures["add one run"] = {name: value / ADDS for name, value in one.items()}
    figures["compact"] = store.count(lambda: compact(place)).figures()
    figures["add 512 runs"] = store.count(lambda: add_runs(place, bulk)).figures()
    return figures


def name_randomly(runs: Iterable[RunSummary]) -> Iterator[RunSummary]:
    """Give runs names like those of recorded runs, which are hashes and so in no order of time."""
    random = np.random.default_rng(0)
    for run in runs:
        yield msgspec.structs.replace(run, run=random.bytes(16).hex())


def count_rows(place: str) -> int:
    with open_fleet(place, None).table(["run"]) as fleet:  # type: ignore[arg-type] # only folders of runs need it
        return int(fleet.execute("select count(*) from runs").fetchall()[0][0])


def ask(place: str, since: int | None) -> None:
    with open_fleet(place, None).table(COLUMNS, since) as fleet:  # type: ignore[arg-type]
        fleet.execute("select count(*) from runs").fetchall()


def extend(measured: list[dict[str, Any]], options: argparse.Namespace) -> dict[str, Any]:
    """Extend the lines through the sizes to the files of a year."""
    files = np.array([one["files"] for one in measured], float)
    daily = options.jobs_a_day / FILE_ROWS
    bytes_per_run = measured[-1]["add 512 runs"]["sent"] / FILE_ROWS

    def at(name: str, count: float) -> dict[str, float]:
        keys = measured[0][name]
        lines = {key: np.polyfit(files, [one[name][key] for one in measured], 1) for key in keys}
        return {key: max(float(np.polyval(line, count)), 0.0) for key, line in lines.items()}

    def priced(name: str, count: float) -> dict[str, float]:
        found = at(name, count)
        usd = (found["writes"] + found["lists"]) * options.usd_per_1000_writes / 1000
        return {**found, "usd": usd + found["reads"] * options.usd_per_1000_reads / 1000}

    operations = ("ask", "add one run", "add 512 runs")
    gb = bytes_per_run * options.jobs_a_day / 1e9
    requests = sum(measured[0]["add one run"][kind] for kind in ("writes", "lists", "reads"))
    return {
        "bytes_per_run": bytes_per_run,
        "gb_a_day": gb,
        "storage_usd_a_month_after_a_year": gb * AGES["a year"] * options.usd_per_gb_month,
        "by age": {age: {name: priced(name, days * daily) for name in operations} for age, days in AGES.items()},
        "commits_a_second_at_most": 1 / (requests * options.request_seconds),
        "commits_a_second_needed": options.jobs_a_day / 86_400,
    }


def as_markdown(figures: dict[str, Any], options: argparse.Namespace) -> str:
    year = figures["a year"]
    daily = options.jobs_a_day
    heads = (
        "runs of",
        "data files",
        "a question reads",
        "requests",
        "USD",
        "adding a day one by one, USD",
        "512 at once, USD",
    )
    lines = ["| " + " | ".join(heads) + " |", "|---|--:|--:|--:|--:|--:|--:|"]
    for age, costs in year["by age"].items():
        count = AGES[age] * daily / FILE_ROWS
        ask_all, one, many = (costs[name] for name in ("ask", "add one run", "add 512 runs"))
        asked = ask_all["reads"] + ask_all["lists"]
        lines.append(
            f"| {age} | {count:,.0f} | {ask_all['received'] / 1e9:,.1f} GB | {asked:,.0f} "
            f"| {ask_all['usd']:.3f} | {one['usd'] * daily:,.0f} | {many['usd'] * daily / FILE_ROWS:,.2f} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
