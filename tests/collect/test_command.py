"""A command under `lostflops run` says, returns and receives what it would without."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from pathlib import Path

import pytest

from lostflops.collect.capture import FOLDER, rank_file
from lostflops.collect.command import run_command
from tests.collect.jobs import PYTHON, finish, plain_environment, recorded, records, run_words, started

NOTHING = b"lostflops: nothing was recorded"
READS = "import sys; print(sys.stdin.read()[::-1]); print('to stderr', file=sys.stderr); sys.exit(4)"
LISTENS = """
import os, signal, sys, time
got = []
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
    signal.signal(number, lambda found, _: got.append(found))
print("ready", flush=True)
until = time.monotonic() + 1.5
while time.monotonic() < until:
    time.sleep(0.05)
print(got)
"""

GRABS_TERMINAL = """
import fcntl, os, sys, termios
os.setsid()
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""
HEARS_NOTHING = """
import os, signal, sys
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
os.execv(sys.argv[1], sys.argv[1:])
"""


@pytest.mark.parametrize(
    ("words", "stdin"),
    [
        (["sh", "-c", "echo out; echo err >&2; exit 3"], b""),
        (["sh", "-c", "kill -SEGV $$"], b""),
        (["sh", "-c", "kill -TERM $$"], b""),
        (["sh", "-c", "kill -KILL $$"], b""),
        (["sh", "-c", "yes | head -n 1; exit 7"], b""),
        (["bash", "-c", "yes | head -n 1; exit ${PIPESTATUS[0]}"], b""),
        (["cat"], bytes(range(256)) * 100),
        ([PYTHON, "-c", READS], b"read me"),
        ([PYTHON, "-m", "this"], b""),
        ([PYTHON, "-I", "-c", "import sys; print(sys.path, sys.flags)"], b""),
        ([PYTHON, "-S", "-c", "import sys; print(sys.flags, sorted(sys.modules))"], b""),
        ([PYTHON, "-E", "-c", "import sys; print(sys.path, sorted(sys.modules))"], b""),
        ([PYTHON, "-c", "import sys; print(sys.path)"], b""),
        ([PYTHON, "-c", "raise ValueError('the command failed')"], b""),
    ],
)
def test_output_and_end_are_the_commands(tmp_path: Path, words: list[str], stdin: bytes) -> None:
    plain = finish(words, input=stdin)
    ours = finish([*run_words(tmp_path / "run"), *words], input=stdin)
    assert (ours.code, ours.stdout) == (plain.code, plain.stdout)
    assert ours.stderr.startswith(plain.stderr)
    assert ours.stderr.removeprefix(plain.stderr).startswith(NOTHING)


def test_what_cannot_run_ends_as_in_a_shell(tmp_path: Path) -> None:
    (tmp_path / "no-program").write_text("text")
    names = ("nowhere", str(tmp_path / "no-program"))
    assert [finish([*run_words(tmp_path / "run"), name]).code for name in names] == [127, 126]


def test_a_script_without_an_interpreter_line_runs_in_a_shell(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("echo $1; exit 5\n")
    script.chmod(0o755)
    done = finish([*run_words(tmp_path / "run"), str(script), "argument"])
    assert (done.code, done.stdout) == (5, b"argument\n")


@pytest.mark.parametrize("stderr", ["2>&-", "2>/dev/full", "2>&1 | true; exit ${PIPESTATUS[0]}"])
def test_the_exit_code_survives_a_stderr_that_takes_nothing(tmp_path: Path, stderr: str) -> None:
    words = " ".join([*run_words(tmp_path / "run"), "bash", "-c", "'exit 9'"])
    assert finish(["bash", "-c", f"{words} {stderr}"]).code == 9


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1])
def test_a_signal_reaches_the_command_once(tmp_path: Path, number: signal.Signals) -> None:
    with started([*run_words(tmp_path / "run"), PYTHON, "-c", LISTENS]) as process:
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(number)
        assert process.communicate(timeout=60)[0] == f"[{int(number)}]\n".encode()
        assert process.returncode == 0


