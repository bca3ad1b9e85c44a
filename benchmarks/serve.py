"""How soon a live page is answered: every view of a run, first and again.

    python benchmarks/serve.py RUN --json numbers.json

Starts `lostflops serve` as a process of its own and asks as the page does. The first answer to a question is told
apart, since it is found once and kept; windows of the timeline, queries and what-ifs are new each time. Exit code 1
means that an answer after the first took longer than the target.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
import zlib
from base64 import b64decode
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import urlencode

MOST_SECONDS = 1.0
AGAIN, WINDOWS, MOST_EVENTS = 5, 40, 20_000
QUERIES = (
    "select count(*) from events",
    "select rank, kind, count(*), sum(dur) from events group by all order by all",
    "select name, sum(dur) as ns from events where kind = 'kernel' group by name order by ns desc limit 20",
    "select * from events where rank = 3 and step = 12 order by start limit 1000",
    "select rank, avg(wait) from arrivals group by rank",
    "summarize steps",
)
CHANGES = (
    [],
    [["network.bandwidth", "2x"]],
    [["network.bandwidth", "0.5x"]],
    [["network.bandwidth", "2x"], ["network.latency", "0.5x"]],
)


@dataclass(frozen=True, slots=True)
class Answers:
    """Seconds, and bytes of the largest."""

    route: str
    first: float
    median: float
    worst: float
    bytes: int
    error: str = ""


class Served:
    """A server of a run, asked as its page asks."""

    def __init__(self, run: Path) -> None:
        program = "from lostflops.cli.main import main; main()"
        command = [sys.executable, "-c", program, "serve", str(run), "--no-browser"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout
        told = next(found for line in self.process.stdout if (found := re.search(r"(http://\S+)/#token=(\S+)", line)))
        self.address, self.token = told[1], told[2]

    def ask(self, path: str, body: Any = None) -> tuple[float, bytes]:
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.address + path, data, headers)
        began = time.perf_counter()
        with urllib.request.urlopen(request, timeout=1000) as response:
            answer = response.read()
        return time.perf_counter() - began, answer

    def end(self) -> float:
        began = time.perf_counter()
        self.process.send_signal(signal.SIGINT)
        self.process.wait(10)
        return time.perf_counter() - began


def measured(name: str, asked: list[tuple[str, Any]], served: Served) -> Answers:
    try:
        first, answer = served.ask(*asked[0])
        again = [served.ask(*one) for one in asked[1:]]
    except urllib.error.HTTPError as error:
        return Answers(name, 0, 0, 0, 0, json.loads(error.read())["error"])
    seconds = [one for one, _ in again]
    return Answers(name, first, median(seconds), max(seconds), max(len(answer), *(len(one) for _, one in again)))


def windows(span: int, ranks: list[int], draw: random.Random) -> list[tuple[str, Any]]:
    """From the whole run down to a ten-thousandth of it, of one rank or all."""
    asked: list[tuple[str, Any]] = []
    for _ in range(WINDOWS):
        width = int(span * 10 ** draw.uniform(-4, 0))
        start = draw.randrange(max(span - width, 1))
        few = draw.choice((ranks, draw.sample(ranks, 1), draw.sample(ranks, min(3, len(ranks)))))
        given = {"ranks": ",".join(map(str, few)), "start": start, "stop": start + width, "most": MOST_EVENTS}
        asked.append((f"/api/events?{urlencode(given)}", None))
    return asked


def span_of(served: Served) -> tuple[int, list[int]]:
    query = "select rank, min(start), max(start + dur) from events group by rank order by rank"
    _, answer = served.ask("/api/sql", {"query": query})
    rows = json.loads(zlib.decompress(b64decode(json.loads(answer)[0])))["results"][0]["blocks"][0]["rows"]
    return max(int(stop) - int(start) for _, start, stop in rows), [rank for rank, _, _ in rows]


def all_answers(run: Path, seed: int) -> tuple[list[Answers], float]:
    served, found = Served(run), []
    try:
        for one in asked_of(served, seed):
            told = one.error or f"first {one.first:8.3f} s, median {one.median:6.3f} s, worst {one.worst:6.3f} s"
            print(f"{one.route:50} {told}, {one.bytes / 1e6:.2f} MB", flush=True)
            found.append(one)
    finally:
        ended = served.end()
    return found, ended


def asked_of(served: Served, seed: int) -> Iterator[Answers]:
    _, said = served.ask("/api/questions")
    yield measured("questions", [("/api/questions", None)] * AGAIN, served)
    for name in (group["name"] for group in json.loads(said)["groups"]):
        asked: list[tuple[str, Any]] = [(f"/api/result?{urlencode({'name': name})}", None)] * AGAIN
        yield measured(f"result {name}", asked, served)
    span, ranks = span_of(served)
    for rank in ranks:
        served.ask(f"/api/events?{urlencode({'ranks': rank, 'start': 0, 'stop': 1, 'most': 1})}")
    yield measured("events", windows(span, ranks, random.Random(seed)), served)
    for query in QUERIES:
        yield measured(f"sql {query[:40]}", [("/api/sql", {"query": query})] * AGAIN, served)
    yield measured("what-if", [("/api/whatif", {"changes": one}) for one in CHANGES], served)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    found, ended = all_answers(options.run, options.seed)
    print(f"ended in {ended:.2f} s after Ctrl-C")
    if options.json:
        options.json.write_text(json.dumps({"answers": [asdict(one) for one in found], "ended": ended}, indent=1))
    return int(any(one.worst > MOST_SECONDS for one in found))


if __name__ == "__main__":
    sys.exit(main())
