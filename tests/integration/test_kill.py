"""`kill -9`, I/O errors and Ctrl-C at any moment: a run is the old one or the new one, and nothing is left over.

At scale: python tests/integration/fault_matrix.py --kills 10000 --errors 2000 --real 300
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from lostflops.collect.capture import WindowRequest
from lostflops.collect.window_plan import publish
from lostflops.ingest import ingest
from lostflops.predict.costs.calibration import Calibration, write_calibration
from tests.integration import faults, kill_harness
from tests.integration.kill_harness import Scene, living, wait_for, write_trace

LONG = 60_000
"""Events of a rank; eight such ranks take a few seconds to ingest."""
MATRIX = Path(__file__).with_name("fault_matrix.py")
CHEAP = ("manifest", "predictions", "small files", "collector")


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = faults.build(tmp_path_factory.mktemp("library")) if sys.platform == "linux" else None
    return made or pytest.skip("faults need Linux and a C compiler")


@pytest.mark.parametrize(
    ("names", "kills", "errors"),
    [
        (("existing run", *CHEAP), 120, 18),
        pytest.param((), 1500, 800, marks=pytest.mark.slow),
    ],
    ids=["some", "every operation"],
)
def test_faults_at_file_operations(
    library: Path, tmp_path: Path, names: tuple[str, ...], kills: int, errors: int
) -> None:
    """Nothing is broken after a kill or an I/O error, and the faults did hit."""
    if not names:
        pytest.importorskip("moto", reason="moto is not installed")
    words = [word for name in names for word in ("--subject", name)]
    command = [sys.executable, str(MATRIX), "--kills", str(kills), "--errors", str(errors)]
    done = subprocess.run(
        [*command, *words, "--json", str(tmp_path / "faults.json")], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((tmp_path / "faults.json").read_text())
    assert set(names) <= set(found)
    for what, asked in (("kills", kills), ("errors", errors)):
        hits = [sum(own[what]["hits"].values()) for own in found.values()]
        assert min(hits) > 0
        assert asked * 0.9 < sum(hits) < asked * 1.1
    assert all(own["kills"]["was_complete"] for name, own in found.items() if name in CHEAP)


def test_a_small_file_that_cannot_be_written_leaves_no_part(tmp_path: Path) -> None:
    (tmp_path / "cluster.json").mkdir()
    with pytest.raises(OSError, match="directory"):
        write_calibration(Calibration(), tmp_path / "cluster.json")
    (tmp_path / "0001.json").mkdir()
    with pytest.raises(OSError, match="directory"):
        publish(tmp_path / "0001.json", WindowRequest(1, 1, 1))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0001.json", "cluster.json"]


@pytest.mark.slow
@pytest.mark.parametrize("make", [kill_harness.new_run, kill_harness.existing_run], ids=["new", "existing"])
def test_killed_from_outside(make: Callable[[Path], Scene], library: Path, tmp_path: Path) -> None:
    """The ingest has workers, and all of them are killed."""
    scene = make(tmp_path)
    for tally in (kill_harness.kill_at_operations(scene, 20, library), kill_harness.kill_at_random(scene, 20)):
        assert tally.broken == []
        assert tally.ends.total() == 20
        assert tally.ends["old"] > 0


@pytest.fixture(scope="module")
def long_sources(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    folder = tmp_path_factory.mktemp("traces")
    text = write_trace(folder / "r0.json", 0, LONG).read_text()
    for rank in range(1, 8):
        (folder / f"r{rank}.json").write_text(text.replace('"rank": 0', f'"rank": {rank}', 1))
    return tuple(map(str, sorted(folder.iterdir())))


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


@pytest.mark.parametrize(
    ("existed", "seconds"),
    [
        (False, 0.3),
        *(
            pytest.param(existed, seconds, marks=pytest.mark.slow)
            for existed, seconds in ((False, 0.0), (False, 0.8), (True, 0.0), (True, 0.3), (True, 0.8))
        ),
    ],
)
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
