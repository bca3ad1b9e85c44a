"""Real traces as runs: each set of files is ingested once, for all tests and workers of a session."""

import fcntl
import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from lostflops.ingest import ingest

RealRun = Callable[..., Path]


def real_runs(factory: pytest.TempPathFactory) -> RealRun:
    """A function from files to the folder of their run."""
    session = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        session = session.parent
    folder = session / "real-runs"
    folder.mkdir(exist_ok=True)

    def run(*sources: Path) -> Path:
        out = folder / hashlib.sha256("\n".join(map(str, sources)).encode()).hexdigest()[:16]
        with out.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not out.exists():
                ingest(list(sources), out, workers=1)
        return out

    return run
