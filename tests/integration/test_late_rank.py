"""Every verb names the rank that holds up a barrier, with the same number: comparable tools print four equal steps."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zlib
from base64 import b64decode
from pathlib import Path

import pytest

import lostflops
from lostflops.core.units import format_ns
from tests.integration import late_job

pytest.importorskip("torch")

_SAYS = re.compile(r"Rank (\d+) is late by ([\d.]+ m?s) per step")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("late")
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "4", str(late_job.__file__)]
    _lostflops(folder, "run", "-o", "run", "--steps", "30:8", "--", *torchrun)
    return folder / "run"


def _lostflops(folder: Path, *arguments: str) -> str:
    command = [sys.executable, "-m", "lostflops", *arguments]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(lostflops.__file__).parents[1])}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return " ".join(done.stdout.split())


def _data_of(page: str) -> str:
    """Return the data of a page, which is deflated and in base64."""
    found = (zlib.decompress(b64decode(text)) for text in re.findall(r">\s*(eJ[\w+/]{100,}=*)", page))
    return " ".join(one.decode(errors="replace") for one in found)


def test_every_verb_names_the_rank_with_one_number(run: Path) -> None:
    said = {
        verb: _SAYS.findall(_lostflops(run.parent, *verb.split()))
        for verb in ("ranks run", "ranks run --by-step", "report run", "diagnose run", "watch run --once")
    }
    _lostflops(run.parent, "open", "run", "--no-browser", "--out", "page.html")
    said["page"] = _SAYS.findall(_data_of((run.parent / "page.html").read_text()))
    assert all(said.values()), said
    (named,) = {one for found in said.values() for one in found}
    rank, by = named
    assert int(rank) == late_job.LATE
    delay = round(late_job.DELAY * 1e9)
    assert by in {format_ns(delay + ms * 1_000_000) for ms in range(-10, 60)}
