"""Traffic of interfaces and of the job's own connections, against floods of a known size in a network of their own."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from lostflops.account.pace.network import table
from lostflops.collect import network
from lostflops.collect.network import NetworkCounters
from lostflops.ingest import ingest
from lostflops.store.run import Run
from tests.collect.jobs import PYTHON, plain_environment

pytest.importorskip("torch")

MB = 1_000_000
ALONE = ["unshare", "--map-root-user", "--net"]
"""A network namespace of its own: no other process of the machine uses its loopback."""

FLOOD = """
import socket, sys, threading
def flood(megabytes):
    server = socket.create_server(("127.0.0.1", 0))
    sender = socket.create_connection(server.getsockname())
    receiver, _ = server.accept()
    left = megabytes * 1_000_000
    thread = threading.Thread(target=lambda: sender.sendall(bytes(left)))
    thread.start()
    while left:
        left -= len(receiver.recv(1 << 20))
    thread.join()
    return sender, receiver
"""
JOB = f"""{FLOOD}
import subprocess, time, torch, lostflops
subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
net = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(net.parameters())
def train():
    net(torch.ones(2, 4)).sum().backward()
    optimizer.step()
with lostflops.record(sys.argv[1], steps="none"):
    train()
    time.sleep(1.5)
    connections = flood(30)
    subprocess.run([sys.executable, "-c", sys.argv[2] + "flood(90)"], check=True)
    time.sleep(1.5)
    train()
"""


def can_unshare() -> bool:
    if not (shutil.which("unshare") and shutil.which("ip")):
        return False
    return subprocess.run([*ALONE, "ip", "link", "set", "lo", "up"], capture_output=True, check=False).returncode == 0


alone = pytest.mark.skipif(not can_unshare(), reason="this user cannot make a network namespace")


@alone
def test_the_traffic_of_others_is_that_of_the_interface_without_ours(tmp_path: Path) -> None:
    words = [*ALONE, PYTHON, "-c", JOB, str(tmp_path), FLOOD]
    subprocess.run(words, env=plain_environment(), check=True, timeout=300)
    ingest([tmp_path / "capture"], tmp_path, workers=1)
    with Run.open(tmp_path) as run:
        [row] = table(run).to_json()
    span = row["span_ns"]
    assert row["interface"] == "lo"
    assert row["received_gbs"] == row["sent_gbs"], "loopback receives what it sends"
    again = row["job_sent_gbs"] * span * row["resent_share"]
    assert row["job_sent_gbs"] * span - again == pytest.approx(30 * MB, rel=0.001)
    others = (row["sent_gbs"] - row["job_sent_gbs"]) * span
    assert others == pytest.approx(90 * MB, rel=0.05), "headers and what TCP sent again included"
    assert row["busiest_gbs"] > row["sent_gbs"]


RESENDS = """
import json, socket, subprocess, time
from lostflops.collect.network import NetworkCounters
def link(state):
    subprocess.run(["ip", "link", "set", "lo", state], check=True)
link("up")
server = socket.create_server(("127.0.0.1", 0))
sender = socket.create_connection(server.getsockname())
receiver, _ = server.accept()
found = []
counters = NetworkCounters(found.append, time.time_ns, has_interfaces=True)
sender.sendall(bytes(100))
receiver.recv(100)
counters.record()
link("down")
sender.send(bytes(5000))
time.sleep(0.5)
link("up")
left = 5000
while left:
    left -= len(receiver.recv(left))