def test_a_signal_of_the_terminal_reaches_the_command_once(tmp_path: Path) -> None:
    """Ctrl-C goes to the whole foreground group, so the command has it already."""
    leader, follower = os.openpty()
    words = [*run_words(tmp_path / "run"), PYTHON, "-c", LISTENS]
    process = subprocess.Popen(
        [PYTHON, "-c", GRABS_TERMINAL, *words],
        env=plain_environment(),
        stdin=follower,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        os.write(leader, b"\x03")
        assert process.communicate(timeout=60)[0] == b"[2]\n"
    finally:
        process.kill()
        process.wait()
        os.close(leader)
        os.close(follower)


def test_a_command_that_does_not_train_leaves_nothing_in_the_spool(tmp_path: Path) -> None:
    spool = tmp_path / "spool"
    spool.mkdir()
    done = finish([*run_words(tmp_path / "run", "--spool", str(spool)), "true"], plain_environment())
    assert done.code == 0
    assert b"nothing was recorded" in done.stderr
    assert list(tmp_path.rglob("*")) == [spool]


@pytest.mark.parametrize("then", ["", "; mkdir -p $0/capture"])
def test_a_run_folder_that_is_deleted_meanwhile_is_reported_as_gone(tmp_path: Path, then: str) -> None:
    words = ["sh", "-c", f"rm -r $0{then}", str(tmp_path / "run")]
    done = finish([*run_words(tmp_path / "run"), *words], plain_environment())
    assert done.code == 0
    assert b"was deleted while the command ran: whatever was recorded there is gone" in done.stderr
    assert b"no process of the command trained" not in done.stderr


def test_a_gatherer_that_fails_or_stalls_is_not_the_commands_trouble(tmp_path: Path) -> None:
    """The spool vanishes while the command runs, and the capture cannot take what there is."""
    spool = tmp_path / "spool"
    spool.mkdir()
    words = [*run_words(tmp_path / "run", "--spool", str(spool)), "sh", "-c", f"rm -rf {spool}/*; sleep 2.5; exit 3"]
    done = finish(words)
    assert done.code == 3


@pytest.mark.parametrize("code", [0, 3])
def test_a_capture_that_cannot_be_read_is_told_last_and_the_exit_code_is_the_commands(
    tmp_path: Path, code: int
) -> None:
    run = tmp_path / "run"
    broken = rank_file(run / FOLDER, 0)
    done = finish([*run_words(run), "sh", "-c", f"echo broken > {broken}; exit {code}"], plain_environment())
    assert done.code == code
    last = done.stderr.decode().splitlines()[-1]
    assert last.startswith("lostflops: no summary: ")
    assert last.endswith(f"The recording is kept; to read it: lostflops ingest {run / FOLDER} -o {run}")


def test_a_command_that_dies_of_a_signal_is_told_from_one_that_exits(tmp_path: Path) -> None:
    done = finish([*run_words(tmp_path / "run"), "sh", "-c", "kill -ABRT $$"])
    assert done.code == -signal.SIGABRT


def test_where_nobody_hears_of_children_the_end_of_the_command_is_noticed(tmp_path: Path) -> None:
    ignores = (
        "import os, signal, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN); os.execv(sys.argv[1], sys.argv[1:])"
    )
    done = finish([PYTHON, "-c", ignores, *run_words(tmp_path / "run"), "sh", "-c", "exit 3"])
    assert done.code == 3


OTHER = "import os; print('mine', os.getpid() > 0, flush=True)"


@pytest.mark.parametrize("body", [OTHER, f"{OTHER}\nraise RuntimeError('broken')", "import no_such_module"])
def test_the_users_own_sitecustomize_runs_once(tmp_path: Path, body: str) -> None:
    (tmp_path / "sitecustomize.py").write_text(body)
    (tmp_path / "second").mkdir()
    path = os.pathsep.join([str(tmp_path), "", str(tmp_path / "second")])
    words = [PYTHON, "-c", "import sys; print(sys.path); print('sitecustomize' in sys.modules)"]
    environment = plain_environment(PYTHONPATH=path)
    assert_same(words, environment, tmp_path)


SEEN = """
import importlib.util, sys
{before}
import torch
print(sys.path, type(torch.__spec__.loader), vars(torch.__spec__.loader))
print([type(finder) for finder in sys.meta_path if "Torch" in str(finder)])
print("lostflops.collect.attach" in sys.modules, file=sys.stderr)
"""


@pytest.mark.parametrize(
    "before",
    [
        "",
        "importlib.util.find_spec('torch')",
        pytest.param("import importlib.metadata; importlib.metadata.version('torch')", marks=pytest.mark.slow),
    ],
)
@pytest.mark.few(1)
def test_torch_looks_as_it_does_unrecorded(tmp_path: Path, before: str) -> None:
    """Also where a program asks first whether torch is there, as many libraries do."""
    pytest.importorskip("torch")
    words = [PYTHON, "-c", SEEN.format(before=before)]
    plain, ours = finish(words), finish(words, recorded(tmp_path))
    assert ours.stdout == plain.stdout
    assert (plain.stderr, ours.stderr) == (b"False\n", b"True\n")


def assert_same(words: list[str], environment: dict[str, str], tmp_path: Path) -> None:
    plain, ours = finish(words, environment), finish(words, recorded(tmp_path / "capture", environment))
    assert (ours.code, ours.stdout, ours.stderr) == (plain.code, plain.stdout, plain.stderr)


def test_a_command_without_torch_starts_as_fast(tmp_path: Path) -> None:
    words = [PYTHON, "-c", "import sys; print(len([name for name in sys.modules if 'lostflops' in name]))"]
    assert finish(words, recorded(tmp_path)).stdout == b"0\n"


SPAWNS = """
import os, sys
import torch
import torch.multiprocessing as mp

def work(rank, words):
    net = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for _ in range(5):
        net(torch.ones(1, 2)).sum().backward()
        optimizer.step()
    print(words, rank, flush=True)

if __name__ == "__main__":
    if "RANK" in os.environ:
        work(int(os.environ["RANK"]), "torchrun")
    else:
        mp.spawn(work, ("spawned",), nprocs=2)
    sys.exit(3 if "RANK" not in os.environ else 0)
"""


@pytest.mark.slow
@pytest.mark.parametrize("launcher", [[], ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]])
def test_launchers_say_and_return_the_same(tmp_path: Path, launcher: list[str]) -> None:
    pytest.importorskip("torch")
    (tmp_path / "job.py").write_text(SPAWNS)
    words = [PYTHON, *launcher, str(tmp_path / "job.py")]
    plain, ours = finish(words), finish([*run_words(tmp_path / "run"), *words])
    assert ours.code == plain.code
    assert sorted(ours.stdout.splitlines()) == sorted(plain.stdout.splitlines())
    assert len(records(tmp_path / "run" / "capture", "session")) == 2


def test_a_thread_of_another_library_may_take_the_signal_of_the_end() -> None:
    done = threading.Event()
    threading.Thread(target=done.wait, args=(30,), daemon=True).start()
    try:
        statuses = [run_command(["/bin/sh", "-c", "exit 3"], dict(os.environ), lambda: None) for _ in range(5)]
    finally:
        done.set()
    assert [os.waitstatus_to_exitcode(status) for status in statuses] == [3] * 5
