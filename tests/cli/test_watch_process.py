"""The process that watches a job, on made captures: its log, its webhook, its end."""

from __future__ import annotations

import errno
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest

from lostflops.cli.self_watch import JobActions, Lookout, WatchProcess, _first_finding, check_webhook, send
from lostflops.collect.capture import ANOMALIES, FOLDER, rank_file, request_file, trace_file
from lostflops.core.errors import UsageError
from lostflops.live.board import Board
from lostflops.live.follow import Follower
from lostflops.live.self_watch import SelfWatch
from lostflops.testing import Straggler, SyntheticCluster
from made_jobs import MS, MadeJob

PATIENCE = 60


@contextmanager
def receiver(status: int = 200, waits: float = 0, to: str = "") -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """A webhook, and what arrived there."""
    arrived: list[dict[str, Any]] = []

    class Hook(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            time.sleep(waits)
            arrived.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(status)
            if to:
                self.send_header("Location", to)
            self.end_headers()

        def do_GET(self) -> None:
            arrived.append({"method": "GET"})
            self.send_response(200)
            self.end_headers()

        def log_message(self, *args: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Hook)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/services/secret", arrived
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def slower_job(run: Path) -> MadeJob:
    job = MadeJob(run / FOLDER, world_size=1, step_ms=200, begin=time.time_ns() - 120 * 10**9)
    job.start()
    for number in range(500):
        step = job.step(0, number)
        job.append(0, [{**step, "stop": step["stop"] + 100 * MS * (number >= 400)}])
    return job


def wait_for(condition: Any) -> None:
    until = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.1)


def test_a_job_that_became_slower_is_logged_sent_and_asked_for_a_window(tmp_path: Path) -> None:
    run = tmp_path / "run"
    log = run / ANOMALIES / "log.jsonl"
    with receiver() as (url, arrived):
        process = WatchProcess(run / FOLDER, run, run / FOLDER, per_hour=2, webhook=url)
        slower_job(run)
        try:
            process.look()
            wait_for(lambda: log.exists() and arrived)
        finally:
            process.stop()
    (line,) = log.read_text().splitlines()
    message = json.loads(line)
    assert message["text"].startswith("Since about step 400, steps take 50% longer: 300 ms instead of 200 ms.")
    assert (message["kind"], message["window"], message["attempt"]) == ("slower", 1, 0)
    assert arrived == [{"text": f"run: {message['text']}"}]
    request = json.loads((run / FOLDER / "windows" / "0001.json").read_text())
    assert (request["steps"], request["ranks"]) == (8, "all")


def test_the_process_ends_with_its_parent_however_that_ends(tmp_path: Path) -> None:
    run = tmp_path / "run"
    program = (
        "import sys, time; from pathlib import Path; from lostflops.cli.self_watch import WatchProcess\n"
        "run = Path(sys.argv[1]); capture = run / 'capture'\n"
        "watch = WatchProcess(capture, run, capture, per_hour=0, webhook='')\n"
        "print('made', flush=True); sys.stdin.readline(); watch.look()\n"
        "print(watch._process.pid, flush=True); time.sleep(60)\n"
    )
    pipe = subprocess.PIPE
    parent = subprocess.Popen([sys.executable, "-c", program, str(run)], stdin=pipe, stdout=pipe, text=True)
    assert parent.stdout is not None
    assert parent.stdin is not None
    assert parent.stdout.readline() == "made\n"
    slower_job(run)
    parent.stdin.write("\n")
    parent.stdin.flush()
    child = int(parent.stdout.readline())
    wait_for((run / ANOMALIES / "log.jsonl").exists)
    parent.kill()
    parent.communicate()
    wait_for(lambda: not Path(f"/proc/{child}").exists() or "Z" in Path(f"/proc/{child}/stat").read_text().split()[2])


def test_no_process_starts_where_rank_0_is_not(tmp_path: Path) -> None:
    process = WatchProcess(tmp_path, tmp_path, tmp_path, per_hour=2, webhook="")
    process.look()
    assert process._process is None
    process.stop()


def test_a_job_of_an_earlier_start_is_not_watched(tmp_path: Path) -> None:
    """A scheduler starts a killed job again into the same folder: until the new one trains, the old one would hang."""
    run = tmp_path / "run"
    job = slower_job(run)
    process = WatchProcess(run / FOLDER, run, run / FOLDER, per_hour=2, webhook="")
    try:
        process.look()
        assert process._process is None
        MadeJob(job.folder, world_size=1, attempt=1, begin=time.time_ns()).start()
        process.look()
        assert process._process is not None
    finally:
        process.stop()


