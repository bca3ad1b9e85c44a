"""What processes and launchers know of an end reaches the capture, and no message of an error with it."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
import time
import traceback
from pathlib import Path
from types import SimpleNamespace

from lostflops.collect.capture import frame_bytes, rank_file, read_frames
from lostflops.collect.endings import describe_error, failures, process_start, tell_of_command, tell_of_failures
from made_captures import end, session


def fail() -> None:
    raise ValueError("the secret is 42")


def test_an_error_is_its_type_and_its_lines(tmp_path: Path) -> None:
    try:
        fail()
    except ValueError as error:
        told = describe_error(error)
    assert told["error"] == "ValueError"
    assert [frame.split()[0] for frame in told["stack"].split(";")] == [
        "test_an_error_is_its_type_and_its_lines",
        "fail",
    ]
    assert "secret" not in str(told)
    assert describe_error(None) == {"error": None, "stack": None}


class Spawned(Exception):
    """As torch.multiprocessing.spawn raises it."""

    error_pid = 7


def test_a_printed_traceback_has_the_same() -> None:
    try:
        try:
            raise KeyError("first")
        except KeyError:
            fail()
    except ValueError as error:
        text, own = traceback.format_exc(), describe_error(error)
    [(process, told)] = failures(Spawned(f"-- Process 1 terminated with the following error:\n{text}"))
    assert (process, told["exit_code"], told["signal"]) == (7, 1, None)
    assert told["error"] == own["error"]
    assert told["stack"].endswith(own["stack"])
    assert "secret" not in str(told)


def test_a_process_knows_when_it_started() -> None:
    started = process_start()
    assert started is not None
    assert 0 < time.time_ns() - started < 3_600 * 10**9
    assert abs(started - process_start()) < 30_000_000  # type: ignore[operator]


def write_rank(folder: Path, rank: int, process: int, host: str = socket.gethostname(), command: int = 7) -> None:
    began = {"kind": "job", "key": "began", "value": {"command": command}}
    told = [{**session(rank, 2, host=host), "pid": process}, began]
    rank_file(folder, rank).write_bytes(
        frame_bytes(rank, "old", 0, 0, told) + frame_bytes(rank, "new", 0, 0, [*told, end(5)])
    )


def facts_of(folder: Path, rank: int) -> list[object]:
    frames, damaged = read_frames(rank_file(folder, rank))
    assert damaged <= 1
    return [
        (frame.session, frame.first, one["key"], one["value"])
        for frame in frames
        for one in frame.records
        if one["kind"] == "job" and one["key"] != "began"
    ]


def test_a_launcher_tells_of_the_processes_that_it_names(tmp_path: Path) -> None:
    for rank, process in ((0, 50), (1, 51)):
        write_rank(tmp_path, rank, process)
    ended = SimpleNamespace(failures={1: SimpleNamespace(pid=51, exitcode=-9)})
    tell_of_failures(tmp_path, ended, 7)  # type: ignore[arg-type]
    [(name, first, key, value)] = facts_of(tmp_path, 1)  # type: ignore[misc]
    assert (name, first, key, value["signal"], value["exit_code"]) == ("new", 3, "failed", 9, None)
    assert facts_of(tmp_path, 0) == []


def test_a_launcher_that_was_stopped_tells_of_all(tmp_path: Path) -> None:
    for rank in (0, 1):
        write_rank(tmp_path, rank, os.getpid())
    tell_of_failures(tmp_path, SimpleNamespace(sigval=15), 7)  # type: ignore[arg-type]
    assert [facts_of(tmp_path, rank)[0][3]["signal"] for rank in (0, 1)] == [15, 15]  # type: ignore[index]
    tell_of_failures(tmp_path, ValueError("of its own"), 7)
    assert len(facts_of(tmp_path, 0)) == 1


def test_facts_are_added_after_a_torn_frame(tmp_path: Path) -> None:
    write_rank(tmp_path, 0, 50)
    with rank_file(tmp_path, 0).open("ab") as file:
        file.write(frame_bytes(0, "new", 3, 0, [{"kind": "step"}] * 100)[:-5])
    failed = SimpleNamespace(failures={0: SimpleNamespace(pid=50, exitcode=-9)})
    tell_of_failures(tmp_path, failed, 7)  # type: ignore[arg-type]
    tell_of_command(tmp_path, {"start": 7, "exit_code": 1})
    assert [(first, key) for _, first, key, _ in facts_of(tmp_path, 0)] == [(3, "failed"), (4, "command")]  # type: ignore[misc]


def test_processes_of_other_commands_and_hosts_are_left_alone(tmp_path: Path) -> None:
    write_rank(tmp_path, 0, 50, command=8)
    write_rank(tmp_path, 1, 50, host="elsewhere")
    ended = SimpleNamespace(failures={0: SimpleNamespace(pid=50, exitcode=-9)})
    tell_of_failures(tmp_path, ended, 7)  # type: ignore[arg-type]
    tell_of_command(tmp_path, {"start": 7, "exit_code": 1})
    assert facts_of(tmp_path, 0) == []
    assert [key for _, _, key, _ in facts_of(tmp_path, 1)] == ["command"]  # type: ignore[misc]


def test_a_process_that_still_writes_is_left_alone(tmp_path: Path) -> None:
    write_rank(tmp_path, 0, 50)
    holds = (
        "import fcntl, sys; f = open(sys.argv[1], 'ab'); fcntl.lockf(f, fcntl.LOCK_EX); print(1, flush=True); input()"
    )
    command = [sys.executable, "-c", holds, str(rank_file(tmp_path, 0))]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        writer.stdout.readline()
        tell_of_command(tmp_path, {"start": 7, "exit_code": 0})
        assert facts_of(tmp_path, 0) == []
        writer.communicate(b"\n")
    tell_of_command(tmp_path, {"start": 7, "exit_code": 0})
    assert len(facts_of(tmp_path, 0)) == 1


def test_of_a_large_file_both_ends_are_read(tmp_path: Path) -> None:
    write_rank(tmp_path, 0, 50)
    many = [{"kind": "step", "filler": "x" * 1000}] * 100
    with rank_file(tmp_path, 0).open("ab") as file:
        for number in range(120):
            file.write(frame_bytes(0, "new", 3 + 100 * number, 0, many))
    tell_of_command(tmp_path, {"start": 7, "exit_code": 0})
    assert [first for _, first, _, _ in facts_of(tmp_path, 0)] == [3 + 100 * 120]  # type: ignore[misc]


def test_a_file_that_cannot_be_opened_stops_nothing(tmp_path: Path) -> None:
    write_rank(tmp_path, 1, 50)
    rank_file(tmp_path, 0).symlink_to(tmp_path / "nowhere")
    tell_of_command(tmp_path, {"start": 7, "exit_code": 0})
    assert len(facts_of(tmp_path, 1)) == 1


def test_the_first_line_after_the_frames_is_the_type() -> None:
    text = 'Traceback (most recent call last):\n  File "a.py", line 3, in main\n    go()\nValueError: got\nhunter2\n'
    [(_, told)] = failures(Spawned(text))
    assert (told["error"], "hunter2" in str(told)) == ("ValueError", False)


def test_an_error_of_a_loaders_worker_has_the_lines_of_the_worker() -> None:
    original = (
        '\nOriginal Traceback (most recent call last):\n  File "data.py", line 21, in decode\n    x\nValueError: 1\n'
    )
    assert describe_error(ValueError(f"Caught ValueError in DataLoader worker process 1.{original}")) == {
        "error": "ValueError",
        "stack": "decode data.py:21",
    }
    assert describe_error(struct.error("short"))["error"] == "struct.error"
