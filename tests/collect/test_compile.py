"""A compiled program is compiled as it would be without us, and its steps are seen."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.collect.jobs import PYTHON, finish, plain_environment, recorded, records

pytest.importorskip("torch")

from tests.collect import compile_job

QUICK = ("in_place",)


def run_both(folder: Path, name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    plain, ours = folder / "plain", folder / "ours"
    jobs = {plain: plain_environment(), ours: recorded(ours / "capture", steps="20:3")}
    for out in jobs:
        out.mkdir()
    with ThreadPoolExecutor() as pool:
        words = [PYTHON, "-m", "tests.collect.compile_job"]
        done = list(pool.map(lambda out: finish([*words, str(out), name], jobs[out], cwd=ROOT), jobs))
    assert [(one.code, one.stdout) for one in done] == [(0, b"")] * 2, done
    return json.loads((plain / name).read_text()), json.loads((ours / name).read_text())


ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in compile_job.WAYS]
)
def test_no_more_graphs_breaks_or_recompilations(tmp_path: Path, name: str) -> None:
    plain, ours = run_both(tmp_path, name)
    assert ours["losses"] == plain["losses"]
    before, after = plain["counted"], ours["counted"]
    assert after.get("frames", {}).get("total", 0) <= before.get("frames", {}).get("total", 0)
    for kind in ("stats", "graph_break", "recompiles", "aot_autograd", "unimplemented"):
        assert after.get(kind) == before.get(kind), kind
    assert len(records(tmp_path / "ours" / "capture", "step")) >= 45