time.sleep(0.1)
counters.record()
print(json.dumps([record["own"][0] for record in found]))
"""


@alone
def test_what_a_broken_link_makes_tcp_send_again() -> None:
    done = subprocess.run([*ALONE, PYTHON, "-c", RESENDS], capture_output=True, text=True, timeout=100, check=True)
    before, after = json.loads(done.stdout)
    received, sent, resent = (later - earlier for earlier, later in zip(before, after, strict=True))
    assert received == 5000
    assert resent >= 5000, "nothing arrived while the link was down"
    assert resent % 5000 == 0
    assert sent == 5000 + resent


def exchange(count: int) -> tuple[socket.socket, socket.socket]:
    server = socket.create_server(("127.0.0.1", 0))
    sender = socket.create_connection(server.getsockname())
    receiver, _ = server.accept()
    server.close()
    sending = threading.Thread(target=sender.sendall, args=(bytes(count),))
    sending.start()
    while count:
        count -= len(receiver.recv(count))
    sending.join()
    return sender, receiver


needs_linux = pytest.mark.skipif(not Path("/proc/net/dev").exists(), reason="no Linux")


@needs_linux
def test_a_closed_connection_keeps_its_traffic_and_none_of_ours_stays_open() -> None:
    found: list[dict[str, Any]] = []
    counters = NetworkCounters(found.append, time.time_ns, has_interfaces=False)
    counters.record()
    files = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(2):
        for connection in exchange(70_000):
            counters.record()
            connection.close()
    counters.record()
    received, sent, resent = (
        after - before for before, after in zip(found[0]["own"][0], found[-1]["own"][0], strict=True)
    )
    assert received in (140_000, 140_001, 140_002), "the kernel counts the end of a connection as a byte"
    assert sent - resent == 140_000
    assert found[-1]["interfaces"] == [], "another rank of the host reads them"
    assert len(list(Path("/proc/self/fd").iterdir())) == files


@needs_linux
def test_with_too_many_connections_their_traffic_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network, "_MOST_CONNECTIONS", 1)
    found: list[dict[str, Any]] = []
    pair = exchange(10)
    NetworkCounters(found.append, time.time_ns, has_interfaces=True).record()
    for connection in pair:
        connection.close()
    assert found[0]["own"] == []
    assert found[0]["interfaces"]


@needs_linux
def test_what_cannot_be_read_is_noted_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[dict[str, Any]] = []
    counters = NetworkCounters(found.append, time.time_ns, has_interfaces=True)
    monkeypatch.setattr(network, "_FILES", tmp_path / "gone")
    for _ in range(2):
        counters.record()
    assert [(record["kind"], record["what"]) for record in found] == [("note", "network_missing")]


def test_it_reads_once_a_second_and_more_often_in_windows() -> None:
    found: list[dict[str, Any]] = []
    counters = NetworkCounters(found.append, time.time_ns, has_interfaces=True)
    for is_profiling in (False, False, True, False):
        counters.look(is_profiling=is_profiling)
    assert len(found) == (2 if Path("/proc/net/dev").exists() else 0)


LOCKED = """
import fcntl, os, sys
from lostflops.collect.network import NetworkCounters
def is_locked():
    child = os.fork()
    if child == 0:
        try:
            fcntl.lockf(open(sys.argv[1], "w"), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
file = open(sys.argv[1], "w")
fcntl.lockf(file, fcntl.LOCK_EX)
before = is_locked()
NetworkCounters(lambda record: None, lambda: 0, has_interfaces=True).record()
print(before, is_locked())
"""


@needs_linux
def test_files_that_the_program_locked_stay_locked(tmp_path: Path) -> None:
    words = [PYTHON, "-c", LOCKED, str(tmp_path / "database")]
    done = subprocess.run(words, capture_output=True, text=True, timeout=100, check=True)
    assert done.stdout.split() == ["True", "True"], "SQLite and others hold such locks"


@needs_linux
def test_connections_stay_blocking_if_the_program_set_a_default_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[dict[str, Any]] = []
    pair = exchange(10)
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(10)
    try:
        NetworkCounters(found.append, time.time_ns, has_interfaces=False).record()
    finally:
        socket.setdefaulttimeout(before)
    assert [os.get_blocking(one.fileno()) for one in pair] == [True, True]
    for connection in pair:
        connection.close()
    assert sum(found[0]["own"][0]) >= 20


@needs_linux
def test_a_connection_with_the_inode_of_a_closed_one_adds_to_its_traffic(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[dict[str, Any]] = []
    counters = NetworkCounters(found.append, time.time_ns, has_interfaces=False)
    for traffic in ((100, 50, 0), (10, 5, 0)):
        monkeypatch.setattr(network, "_connections", lambda traffic=traffic: iter([(7, False, traffic)]))
        counters.record()
    assert [record["own"][1] for record in found] == [[100, 50, 0], [110, 55, 0]], "counters never fall"
