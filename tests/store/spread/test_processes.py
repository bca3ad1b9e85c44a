"""Workers on this machine."""

from pathlib import Path

import pytest
from tests.collect.test_reduction import TRACE

from lostflops.ingest import ingest


def test_workers_import_nothing_from_where_somebody_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of training scripts has modules called as those of others are."""
    for rank in range(2):
        (tmp_path / f"rank{rank}.json").write_bytes(TRACE.replace(b'"rank": 3', f'"rank": {rank}'.encode()))
    (tmp_path / "queue.py").write_text("raise SystemExit(1)")
    monkeypatch.chdir(tmp_path)
    assert ingest(["rank0.json", "rank1.json"], "run", workers=2).ranks_added == (0, 1)
