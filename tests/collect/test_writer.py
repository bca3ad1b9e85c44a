"""The writer against kills, full disks, disks that hang, and folders that are not there."""

from __future__ import annotations

import errno
import os
import sys
import threading
import time
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from lostflops.collect import writer as writing
from lostflops.collect.capture import frame_bytes, rank_file, read_frames
from lostflops.collect.writer import Writer
from tests.collect import kill_writer
from tests.collect.jobs import PYTHON, finish


def nothing() -> None:
    pass


def made(folder: Path, session: str = "s") -> Writer:
    writer = Writer(folder, 0, session, nothing)
    writer.start()
    return writer


def written(folder: Path) -> list[int]:
    return [record["number"] for frame in read_frames(rank_file(folder, 0))[0] for record in frame.records]


@pytest.mark.parametrize("kills", [30, pytest.param(1000, marks=pytest.mark.slow)])
def test_acknowledged_records_survive_kills_once_and_whole(kills: int) -> None:
    done = finish([PYTHON, str(kill_writer.__file__), "--kills", str(kills), "--seed", str(kills)])
    assert done.code == 0, done.stdout.decode()
    words = done.stdout.split()
    assert words[0] == str(kills).encode()
    assert int(words[2]) > 100 * kills


def test_records_that_come_while_a_frame_is_written_are_written_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also those that come in the last moment before the exit."""
    monkeypatch.setattr(writing, "PAUSE", 0.001)
    write = os.write

    def slow_write(file: int, data: bytes) -> int:
        time.sleep(0.05)
        return write(file, data)

    monkeypatch.setattr(os, "write", slow_write)
    writer = made(tmp_path)
    for number in range(40):
        writer.put({"number": number})
        time.sleep(0.003)
    writer.close()
    assert written(tmp_path) == list(range(40))


def test_a_disk_that_is_full_for_a_while_costs_what_came_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = os.write
    is_full = [True]

    def full_write(file: int, data: bytes) -> int:
        if is_full[0]:
            write(file, data[: len(data) // 2])
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(file, data)

    monkeypatch.setattr(os, "write", full_write)
    writer = made(tmp_path)
    for number in range(3):
        writer.put({"number": number})
    writer.hurry()
    wait_for(lambda: writer.dropped == 3)
    is_full[0] = False
    writer.put({"number": 3})
    writer.close()
    frames, damaged = read_frames(rank_file(tmp_path, 0))
    assert [(frame.first, frame.dropped, frame.records) for frame in frames] == [(0, 3, [{"number": 3}])]
    assert damaged == 1


def test_a_disk_that_hangs_holds_up_neither_records_nor_the_exit(tmp_path: Path) -> None:
    os.mkfifo(rank_file(tmp_path, 0))
    began = time.monotonic()
    writer = made(tmp_path)
    for number in range(3 * writing.RING):
        writer.put({"number": number})
    writer.close()
    assert time.monotonic() - began < 8
    assert writer.dropped == 2 * writing.RING


def test_a_handler_that_flushes_while_a_step_is_put_does_not_wait_for_ever(tmp_path: Path) -> None:
    """A signal comes in any line of `put_step`: here the handler is called after each of them."""
    writer = made(tmp_path)

    def handle(frame: FrameType, event: str, _: Any) -> Any:
        if event == "line":
            sys.settrace(None)
            writer.flush()
            sys.settrace(handle)
        return handle

    def put() -> None:
        sys.settrace(handle)
        try:
            for number in range(5):
                writer.put_step({"number": number})
        finally:
            sys.settrace(None)

    training = threading.Thread(target=put, daemon=True)
    training.start()
    training.join(60)
    assert not training.is_alive()
    writer.close()
    assert written(tmp_path) == list(range(5))


def test_a_folder_that_takes_no_file_makes_a_dead_writer(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    writer = made(tmp_path / "file" / "folder")
    wait_for(lambda: writer.is_dead)
    writer.put({"number": 0})
    writer.close()
    assert capfd.readouterr() == ("", "")


def test_what_cannot_be_written_as_json_is_dropped_alone(tmp_path: Path) -> None:
    writer = made(tmp_path)
    writer.put({"number": object()})
    writer.hurry()
    wait_for(lambda: writer.dropped == 1)
    writer.put({"number": 1})
    writer.close()
    assert written(tmp_path) == [1]


def test_frames_are_of_bounded_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = Writer(tmp_path, 0, "s", nothing)
    for number in range(1201):
        writer.put({"number": number})
    writer.start()
    writer.close()
    frames, _ = read_frames(rank_file(tmp_path, 0))
    assert [(frame.first, len(frame.records)) for frame in frames] == [(0, 500), (500, 500), (1000, 201)]


def test_the_next_attempt_is_read_behind_a_torn_frame(tmp_path: Path) -> None:
    torn = frame_bytes(0, "first", 0, 0, [{"number": number} for number in range(100)])
    for cut in (1, 10, 17, len(torn) // 2, len(torn) - 1):
        rank_file(tmp_path, 0).write_bytes(frame_bytes(0, "first", 0, 0, [{"number": -1}]) + torn[:cut])
        writer = made(tmp_path, "second")
        writer.put({"number": -2})
        writer.close()
        assert written(tmp_path) == [-1, -2]


def test_two_writers_of_one_rank_never_share_a_file(tmp_path: Path) -> None:
    """A lock belongs to a process, so the first writer is one."""
    script = (
        "import sys; from pathlib import Path; from lostflops.collect.writer import Writer\n"
        "writer = Writer(Path(sys.argv[1]), 0, sys.argv[2], lambda: None); writer.start()\n"
        "writer.put({'number': sys.argv[2]}); writer.hurry()\n"
        "while not writer.acknowledged_records: pass\n"
        "print('ready', flush=True); sys.stdin.read(); writer.close()"
    )
    import subprocess

    processes = []
    for name in ("a", "b", "c"):
        words = [PYTHON, "-c", script, str(tmp_path), name]
        processes.append(subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE))
        assert processes[-1].stdout is not None
        assert processes[-1].stdout.readline() == b"ready\n"
    for process in processes:
        process.communicate(b"")
    places = [tmp_path, tmp_path / "beside-2", tmp_path / "beside-3"]
    assert [written(place) for place in places] == [["a"], ["b"], ["c"]]


def wait_for(is_so: Any) -> None:
    until = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.01)


def test_a_file_system_without_locks_is_written_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def lockf(*_: object) -> None:
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(writing.fcntl, "lockf", lockf)
    writer = made(tmp_path)
    writer.put({"number": 1})
    writer.close()
    assert written(tmp_path) == [1]
