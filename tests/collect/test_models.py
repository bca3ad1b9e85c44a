"""Hooks on a model leave no trace in its copies, files and graphs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.collect.jobs import PYTHON, finish, plain_environment, recorded, records

pytest.importorskip("torch")

ROOT = Path(__file__).resolve().parents[2]
LOADS = """
import sys, torch
class Never:
    def find_spec(self, name, *_):
        assert not name.startswith("lostflops"), name
sys.meta_path.insert(0, Never())
for name in sys.argv[1:]:
    net = torch.load(name, weights_only=False)
    net(torch.ones(3, 8)).sum().backward()
"""


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    plain, ours = tmp_path_factory.mktemp("plain"), tmp_path_factory.mktemp("ours")
    words = [PYTHON, "-m", "tests.collect.saving_job"]
    for out, environment in ((plain, plain_environment()), (ours, recorded(ours / "capture", steps="18:6"))):
        done = finish([*words, str(out)], environment, cwd=ROOT)
        assert done.code == 0, done.stderr.decode()
    return plain, ours


def test_copies_and_graphs_are_as_without_us(jobs: tuple[Path, Path]) -> None:
    """In the middle of a window, with a hook on every module."""
    plain, ours = (json.loads((out / "found").read_text()) for out in jobs)
    assert ours == plain
    assert ours["freed"], "the collector keeps no model alive"


def test_a_saved_model_loads_where_lostflops_is_not(jobs: tuple[Path, Path]) -> None:
    files = [str(jobs[1] / name) for name in ("model.pt", "again.pt")]
    done = finish([PYTHON, "-I", "-c", LOADS, *files])
    assert done.code == 0, done.stderr.decode()
    assert b"lostflops" not in b"".join(Path(file).read_bytes() for file in files)


def test_the_job_was_recorded_meanwhile(jobs: tuple[Path, Path]) -> None:
    assert len(records(jobs[1] / "capture", "step")) == 50
    assert [record["state"] for record in records(jobs[1] / "capture", "window")][:3] == [
        "planned",
        "started",
        "stopped",
    ]
