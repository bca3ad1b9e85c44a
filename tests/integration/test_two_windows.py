"""A job that was profiled twice: what its run says is what the runs of both windows say together."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

import pytest

from lostflops.account.ledger.accounts import RankLedger
from lostflops.account.ledger.answers import ledgers
from lostflops.account.ledger.scope import scope
from lostflops.account.ledger.windows import WindowKind
from lostflops.ingest import ingest
from lostflops.predict.graph.build import build
from lostflops.predict.graph.replay import replay
from lostflops.store.run import Run

ROOT = Path(__file__).parents[2]
WINDOWS = {"first": "w0000", "second": "w5001"}
"""What the collector calls them."""
FIRST, SECOND = (6, 7, 8), (14, 15, 16)

pytestmark = [
    pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed"),
    pytest.mark.slow,
]


def lostflops(*words: str) -> str:
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1", "KINETO_LOG_LEVEL": "99"}
    done = subprocess.run(
        [sys.executable, "-m", "lostflops", *words],
        env=environment, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A run with both windows of a real job, and a run of each."""
    folder = tmp_path_factory.mktemp("two")
    job = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    train = [str(ROOT / "clinic/jobs/train.py"), "--steps", "18"]
    both = folder / "both"
    lostflops("run", "-o", str(both), "--steps", "6:3", "--repeat", "8", "--", *job, *train)
    found = {"both": both}
    for name, window in WINDOWS.items():
        capture = folder / name / "capture"
        capture.mkdir(parents=True)
        for path in (both / "capture").iterdir():
            if path.suffix == ".capture" or f".{window}." in path.name:
                shutil.copy(path, capture)
        ingest([capture], folder / name, workers=1)
        found[name] = folder / name
    return found


def accounts(run: Path, kind: WindowKind) -> list[RankLedger]:
    with Run.open(run) as opened:
        return list(ledgers(opened, scope(opened, kind)))


def known(lines: Mapping[str, int]) -> Counter[str]:
    """Lines with wait and transfer together: where they part depends on how far clocks can be trusted, which all that
    was recorded tells."""
    counted = Counter({line: ns for line, ns in lines.items() if ns and line not in ("comm.wait", "comm.transfer")})
    return counted + Counter(comm=lines["comm.wait"] + lines["comm.transfer"])


def test_both_windows_are_in_the_run(runs: dict[str, Path]) -> None:
    with Run.open(runs["both"]) as run:
        steps = run.sql("select rank, list(step order by start) from steps group by rank order by rank").fetchall()
        assert steps == [(rank, [*FIRST, *SECOND]) for rank in range(2)]
        assert run.sql("select count(*) - count(distinct (rank, event)) from events").fetchall() == [(0,)]
        # Threads are the same in both.
        identity = "rank, kind, process, thread, device, stream"
        assert run.sql(f"select count(*) - count(distinct ({identity})) from lanes").fetchall() == [(0,)]
        unnumbered = "select count(*) from collectives where seq is null or group_id is null"
        assert run.sql(unnumbered).fetchall() == [(0,)]


@pytest.mark.parametrize("kind", list(WindowKind))
def test_the_ledger_is_that_of_both_windows_together(runs: dict[str, Path], kind: WindowKind) -> None:
    both, first, second = (accounts(runs[name], kind) for name in ("both", "first", "second"))
    for joined, one, other in zip(both, first, second, strict=True):
        assert joined.window.number == one.window.number + other.window.number
        assert list(map(known, joined.steps)) == list(map(known, one.steps + other.steps))
        assert known(joined.lines) == known(one.lines) + known(other.lines)
        assert joined.window.wall == one.window.wall + other.window.wall > 0


def test_the_replay_takes_as_long_as_both(runs: dict[str, Path]) -> None:
    times: dict[str, dict[tuple[int, int], int]] = {}
    for name, path in runs.items():
        with Run.open(path) as run:
            done = replay(build(run))
        steps = done.graph.steps
        keys = zip(steps.rank.tolist(), steps.number.tolist(), strict=True)
        times[name] = dict(zip(keys, done.step_times.tolist(), strict=True))
        assert done.mean_step == pytest.approx(float(steps.measured.mean()), rel=0.02)
    for key, took in (times["first"] | times["second"]).items():
        assert times["both"][key] == pytest.approx(took, rel=0.02)


@pytest.mark.slow
@pytest.mark.parametrize(
    "verb", ["report", "diagnose", "steps", "path", "memory", "whatif --all", "ranks", "info", "report --window trace"]
)
def test_every_question_has_an_answer(runs: dict[str, Path], verb: str) -> None:
    name, *options = verb.split()
    assert lostflops(name, str(runs["both"]), *options)


@pytest.mark.slow
def test_it_is_exported(runs: dict[str, Path], tmp_path: Path) -> None:
    lostflops("export", str(runs["both"]), "--perfetto", str(tmp_path / "trace.pftrace"))
    assert (tmp_path / "trace.pftrace").stat().st_size > 10_000
