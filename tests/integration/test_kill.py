"""`kill -9` and Ctrl-C at any moment of an ingest: the run is the old one or the new one, and nothing is left over.

200 kills: pytest -m slow tests/integration/test_kill.py
"""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from lostflops.ingest import ingest
from tests.integration import kill_harness
from tests.integration.kill_harness import Scene, living, wait_for, write_trace

SCENES = pytest.mark.parametrize("make", [kill_harness.new_run, kill_harness.existing_run], ids=["new", "existing"])
LONG = 60_000
"""Events that take a few seconds to ingest."""


@pytest.mark.parametrize(
    ("make", "kills"),
    [
        pytest.param(kill_harness.existing_run, 6, marks=pytest.mark.slow),
        pytest.param(kill_harness.existing_run, 100, marks=pytest.mark.slow),
        pytest.param(kill_harness.new_run, 100, marks=pytest.mark.slow),
    ],
)
def test_killed_at_random_moments(make: Callable[[Path], Scene], kills: int, tmp_path: Path) -> None:
    tally = kill_harness.kill_at_random(make(tmp_path), kills)
    assert tally.broken == []
    assert tally.ends.total() == kills
    assert tally.ends["old"] > 0


@pytest.mark.parametrize(
    "make",
    [pytest.param(kill_harness.new_run, marks=pytest.mark.slow), kill_harness.existing_run],
    ids=["new", "existing"],
)
def test_killed_before_the_last_file_operations(make: Callable[[Path], Scene], tmp_path: Path) -> None:
    """The commit is among them."""
    scene = make(tmp_path)
    count = kill_harness.count_operations(scene, workers=1)
    tally = kill_harness.kill_before_operations(scene, range(max(0, count - 8), count))
    assert tally.broken == []
    assert set(tally.ends) == {"old", "new"}


@pytest.mark.slow
@SCENES
def test_killed_before_every_file_operation(make: Callable[[Path], Scene], tmp_path: Path) -> None:
    scene = make(tmp_path)
    count = kill_harness.count_operations(scene, workers=1)
    assert kill_harness.kill_before_operations(scene, range(count)).broken == []


@pytest.fixture(scope="module")
def long_sources(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    folder = tmp_path_factory.mktemp("traces")
    return tuple(str(write_trace(folder / f"r{rank}.json", rank, LONG)) for rank in range(8))


def test_workers_end_with_their_parent(long_sources: tuple[str, ...], tmp_path: Path) -> None:
    scene = Scene(tmp_path, long_sources, None, None, None)
    with scene.start(workers=2) as process:
        assert wait_for(lambda: len(living(process.pid)) == 3, 20)
        process.kill()
    try:
        assert wait_for(lambda: not living(process.pid), 10), f"still running: {living(process.pid)}"
    finally:
        for left in living(process.pid):
            os.kill(left, signal.SIGKILL)


@pytest.mark.parametrize("existed", [False, True], ids=["no folder before", "a run before"])
@pytest.mark.parametrize("seconds", [0.0, 0.3, 0.8])
def test_ctrl_c_leaves_nothing(long_sources: tuple[str, ...], tmp_path: Path, existed: bool, seconds: float) -> None:
    """SIGINT goes to the whole group, as a terminal sends it."""
    out, scratch = tmp_path / "run", tmp_path / "scratch"
    scratch.mkdir()
    if existed:
        ingest([write_trace(tmp_path / "before.json", 99, 30)], out, workers=1)
    before, files_before = kill_harness.state(out), _files(out)
    program = "import sys; from lostflops.cli.main import main; main(sys.argv[1:])"
    command = [sys.executable, "-c", program, "ingest", *long_sources, "-o", str(out), "--workers", "2"]
    environment = os.environ | {"PYTHONPATH": kill_harness.SOURCE, "TMPDIR": str(scratch)}
    with subprocess.Popen(
        command, start_new_session=True, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert wait_for(lambda: len(living(process.pid)) == 3, 20)
        wait_for(lambda: False, seconds)
        os.killpg(process.pid, signal.SIGINT)
        _, message = process.communicate(timeout=20)
    assert process.returncode == 130, message.decode()
    assert b"Traceback" not in message
    assert wait_for(lambda: not living(process.pid), 10), f"still running: {living(process.pid)}"
    assert kill_harness.state(out) == before
    assert _files(out) == files_before
    assert out.exists() == existed
    assert list(scratch.iterdir()) == []


def _files(folder: Path) -> set[str]:
    """All but the lock, which stays with a run."""
    return {str(path.relative_to(folder)) for path in folder.rglob("*")} - {".lock"} if folder.exists() else set()
