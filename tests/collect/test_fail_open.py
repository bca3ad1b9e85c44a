"""Whatever goes wrong in the collector or with its disk, training goes on as it would have, and ends in time."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lostflops.collect.capture import rank_file
from tests.collect.jobs import PYTHON, dropped, finish, frames_of, plain_environment, recorded, records, started
from tests.integration.faults import ERRORS, Fault, build, preload

pytest.importorskip("torch")

from tests.collect import zoo

TRAIN = [PYTHON, str(zoo.__file__)]

BREAKS = """
import builtins, importlib.abc, os, sys

def broken(*_, **__):
    raise {error}("CANARY")

def breaks():
    from lostflops.collect import flight_ring, model_facts, recorder, steps, windows, writer
    where = {where}
    for name in {names}:
        setattr(where, name, broken)

class Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "lostflops.collect.attach":
            sys.meta_path.remove(self)
            from lostflops.collect import attach
            attached = attach.attach
            def attach_and_break(*arguments):
                found = attached(*arguments)
                breaks()
                return found
            attach.attach = attach_and_break
        return None

sys.meta_path.insert(0, Finder())
"""

BROKEN = {
    "clock": ("steps.StepClock", ["enter", "leave", "optimizer_begins", "optimizer_ended", "batch"], "RuntimeError"),
    "memory": ("steps.StepClock", ["enter", "leave", "optimizer_begins", "optimizer_ended"], "MemoryError"),
    "recursion": ("recorder.Recorder", ["_step_ended", "_step_record", "_chores", "note"], "RecursionError"),
    "begin": ("recorder.Recorder", ["_begin"], "OSError"),
    "notes": ("recorder.Recorder", ["put", "_describe", "_last_words"], "ValueError"),
    "writer": ("writer.Writer", ["_write_frame"], "KeyError"),
    "opening": ("writer", ["_open"], "OSError"),
    "frames": ("writer", ["frame_bytes"], "ValueError"),
    "facts": ("model_facts", ["outermost_modules", "records"], "AttributeError"),
    "windows": ("windows.Windows", ["edge", "poll", "close", "compiled"], "RuntimeError"),
    "window start": ("windows.OpenWindow", ["start"], "RuntimeError"),
    "window stop": ("windows.OpenWindow", ["stop"], "RuntimeError"),
    "exiting": ("recorder.Recorder", ["wall"], "RuntimeError"),
}
QUICK = ("clock", "window stop")


@pytest.fixture(scope="module")
def losses(tmp_path_factory: pytest.TempPathFactory) -> str:
    out = tmp_path_factory.mktemp("plain")
    assert finish([*TRAIN, str(out), "plain"]).code == 0
    return (out / "plain.0").read_text()


@pytest.mark.parametrize(
    "what", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in BROKEN]
)
def test_an_error_of_ours_is_not_the_programs(tmp_path: Path, losses: str, what: str) -> None:
    where, names, error = BROKEN[what]
    shim = tmp_path / "shim"
    shim.mkdir()
    (shim / "sitecustomize.py").write_text(BREAKS.format(where=where, names=names, error=error))
    path = os.pathsep.join([str(shim), os.environ.get("PYTHONPATH", "")])
    environment = recorded(tmp_path / "capture", plain_environment(PYTHONPATH=path), steps="20:3")
    done = finish([*TRAIN, str(tmp_path), "plain"], environment)
    assert (done.code, done.stdout, done.stderr) == (0, b"", b"")
    assert (tmp_path / "plain.0").read_text() == losses
    told = [path.read_bytes() for path in (tmp_path / "capture").rglob("*") if path.is_file()]
    assert b"CANARY" not in b"".join(told)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 64 KB that nothing else uses."""
    place = tmp_path / "disk"
    place.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(place)]
    if os.geteuid() != 0 or subprocess.run(words, capture_output=True, check=False).returncode != 0:
        pytest.skip("mounting a disk needs root")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=False)


def assert_trains(out: Path, capture: Path, losses: str, **settings: str) -> float:
    done = finish([*TRAIN, str(out), "plain"], recorded(capture, **settings))
    assert (done.code, done.stdout, done.stderr) == (0, b"", b"")
    assert (out / "plain.0").read_text() == losses
    return done.seconds


