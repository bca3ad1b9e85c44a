"""A folder in memory for the files of one input: most readers open a path."""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import tempfile
from pathlib import Path
from typing import Final

MEMORY: Final = "/dev/shm" if Path("/dev/shm").is_dir() else None


@functools.cache
def scratch() -> Path:
    """Return a folder of this process, which is removed when it ends."""
    folder = Path(tempfile.mkdtemp(prefix="lostflops-fuzz-", dir=os.environ.get("TMPDIR", MEMORY)))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def written(data: bytes, name: str) -> Path:
    path = scratch() / name
    path.write_bytes(data)
    return path
