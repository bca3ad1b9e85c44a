"""Traces that another process writes, by a process whose other threads are busy."""

import ctypes
import fcntl
import gzip
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from lostflops.cli.late import wait_for_exports
from lostflops.collect.export import begin, is_pending, outcome, pending
from lostflops.collect.placing import finish, main, plain_file

WORDS = b'{"traceEvents": [1, 2, 3]}'


def saving(folder: Path, content: bytes = WORDS) -> Callable[[bytes], object]:
    """A call into C that keeps the interpreter's lock and makes the file of that name, as the profiler's is."""
    source = folder / "source"
    source.write_bytes(content)
    return partial(ctypes.PyDLL(None).link, os.fsencode(source))


def wait_for(trace: Path) -> None:
    end = time.monotonic() + 60
    while is_pending(trace):
        assert time.monotonic() < end, "the exporter hangs"
        time.sleep(0.005)


@contextmanager
def busy_threads(count: int) -> Iterator[None]:
    over = threading.Event()

    def work() -> None:
        while not over.is_set():
            sum(range(1000))

    threads = [threading.Thread(target=work) for _ in range(count)]
    for thread in threads:
        thread.start()
    yield
    over.set()
    for thread in threads:
        thread.join()


def test_a_saved_trace_is_there_under_its_name_and_nothing_else_is(tmp_path: Path) -> None:
    trace = tmp_path / "rank-00000.w0000.json.gz"
    assert begin(saving(tmp_path), trace)
    wait_for(trace)
    assert gzip.decompress(trace.read_bytes()) == WORDS
    assert sorted(file.name for file in tmp_path.iterdir()) == ["rank-00000.w0000.json.gz", "source"]
    assert pending(tmp_path) == []


def test_the_copy_never_waits_for_threads_that_it_does_not_have(tmp_path: Path) -> None:
    save = saving(tmp_path)
    traces = [tmp_path / f"rank-{rank:05d}.w0000.json.gz" for rank in range(25)]
    with busy_threads(3):
        assert all(begin(save, trace) for trace in traces)
    for trace in traces:
        wait_for(trace)
    assert all(gzip.decompress(trace.read_bytes()) == WORDS for trace in traces)


def test_the_exporter_is_no_child_and_the_lock_is_held_while_it_works(tmp_path: Path) -> None:
    trace = tmp_path / "rank-00000.w0000.json.gz"
    assert begin(partial(ctypes.PyDLL(None).usleep, 700_000), trace)
    assert pending(tmp_path) == [trace]
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)
    wait_for(trace)
    assert not trace.exists()
    assert outcome(trace) == (False, False, "No such file or directory")


def test_a_trace_that_is_written_anew_is_not_replaced_by_its_older_version(tmp_path: Path) -> None:
    """A window that moves is written again, maybe while its first trace still is."""
    trace, plain = tmp_path / "rank-00000.w0000.json.gz", tmp_path / "older"
    lock = trace.with_name(trace.name + ".lock")
    plain.write_bytes(b'{"older": 1}')
    with lock.open("w") as older:
        assert begin(saving(tmp_path), trace)
        wait_for(trace)
        lock.touch()
        main([str(plain), str(trace), str(older.fileno()), "", "", "0"])
    assert gzip.decompress(trace.read_bytes()) == WORDS
    assert lock.exists()
    assert not plain.exists()


def test_a_pipe_of_the_job_closes_with_the_job(tmp_path: Path) -> None:
    """`train | tee log` ends when training does."""
    program = (
        "import ctypes; from functools import partial; from pathlib import Path; from lostflops.collect import export\n"
        f"assert export.begin(partial(ctypes.PyDLL(None).sleep, 20), Path({str(tmp_path)!r}) / 'a.json.gz')\n"
        "print('trained', flush=True)"
    )
    began = time.monotonic()
    outcome = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=60, check=True)
    assert outcome.stdout == b"trained\n"
    assert outcome.stderr == b""
    assert time.monotonic() - began < 15


def test_a_trace_that_was_cut_short_is_none(tmp_path: Path) -> None:
    trace = tmp_path / "rank-00000.w0000.json.gz"
    assert begin(saving(tmp_path, WORDS[:-4]), trace)
    wait_for(trace)
    assert not trace.exists()
    assert "cut short" in (outcome(trace).reason or "")
    assert [file.name for file in tmp_path.iterdir()] == ["source"]


def test_a_folder_that_takes_no_files_is_said_at_once(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        begin(saving(tmp_path), tmp_path / "none" / "rank-00000.w0000.json.gz")


def test_where_no_process_can_be_made_nothing_is_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = tmp_path / "rank-00000.w0000.json.gz"
    monkeypatch.setattr(sys, "executable", "")
    assert not begin(saving(tmp_path), trace)
    assert not is_pending(trace)


def test_a_process_can_write_its_trace_itself(tmp_path: Path) -> None:
    trace = tmp_path / "rank-00000.w0000.json.gz"
    plain_file(trace).write_bytes(WORDS)
    finish(plain_file(trace), trace)
    assert gzip.decompress(trace.read_bytes()) == WORDS
    assert [file.name for file in tmp_path.iterdir()] == [trace.name]


def test_run_waits_for_traces_that_are_written_one_after_the_other(tmp_path: Path) -> None:
    locks = [tmp_path / f"rank-0000{rank}.w0000.json.gz.lock" for rank in range(2)]
    files = [lock.open("w") for lock in locks]
    for file in files:
        fcntl.flock(file, fcntl.LOCK_EX)

    def end_all() -> None:
        for lock, file in zip(reversed(locks), reversed(files), strict=True):
            time.sleep(0.2)
            lock.unlink()
            file.close()

    ending = threading.Thread(target=end_all)
    ending.start()
    wait_for_exports(tmp_path)
    assert not any(lock.exists() for lock in locks)
    ending.join()
