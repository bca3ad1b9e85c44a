"""Hostile clients of a server: what they may take is limited, ends in time, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from benchmarks.process_tree import HAS_PROC, cpu_seconds_of, happens, is_there, memory_of, pids_of

import lostflops
from lostflops.show.serve.limits import explain_memory_limit

pytestmark = pytest.mark.skipif(not HAS_PROC, reason="the memory of other processes is read from /proc")

SQL_SECONDS, SQL_BYTES, WAIT_SECONDS, CONNECTIONS = 3.0, 400_000_000, 1.5, 24
PROGRAM = f"""
import sys
from pathlib import Path
from lostflops.show.serve.limits import ServeLimits
from lostflops.show.serve.server import serve
limits = ServeLimits(
    sql_seconds={SQL_SECONDS}, sql_bytes={SQL_BYTES}, request_seconds={WAIT_SECONDS}, idle_seconds=1,
    stall_seconds={WAIT_SECONDS}, connections={CONNECTIONS},
)
serve(Path(sys.argv[1]), 0, lambda address: print(address, flush=True), browser=False, limits=limits)
"""
ENDLESS = "select levenshtein(repeat('a', 3000000 + i::int), repeat('b', 3000000)) from range(8) t(i)"
LARGE = "select sum(length(repeat('x', 1000000) || i)) from range(40000) t(i)"


@dataclass(frozen=True)
class LimitedServer:
    process: subprocess.Popen[str]
    port: int
    token: str

    @property
    def pid(self) -> int:
        return self.process.pid

    def ask(self, path: str, body: Any = None) -> httpx.Response:
        with httpx.Client(trust_env=False, timeout=20, base_url=f"http://127.0.0.1:{self.port}") as client:
            headers = {"Authorization": f"Bearer {self.token}"}
            return client.request("GET" if body is None else "POST", path, headers=headers, json=body)

    def sql(self, query: str) -> httpx.Response:
        return self.ask("/api/sql", {"query": query})

    def answers(self) -> bool:
        """Return whether it answers, if not at once: on a busy machine a new worker may take longer than a query."""
        return happens(lambda: self.sql("select 1").status_code == 200, 30)

    def connect(self, sent: bytes = b"") -> socket.socket:
        made = socket.create_connection(("127.0.0.1", self.port), timeout=10)
        made.sendall(sent)
        return made

    def request(self, method: str, path: str, body: bytes = b"") -> bytes:
        return (
            f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\nAuthorization: Bearer {self.token}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        ).encode() + body

    def send_endless_query(self) -> socket.socket:
        return self.connect(self.request("POST", "/api/sql", json.dumps({"query": ENDLESS}).encode()))

    def keep_worker_busy(self) -> tuple[socket.socket, set[int]]:
        """Return a connection that waits for an endless query, and the workers."""
        assert self.answers()
        workers = set(pids_of(self.pid)[1:])
        client = self.send_endless_query()
        time.sleep(0.3)
        return client, workers


@pytest.fixture(scope="module")
def start(run_folder: Path) -> Iterator[Callable[[], LimitedServer]]:
    environment = {**os.environ, "PYTHONPATH": str(Path(lostflops.__file__).parent.parent)}
    with ExitStack() as stack:

        def start_server() -> LimitedServer:
            command = [sys.executable, "-c", PROGRAM, str(run_folder)]
            process = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment))
            stack.callback(process.kill)
            assert process.stdout
            found = re.fullmatch(r"http://127\.0\.0\.1:(\d+)/#token=(\S+)\n", process.stdout.readline())
            assert found
            return LimitedServer(process, int(found[1]), found[2])

        yield start_server


@pytest.fixture(scope="module")
def limited(start: Callable[[], LimitedServer]) -> LimitedServer:
    server = start()
    assert server.answers()
    return server


def test_long_strings_count_as_memory(limited: LimitedServer) -> None:
    before, seen = memory_of(limited.pid), [0]
    answers: list[httpx.Response] = []
    asker = threading.Thread(target=lambda: answers.append(limited.sql(LARGE)))
    asker.start()
    while asker.is_alive():
        seen.append(memory_of(limited.pid))
        time.sleep(0.005)
    assert max(seen) - before < SQL_BYTES + 200_000_000
    assert (answers[0].status_code, answers[0].json()) == (422, {"error": explain_memory_limit(SQL_BYTES)})
    assert "needs more than 400 MB of memory" in answers[0].text
    assert limited.answers()


def test_a_function_that_nothing_interrupts_ends_at_the_timeout(limited: LimitedServer) -> None:
    began = time.monotonic()
    answer = limited.sql(ENDLESS)
    assert (answer.status_code, answer.json()["error"]) == (503, "stopped after 3 s without an answer")
    assert SQL_SECONDS <= time.monotonic() - began < SQL_SECONDS + 1
    used = cpu_seconds_of(limited.pid)
    time.sleep(1)
    assert cpu_seconds_of(limited.pid) - used < 0.3


def test_a_query_ends_when_its_asker_leaves(limited: LimitedServer) -> None:
    client, workers = limited.keep_worker_busy()
    assert all(map(is_there, workers))
    client.close()
    assert happens(lambda: not all(map(is_there, workers)), 1)


def test_a_process_that_crashes_is_replaced(limited: LimitedServer) -> None:
    client, workers = limited.keep_worker_busy()
    for pid in workers:
        os.kill(pid, signal.SIGSEGV)
    with client:
        assert client.recv(12) == b"HTTP/1.1 500"
    assert limited.answers()


def test_half_open_requests_are_closed_and_keep_nobody_out(limited: LimitedServer) -> None:
    began = time.monotonic()
    clients = [limited.connect(b"GET / HTTP/1.1\r\nHost: ") for _ in range(300)]
    took = []
    while time.monotonic() - began < WAIT_SECONDS:
        asked = time.monotonic()
        assert limited.ask("/api/alive").status_code == 200
        took.append(time.monotonic() - asked)
    assert max(took) < 1
    for client in clients:
        client.settimeout(WAIT_SECONDS + 2)
        assert is_closed(client)
    assert time.monotonic() - began < 2 * WAIT_SECONDS + 2


def test_a_body_that_trickles_in_is_closed(limited: LimitedServer) -> None:
    client = limited.connect(limited.request("POST", "/api/sql", b"x" * 1000)[:-900])
    assert happens(lambda: is_refused(client, b"x"), WAIT_SECONDS + 1)


def test_a_reader_that_asks_for_more_than_it_reads_is_closed(limited: LimitedServer) -> None:
    """Its answers would stay in memory."""
    request = limited.request("GET", "/app.js")
    client = limited.connect(request * 100)
    assert happens(lambda: is_refused(client, request[:10]), WAIT_SECONDS + 4)


def test_connections_are_refused_in_words_if_all_are_busy(limited: LimitedServer) -> None:
    clients = [limited.send_endless_query() for _ in range(CONNECTIONS)]
    time.sleep(0.3)
    with limited.connect(limited.request("GET", "/api/alive")) as more:
        said = more.makefile("rb").read().decode()
    assert said.startswith("HTTP/1.1 503 ")
    assert "too many connections at once" in said
    for client in clients:
        client.close()
    assert happens(lambda: limited.ask("/api/alive").status_code == 200, 2)


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_no_process_is_left_when_the_server_ends(start: Callable[[], LimitedServer], how: signal.Signals) -> None:
    server = start()
    client, workers = server.keep_worker_busy()
    server.process.send_signal(how)
    server.process.wait(5)
    assert workers
    assert happens(lambda: not any(map(is_there, workers)), 2)
    client.close()


def is_closed(client: socket.socket) -> bool:
    with client:
        try:
            return client.recv(1) == b""
        except ConnectionResetError:
            return True


def is_refused(client: socket.socket, data: bytes) -> bool:
    try:
        client.sendall(data)
    except OSError:
        client.close()
        return True
    return False
