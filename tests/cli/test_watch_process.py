"""The process that watches a job, on made captures: its log, its webhook, its end."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest

from lostflops.cli.self_watch import JobActions, WatchProcess, check_webhook, send
from lostflops.collect.capture import ANOMALIES, FOLDER
from lostflops.core.errors import UsageError
from lostflops.live.board import Board
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
    slower_job(run)
    log = run / ANOMALIES / "log.jsonl"
    with receiver() as (url, arrived):
        process = WatchProcess(run / FOLDER, run, run / FOLDER, per_hour=2, webhook=url)
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
    slower_job(run)
    program = (
        "import sys, time; from pathlib import Path; from lostflops.cli.self_watch import WatchProcess\n"
        "run = Path(sys.argv[1]); capture = run / 'capture'\n"
        "watch = WatchProcess(capture, run, capture, per_hour=0, webhook=''); watch.look()\n"
        "print(watch._process.pid, flush=True); time.sleep(60)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", program, str(run)], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
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


def test_the_secret_of_a_webhook_is_no_word_of_a_command(tmp_path: Path) -> None:
    run = tmp_path / "run"
    slower_job(run)
    process = WatchProcess(run / FOLDER, run, run / FOLDER, per_hour=0, webhook="https://example.org/T0K3N")
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