@dataclass
class Watched:
    """A made job of one rank and its lookout, with a clock that the test moves."""

    run: Path
    now: float = 0.0

    def __post_init__(self) -> None:
        self.job = MadeJob(self.run / FOLDER, world_size=1, step_ms=200)
        self.job.start()
        self.job.run(0, 50)
        follower, board = Follower(folder=self.run / FOLDER), Board()
        actions = JobActions(self.run / FOLDER, self.run, board)
        self.lookout = Lookout(follower, board, SelfWatch(board, actions), actions, lambda: self.now)

    def look(self, times: int = 1) -> None:
        for _ in range(times):
            self.now += self.lookout.look()

    @property
    def kinds(self) -> list[str]:
        log = self.run / ANOMALIES / "log.jsonl"
        return [json.loads(line)["kind"] for line in log.read_text().splitlines()] if log.exists() else []


def test_a_job_that_was_suspended_with_its_watch_does_not_hang(tmp_path: Path) -> None:
    watched = Watched(tmp_path)
    watched.look(3)
    watched.now += 3600
    watched.look(20)
    assert watched.kinds == []
    watched.look(80)
    assert watched.kinds == ["hang"]


def test_a_file_that_cannot_be_read_does_not_end_the_watch(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    watched = Watched(tmp_path)
    watched.look()
    unreadable = rank_file(watched.job.folder, 1)
    unreadable.mkdir()
    watched.look(3)
    assert capsys.readouterr().err.count("could not be watched for a moment") == 1
    unreadable.rmdir()
    watched.look(100)
    assert watched.kinds == ["hang"]


def test_a_long_diagnosis_does_not_keep_the_watch_from_looking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(tmp_path)

    def diagnose(*_: Any) -> None:
        watched.now += 60

    monkeypatch.setattr(SelfWatch, "look", diagnose)
    assert watched.lookout.look() == 1


def test_a_window_comes_soon_though_an_earlier_start_of_the_job_had_more_ranks_and_steps(tmp_path: Path) -> None:
    """Ranks 1 to 3 were killed a day ago, and reported no end."""
    now = time.time_ns()
    before = MadeJob(tmp_path / FOLDER, step_ms=200, begin=now - 86_400 * 10**9)
    before.start()
    before.run(100_000, 10)
    again = MadeJob(tmp_path / FOLDER, world_size=1, step_ms=200, attempt=1, begin=now - 20 * 10**9)
    again.start()
    again.run(0, 99)
    JobActions(tmp_path / FOLDER, tmp_path, Board()).ask_window(2e8)
    assert json.loads(request_file(tmp_path / FOLDER, 1).read_text())["first"] < 200


def test_a_window_that_cannot_be_asked_for_is_reported_with_the_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slower_job(tmp_path)

    def fill(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "link", fill)
    with pytest.raises(UsageError, match=r"cannot be written \(No space left on device\)"):
        JobActions(tmp_path / FOLDER, tmp_path, Board()).ask_window(1e9)


def test_a_window_that_cannot_be_read_is_still_reported(tmp_path: Path) -> None:
    job = slower_job(tmp_path)
    trace_file(job.folder, 0, 1).write_bytes(b"no trace")
    (tmp_path / ANOMALIES).write_text("a file")
    board = Board()
    board.take(Follower(folder=job.folder).poll(), 0.0)
    list(board.settle(0.0))
    said = JobActions(tmp_path / FOLDER, tmp_path, board).explain_window(1)
    assert said.startswith("Window 1 is recorded, but could not be read: ")


def test_a_window_that_only_some_ranks_wrote_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lostflops.cli.self_watch._first_finding", lambda *_: "Rank 1 is late.")
    job = MadeJob(tmp_path / FOLDER, world_size=3)
    job.start()
    board = Board()
    board.take(Follower(folder=job.folder).poll(), 0.0)
    list(board.settle(0.0))
    said = []
    for rank in range(3):
        trace_file(job.folder, rank, 1).touch()
        said.append(JobActions(job.folder, tmp_path, board).explain_window(1).partition(" More: ")[0])
    assert said == [
        "Window 1 (1 of 3 ranks): Rank 1 is late.",
        "Window 1 (2 of 3 ranks): Rank 1 is late.",
        "Window 1: Rank 1 is late.",
    ]


def test_a_window_is_explained_by_its_first_finding(tmp_path: Path) -> None:
    late = SyntheticCluster(ranks=4, stragglers=(Straggler(2, "slow_kernels", factor=1.5),))
    said = _first_finding(late.generate().traces.write(tmp_path / "late"), tmp_path / "late-run")
    assert said.startswith("Rank 2 is late by ")
    assert "slow device" in said
    assert "Fixing it saves " in said


@pytest.mark.parametrize("is_alive", [True, False])
def test_ranks_are_gone_if_none_of_this_host_is_alive(tmp_path: Path, is_alive: bool) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    job = MadeJob(tmp_path / FOLDER, world_size=3)
    for rank, (host, pid) in enumerate(((socket.gethostname(), ended.pid), ("elsewhere", os.getpid()))):
        job.append(rank, [job.session(rank, host=host, pid=pid)])
    job.append(2, [job.session(2, host=socket.gethostname(), pid=os.getpid() if is_alive else ended.pid)])
    board = Board()
    board.take(Follower(folder=job.folder).poll(), 0.0)
    list(board.settle(0.0))
    assert JobActions(job.folder, tmp_path, board).are_gone() is not is_alive


def test_the_secret_of_a_webhook_is_no_word_of_a_command(tmp_path: Path) -> None:
    run = tmp_path / "run"
    process = WatchProcess(run / FOLDER, run, run / FOLDER, per_hour=0, webhook="https://example.org/T0K3N")
    slower_job(run)
    try:
        process.look()
        assert process._process is not None
        assert b"T0K3N" not in Path(f"/proc/{process._process.pid}/cmdline").read_bytes()
    finally:
        process.stop()


@pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://host/x", "https://", "host/path", "http:///x"])
def test_only_addresses_that_take_messages_are_webhooks(url: str) -> None:
    with pytest.raises(UsageError, match="must be an address") as raised:
        check_webhook(url)
    assert "passwd" not in str(raised.value)


@pytest.mark.parametrize(
    "url",
    [
        "http://[::1/S3CRET",
        "http://host:S3CRET/x",
        "https://name:S3CRET@host/x",
        "https://name:S3CRET @host/x",
        "https://host/S3CRET x",
        "https://host/S3CRET\n",
        "https://host/S3CRET\x7f",
        "https://host/S3CRET\u00e9",
    ],
)
def test_an_address_that_would_fail_later_is_refused_at_once_without_its_secret(url: str) -> None:
    with pytest.raises(UsageError, match="must be an address") as raised:
        check_webhook(url)
    assert "S3CRET" not in str(raised.value)


def test_a_message_is_escaped_as_chat_services_ask() -> None:
    with receiver() as (url, arrived):
        send(url, "<module> a & b")
    assert arrived == [{"text": "&lt;module&gt; a &amp; b"}]


@pytest.mark.parametrize(
    "answer",
    [
        b"no HTTP\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 200 + b"\r\n",
        b"",
        b"HTTP/1.1 200 OK\r\n" + b"x" * 70_000,
    ],
    ids=["no HTTP", "many headers", "nothing", "a long line"],
)
def test_nonsense_from_a_webhook_does_not_end_the_watch(
    tmp_path: Path, answer: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def reply() -> None:
            client, _ = server.accept()
            with client:
                client.recv(10_000)
                client.sendall(answer)

        thread = threading.Thread(target=reply)
        thread.start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}/secret"
        JobActions(tmp_path / FOLDER, tmp_path, Board(), url).report("slower", "first", {})
        thread.join()
    said = capsys.readouterr().err
    assert "the webhook at 127.0.0.1 did not take the message" in said
    assert "secret" not in said


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed_because_the_message_would_be_lost(status: int) -> None:
    with receiver() as (elsewhere, arrived), receiver(status, to=elsewhere) as (url, _), pytest.raises(HTTPError):
        send(url, "hello")
    assert arrived == []


@pytest.mark.parametrize("status", [404, 500])
def test_a_webhook_that_fails_is_complained_about_once_without_its_secret(
    tmp_path: Path, status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    with receiver(status) as (url, _):
        actions = JobActions(tmp_path / FOLDER, tmp_path, Board(), url)
        actions.report("slower", "first", {})
        actions.report("slower", "second", {})
    said = capsys.readouterr().err
    assert said.count("did not take the message") == 1
    assert "secret" not in said
    lines = (tmp_path / ANOMALIES / "log.jsonl").read_text().splitlines()
    assert [json.loads(line)["text"] for line in lines] == ["first", "second"]


def test_a_log_that_cannot_be_written_is_complained_about_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / ANOMALIES).write_text("a file")
    actions = JobActions(tmp_path / FOLDER, tmp_path, Board())
    actions.report("slower", "first", {})
    actions.report("slower", "second", {})
    assert capsys.readouterr().err.count("cannot write") == 1


def test_a_log_has_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lostflops.cli.self_watch._MOST_LOGGED", 1000)
    actions = JobActions(tmp_path / FOLDER, tmp_path, Board())
    for _ in range(100):
        actions.report("slower", "x" * 50, {})
    assert 500 < (tmp_path / ANOMALIES / "log.jsonl").stat().st_size <= 1000
