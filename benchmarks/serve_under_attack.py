"""Do honest requests stay fast, and memory within its limit, while others attack the server?

    python benchmarks/serve_under_attack.py RUN --seconds 600 --json numbers.json

Starts `lostflops serve` as a process of its own. Most of 200 clients are hostile: they send queries that fill the
memory, queries that cannot be interrupted, queries that they leave, requests without an end, and read answers slowly.
One honest client, in another process, asks what a page asks and measures how long it waits. Its SQL is reported apart:
hostile queries with the same token may take all processes for SQL, and then it is refused with status 503. Exit code 1
means that memory was above its limit, that another honest request was not answered, that 1 in 100 took longer than 1 s,
or that a process was left. Linux only: it reads /proc.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing import Queue, get_context
from pathlib import Path
from typing import Any

from process_tree import is_there, memory_of, pids_of

from lostflops.show.serve.limits import ServeLimits

CLIENTS, MOST_SECONDS = 200, 1.0
SERVER_BYTES = 1_000_000_000
"""Memory for the server itself: its run, its answers and its connections."""
FILLING = (
    "select sum(length(repeat('x', 1000000) || i)) from range(100000) t(i)",
    "select length(repeat('x', 2000000000))",
    "select max(l) from (select list(i) as l from range(400000000) t(i))",
    "select max(s) from (select string_agg(repeat('y', 100000), '') as s from range(100000))",
)
ENDLESS = (
    "select levenshtein(repeat('a', 3000000 + i::int), repeat('b', 3000000)) from range(8) t(i)",
    "select sum(a.range + b.range) from range(10000000) a, range(10000000) b",
)
HONEST = (
    "/api/alive",
    "/api/questions",
    "/app.js",
    "/api/result?name=verdict",
    "/api/result?name=timeline",
    "/api/events?ranks=0&start=0&stop=1000000000&most=5000",
    "/api/selection?ranks=0&start=0&stop=1000000&steps=",
)


@dataclass
class Attack:
    """A server under attack, and what was measured."""

    pid: int
    port: int
    token: str
    until: float
    took: list[float] = field(default_factory=list)
    """Seconds of each honest request that is not SQL."""
    sql_took: list[float] = field(default_factory=list)
    """Seconds of each honest query that was answered."""
    statuses: Counter[str] = field(default_factory=Counter)
    memory: int = 0
    """Largest memory of the server and its processes, in bytes."""
    processes: set[int] = field(default_factory=set)

    @property
    def is_on(self) -> bool:
        return time.monotonic() < self.until

    def request(self, path: str, body: Any = None) -> bytes:
        data = b"" if body is None else json.dumps(body).encode()
        return (
            f"{'GET' if body is None else 'POST'} {path} HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\n"
            f"Authorization: Bearer {self.token}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(data)}\r\nConnection: close\r\n\r\n"
        ).encode() + data

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port, limit=2**16)

    async def ask(self, path: str, body: Any = None, wait: float = 60) -> str:
        """Return the status of a whole answer."""
        reader, writer = await self.connect()
        try:
            writer.write(self.request(path, body))
            answer = await asyncio.wait_for(reader.read(-1), wait)
        finally:
            writer.close()
        return answer[9:12].decode() or "closed"


async def ask_hostile_sql(attack: Attack, draw: random.Random) -> None:
    query = draw.choice(FILLING * 3 + ENDLESS)
    status = await attack.ask("/api/sql", {"query": query})
    attack.statuses[f"hostile SQL {status}"] += 1
    await asyncio.sleep(0.5)


async def leave_query(attack: Attack, draw: random.Random) -> None:
    try:
        status = await attack.ask("/api/sql", {"query": draw.choice(ENDLESS)}, draw.uniform(0.1, 3))
        attack.statuses[f"hostile SQL {status}"] += 1
        await asyncio.sleep(0.5)
    except TimeoutError:
        attack.statuses["left"] += 1


async def send_half(attack: Attack, draw: random.Random) -> None:
    """Send a header byte by byte, until the server closes the connection."""
    reader, writer = await attack.connect()
    try:
        for byte in attack.request("/api/alive")[:-2] + b"x: y\r\n" * 1000:
            writer.write(bytes([byte]))
            await writer.drain()
            with suppress(TimeoutError):
                await asyncio.wait_for(reader.read(1), draw.uniform(0.1, 1))
                break
    finally:
        writer.close()
    attack.statuses["half-open closed"] += 1


async def read_slowly(attack: Attack, draw: random.Random) -> None:
    """Ask for many large answers, and read a few bytes of them, until the server closes the connection."""
    reader, writer = await attack.connect()
    request = attack.request("/app.js").replace(b"Connection: close\r\n", b"")
    try:
        writer.write(request * 50)
        while attack.is_on:
            await asyncio.sleep(draw.uniform(0.5, 2))
            await reader.read(draw.randrange(1, 1000))
            writer.write(request)
            await writer.drain()
    except OSError:
        attack.statuses["slow reader closed"] += 1
    finally:
        writer.close()


KINDS = (ask_hostile_sql, ask_hostile_sql, leave_query, send_half, read_slowly)


async def repeat(attack: Attack, kind: Callable[[Attack, random.Random], Awaitable[None]], seed: int) -> None:
    draw = random.Random(seed)
    await asyncio.sleep(draw.uniform(0, 2))
    while attack.is_on:
        with suppress(OSError, asyncio.IncompleteReadError, TimeoutError):
            await kind(attack, draw)
        await asyncio.sleep(0.05)


async def ask_honestly(attack: Attack, name: str, path: str, body: Any = None) -> tuple[str, float]:
    """Return the status, or the error, and the seconds that it took."""
    began = time.monotonic()
    try:
        status = await attack.ask(path, body)
    except (OSError, TimeoutError) as error:
        status = type(error).__name__
    attack.statuses[f"{name} {status}"] += 1
    return status, time.monotonic() - began


async def be_honest(attack: Attack, seed: int) -> None:
    draw = random.Random(seed)
    while attack.is_on:
        _, seconds = await ask_honestly(attack, "honest", draw.choice(HONEST))
        attack.took.append(seconds)
        await asyncio.sleep(0.1)


async def ask_honest_sql(attack: Attack) -> None:
    while attack.is_on:
        status, seconds = await ask_honestly(attack, "honest SQL", "/api/sql", {"query": "select count(*) from events"})
        attack.sql_took += [seconds] if status == "200" else []
        await asyncio.sleep(1)


async def watch(attack: Attack) -> None:
    while attack.is_on:
        attack.processes.update(pids_of(attack.pid))
        attack.memory = max(attack.memory, memory_of(attack.pid))
        await asyncio.sleep(0.02)


async def ask_first(attack: Attack) -> None:
    for path in HONEST:
        await attack.ask(path)  # a page that is open has its first answers


async def be_hostile(attack: Attack, clients: int) -> None:
    hostile = [asyncio.ensure_future(repeat(attack, KINDS[seed % len(KINDS)], seed)) for seed in range(clients)]
    await asyncio.sleep(attack.until - time.monotonic())
    for task in hostile:
        task.cancel()
    await asyncio.wait(hostile)


async def measure(attack: Attack) -> None:
    tasks = [asyncio.ensure_future(one) for one in (be_honest(attack, 0), ask_honest_sql(attack))]
    await watch(attack)
    await asyncio.wait(tasks)


def run_hostile(attack: Attack, clients: int, results: Queue[Counter[str]]) -> None:
    asyncio.run(be_hostile(attack, clients))
    results.put(attack.statuses)


def attack_server(attack: Attack, clients: int) -> None:
    """Attack from another process, which does not make the honest client wait for itself."""
    asyncio.run(ask_first(attack))
    attack.until += time.monotonic()
    context = get_context("spawn")
    results: Queue[Counter[str]] = context.Queue()
    hostile = context.Process(target=run_hostile, args=(attack, clients - 2, results), daemon=True)
    hostile.start()
    asyncio.run(measure(attack))
    attack.statuses += results.get(timeout=60)
    hostile.join()


def quantile(values: list[float], part: float) -> float:
    return sorted(values)[min(int(part * len(values)), len(values) - 1)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--clients", type=int, default=CLIENTS)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    program = "from lostflops.cli.main import main; main()"
    command = [sys.executable, "-c", program, "serve", str(options.run), "--no-browser"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert server.stdout
    told = next(found for line in server.stdout if (found := re.search(r"http://\S+:(\d+)/#token=(\S+)", line)))
    attack = Attack(server.pid, int(told[1]), told[2], until=options.seconds)
    try:
        attack_server(attack, options.clients)
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(10)
    time.sleep(1)
    return report(attack, options.json)


def report(attack: Attack, file: Path | None) -> int:
    limits = ServeLimits()
    most = SERVER_BYTES + limits.sql_processes * limits.sql_bytes
    left = [pid for pid in attack.processes if is_there(pid)]
    found = {
        "requests": len(attack.took),
        "p50_s": quantile(attack.took, 0.5),
        "p99_s": quantile(attack.took, 0.99),
        "longest_s": max(attack.took),
        "sql_p50_s": quantile(attack.sql_took, 0.5) if attack.sql_took else None,
        "most_bytes": attack.memory,
        "limit_bytes": most,
        "processes_seen": len(attack.processes),
        "processes_left": len(left),
        "statuses": dict(sorted(attack.statuses.items())),
    }
    print(json.dumps(found, indent=1))
    if file:
        file.write_text(json.dumps(found, indent=1))
    is_answered = attack.statuses["honest 200"] == len(attack.took)
    return int(attack.memory > most or not is_answered or found["p99_s"] > MOST_SECONDS or bool(left))


if __name__ == "__main__":
    sys.exit(main())