def test_a_full_disk(tmp_path: Path, small_disk: Path, losses: str) -> None:
    (small_disk / "filler").write_bytes(bytes(56 << 10))
    assert_trains(tmp_path, small_disk / "capture", losses, steps="20:3")


@pytest.mark.slow
@pytest.mark.parametrize("fault", ERRORS, ids=lambda fault: fault.name)
@pytest.mark.parametrize("at", [1, 2, 3])
def test_an_error_of_the_disk(tmp_path: Path, losses: str, fault: Fault, at: int) -> None:
    """The folder, the file or the first records cannot be written; what is lost later is counted."""
    library = build(tmp_path)
    if library is None:
        pytest.skip("there is no C compiler")
    capture = tmp_path / "capture"
    environment = plain_environment(ZOO_PAUSE="0.03", **preload(library, fault, at, capture))
    done = finish([*TRAIN, str(tmp_path), "plain"], recorded(capture, environment))
    assert (done.code, done.stdout, done.stderr) == (0, b"", b"")
    assert (tmp_path / "plain.0").read_text() == losses
    steps = len(records(capture, "step"))
    if steps:
        assert steps + dropped(capture) >= 50


@pytest.mark.slow
def test_a_disk_that_hangs(tmp_path: Path, losses: str) -> None:
    """The capture is a pipe that nobody reads: opening it never returns."""
    capture = tmp_path / "capture"
    capture.mkdir()
    os.mkfifo(rank_file(capture, 0))
    assert_trains(tmp_path, capture, losses)


def test_a_disk_that_stops_answering(tmp_path: Path, losses: str) -> None:
    """The pipe is opened and then read no more: writing never returns."""
    capture = tmp_path / "capture"
    capture.mkdir()
    os.mkfifo(rank_file(capture, 0))
    reader = os.open(rank_file(capture, 0), os.O_RDONLY | os.O_NONBLOCK)
    try:
        filler = os.open(rank_file(capture, 0), os.O_WRONLY)
        os.write(filler, bytes(65_000))
        os.close(filler)
        assert_trains(tmp_path, capture, losses)
    finally:
        os.close(reader)


@pytest.mark.slow
def test_a_folder_that_cannot_be(tmp_path: Path, losses: str) -> None:
    (tmp_path / "file").write_text("")
    assert_trains(tmp_path, tmp_path / "file" / "capture", losses, steps="20:3")


@pytest.mark.slow
def test_a_read_only_disk(tmp_path: Path, small_disk: Path, losses: str) -> None:
    if subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=False).returncode != 0:
        pytest.skip("cannot remount")
    assert_trains(tmp_path, small_disk / "capture", losses, steps="20:3")


