"""The server as a program: it ends when it is told to, and says what to do when it cannot begin."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

import lostflops
from lostflops.cli.main import main

PROGRAM = [sys.executable, "-c", "from lostflops.cli.main import main; main()", "serve"]
SOURCE = str(Path(lostflops.__file__).parent.parent)
Started = tuple[subprocess.Popen[str], str, str]


@pytest.fixture
def started(run_folder: Path) -> Iterator[Started]:
    command = [*PROGRAM, str(run_folder), "--no-browser"]
    environment = {**os.environ, "PYTHONPATH": SOURCE}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout
        address = re.compile(r"(http://127\.0\.0\.1:\d+)/#token=(\S+)")
        told = next(found for line in process.stdout if (found := address.search(line)))
        yield process, told[1], told[2]
        process.kill()


def asked(address: str, token: str, body: object = None) -> httpx.Response:
    with httpx.Client(trust_env=False, timeout=20) as client:
        method = "GET" if body is None else "POST"
        return client.request(method, address, headers={"Authorization": f"Bearer {token}"}, json=body)


def test_a_server_answers_this_machine_and_ends_though_a_query_runs(started: Started) -> None:
    process, address, token = started
    assert len(token) >= 40
    assert asked(f"{address}/api/questions", token).json()["sections"]
    with socket.socket() as other:
        # All of 127.0.0.0/8 is this machine; a server on all addresses would answer here.
        assert other.connect_ex(("127.0.0.2", int(address.rsplit(":", 1)[1]))) != 0
    outcome: list[int] = []

    def endless() -> None:
        query = "select sum(a.range + b.range) from range(10000000) a, range(10000000) b"
        try:
            outcome.append(asked(f"{address}/api/sql", token, {"query": query}).status_code)
        except httpx.TransportError:
            outcome.append(0)

    waiting = threading.Thread(target=endless)
    waiting.start()
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    assert process.wait(10) == 0
    waiting.join(10)
    assert len(outcome) == 1
    assert outcome != [200]
    with pytest.raises(httpx.ConnectError):
        asked(f"{address}/api/questions", token)


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[object, str]:
    with pytest.raises(SystemExit) as stop:
        main(["serve", *arguments])
    said = capsys.readouterr()
    assert not said.out
    return stop.value.code, said.err


def test_a_port_in_use(run_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        code, said = refused(capsys, str(run_folder), "--port", port)
    assert (code, said[:36]) == (2, f"lostflops: port {port} cannot be used"[:36])
    assert "Choose another --port" in said


def test_without_the_extra(
    run_folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    monkeypatch.delitem(sys.modules, "lostflops.show.serve.server", raising=False)
    assert refused(capsys, str(run_folder)) == (
        2,
        "lostflops: the live page needs an extra: pip install 'lostflops[serve]'\n",
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["RUNS", "RUNS"], "a fleet is served alone"),
        (["RUN", "--runs", "RUNS"], "--runs is only for a fleet"),
        (["RUN", "--behind", "lostflops.example.org"], "is not the address of a page"),
        (["RUN", "--token-file", "RUNS/none"], "cannot be read: No such file"),
        (["RUN", "--audit", "RUNS"], "the audit log .* cannot be written: Is a directory"),
    ],
)
def test_options_that_cannot_be_used(
    run_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    runs = tmp_path / "runs"
    runs.mkdir()
    (runs / "a").symlink_to(run_folder)
    code, error = refused(capsys, *(word.replace("RUNS", str(runs)).replace("RUN", str(run_folder)) for word in words))
    assert code == 2
    assert re.search(said, error)


def test_no_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, said = refused(capsys, str(tmp_path))
    assert code == 5
    assert "is not a run" in said


def test_programs_are_given_the_address_as_json(run_folder: Path) -> None:
    command = [*PROGRAM, str(run_folder), "--no-browser", "--json"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": SOURCE}
    ) as process:
        assert process.stdout
        text = ""
        for line in process.stdout:
            text += line
            if line == "}\n":
                break
        address, token = json.loads(text)["address"].split("/#token=")
        assert asked(f"{address}/api/questions", token).status_code == 200
        process.kill()
