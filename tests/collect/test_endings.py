"""What processes and launchers know of an end reaches the capture, and no message of an error with it."""

from __future__ import annotations

import os
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


def write_rank(folder: Path, rank: int, process: int) -> None:
    told = [{**session(rank, 2), "pid": process}, {"kind": "step"}]
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
        if one["kind"] == "job"
    ]


def test_a_launcher_tells_of_the_processes_that_it_names(tmp_path: Path) -> None:
    for rank, process in ((0, 50), (1, 51)):
        write_rank(tmp_path, rank, process)
    ended = SimpleNamespace(failures={1: SimpleNamespace(pid=51, exitcode=-9)})
    tell_of_failures(tmp_path, ended)  # type: ignore[arg-type]
    [(name, first, key, value)] = facts_of(tmp_path, 1)  # type: ignore[misc]
    assert (name, first, key, value["signal"], value["exit_code"]) == ("new", 3, "failed", 9, None)
    assert facts_of(tmp_path, 0) == []


def test_a_launcher_that_was_stopped_tells_of_all(tmp_path: Path) -> None:
    for rank in (0, 1):
        write_rank(tmp_path, rank, os.getpid())
    tell_of_failures(tmp_path, SimpleNamespace(sigval=15))  # type: ignore[arg-type]
    assert [facts_of(tmp_path, rank)[0][3]["signal"] for rank in (0, 1)] == [15, 15]  # type: ignore[index]
    tell_of_failures(tmp_path, ValueError("of its own"))
    assert len(facts_of(tmp_path, 0)) == 1


def test_the_command_is_told_of_after_a_torn_frame(tmp_path: Path) -> None:
    write_rank(tmp_path, 0, 50)
    with rank_file(tmp_path, 0).open("ab") as file:
        file.write(frame_bytes(0, "new", 3, 0, [{"kind": "step"}] * 100)[:-5])
    tell_of_command(tmp_path, {"exit_code": 1})
    assert facts_of(tmp_path, 0) == [("new", 3, "command", {"exit_code": 1})]