@pytest.mark.slow
def test_run_runs_what_it_cannot_record(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    words = [
        PYTHON,
        "-m",
        "lostflops",
        "run",
        "--out",
        str(tmp_path / "file" / "run"),
        "--",
        "sh",
        "-c",
        "echo hi; exit 6",
    ]
    done = finish(words)
    assert (done.code, done.stdout) == (6, b"hi\n")
    assert b"runs unrecorded" in done.stderr


@pytest.mark.slow
def test_a_folder_that_is_deleted_in_the_middle(tmp_path: Path, losses: str) -> None:
    capture = tmp_path / "capture"
    environment = recorded(capture, plain_environment(ZOO_PAUSE="0.05"), steps="40:3")
    with started([*TRAIN, str(tmp_path), "plain"], environment) as process:
        until = time.monotonic() + 100
        while not capture.exists() or not records(capture, "step"):
            assert process.poll() is None
            assert time.monotonic() < until
            time.sleep(0.05)
        shutil.rmtree(capture)
        assert process.communicate(timeout=200) == (b"", b"")
        assert process.returncode == 0
    assert (tmp_path / "plain.0").read_text() == losses


def test_what_is_lost_is_counted(tmp_path: Path, small_disk: Path) -> None:
    """The disk fills up, and has room again before the end."""
    capture, filler = small_disk / "capture", small_disk / "filler"
    environment = recorded(capture, plain_environment(ZOO_PAUSE="0.1"))
    with started([*TRAIN, str(tmp_path), "plain"], environment) as process:
        until = time.monotonic() + 100
        while not capture.exists() or not records(capture, "step"):
            assert time.monotonic() < until
            time.sleep(0.05)
        with filler.open("wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(512))
            except OSError:
                pass
        time.sleep(2)
        filler.unlink()
        assert process.communicate(timeout=200) == (b"", b"")
    steps = [record["step"] for record in records(capture, "step")]
    assert dropped(capture) > 0
    assert len(steps) + dropped(capture) >= 50
    assert steps[-1] == 49


ENDS = """
import os, signal, sys, time
import torch

def kill():
    time.sleep(0.06)  # in the middle of the next step
    os.kill(os.getpid(), signal.SIGKILL)

def train(end):
    model = torch.nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(12):
        time.sleep(0.1)
        model(torch.ones(4, 8)).sum().backward()
        optimizer.step()
    end()

torch.set_num_threads(1)
ends = [lambda: os._exit(0), lambda: os.execvp("true", ["true"]), kill]
for rank, end in enumerate(ends):
    if not os.fork():
        os.environ["RANK"] = str(rank)
        train(end)
for _ in ends:
    os.wait()
"""


def test_a_process_without_a_last_word_loses_no_step_that_ended(tmp_path: Path) -> None:
    """Exit functions do not run after `_exit`, `exec` or SIGKILL."""
    environment = recorded(tmp_path, plain_environment(WORLD_SIZE="3", RANK="0"))
    assert finish([PYTHON, "-c", ENDS], environment).code == 0
    for rank in range(3):
        frames = frames_of(rank_file(tmp_path, rank))
        steps = [record["step"] for frame in frames for record in frame.records if record["kind"] == "step"]
        assert steps == list(range(12)), f"rank {rank}"


FORKED_WHILE_HELD = """
import os, threading, torch
from torch.utils.data import DataLoader, Dataset
from lostflops.collect import current, writer

writes, ends = threading.Event(), threading.Event()

class SlowDisk:
    def __getattr__(self, name):
        return getattr(os, name)

    def write(self, file, data):
        writes.set()
        ends.wait(60)
        return os.write(file, data)

def train():
    model(torch.ones(4, 8)).sum().backward()
    optimizer.step()

def hold():
    with recorder._hook_guard, recorder.captures._lock:
        held.set()
        ends.wait(60)

class Asking(Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, place):
        answers = []
        recorder.spent_in_comm_hook(1)
        recorder.captures.ask(lambda: answers.append(place))
        recorder.flush()
        return answers[0]

writer.os = SlowDisk()
torch.set_num_threads(1)
recorder, held = current.recorder, threading.Event()
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
train()
assert writes.wait(60) and not ends.is_set()
threading.Thread(target=hold).start()
held.wait(60)
loader = DataLoader(Asking(), num_workers=2, multiprocessing_context="fork", timeout=30)
print(sorted(int(place) for batch in loader for place in batch))
ends.set()
train()
"""


def test_workers_forked_while_threads_of_the_collector_hold_locks_load_all_batches(tmp_path: Path) -> None:
    """One thread is in the middle of a write; another holds every lock that a forked child could ask for."""
    done = finish([PYTHON, "-W", "ignore::DeprecationWarning", "-c", FORKED_WHILE_HELD], recorded(tmp_path))
    assert (done.code, done.stdout) == (0, b"[0, 1, 2, 3]\n"), done.stderr
    steps = [
        record["step"]
        for frame in frames_of(rank_file(tmp_path, 0))
        for record in frame.records
        if record["kind"] == "step"
    ]
    assert steps == [0, 1]


def test_wrapped_functions_of_os_are_still_those_of_os(tmp_path: Path) -> None:
    program = (
        "import os, pickle, torch\n"
        "assert os._exit is not __import__('posix')._exit, 'it is wrapped'\n"
        "assert pickle.loads(pickle.dumps(os._exit)) is os._exit\n"
        "assert os.execve in os.supports_fd\n"
        "os._exit(7)\n"
    )
    assert finish([PYTHON, "-c", program], recorded(tmp_path)).code == 7
