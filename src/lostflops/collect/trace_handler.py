"""Trace handler of `torch.profiler` that writes into a run: traces are named like those of the collector's windows."""

from __future__ import annotations

import gzip
import os
import shutil
import warnings
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

from lostflops.collect.capture import FOLDER, trace_file, written_trace


def trace_handler(run: str | os.PathLike[str]) -> Callable[[Any], None]:
    """Return a handler for `torch.profiler.profile(on_trace_ready=...)` that adds each trace to `run` as a window."""
    folder = Path(run).absolute() / FOLDER

    def write(profiler: Any) -> None:
        from lostflops.collect.identity import identity

        try:
            folder.mkdir(parents=True, exist_ok=True)
            _export(profiler, _free(folder, identity()["rank"]))
        except (OSError, RuntimeError) as error:
            warnings.warn(f"lostflops: a trace is lost because it cannot be written to {folder}: {error}", stacklevel=2)

    return write


def _free(folder: Path, rank: int) -> Path:
    window = next(window for window in count() if written_trace(folder, rank, window) is None)
    return trace_file(folder, rank, window)


def _export(profiler: Any, target: Path) -> None:
    """Write a trace so that it appears in one step, as readers of the folder expect."""
    raw, packed = target.with_name(f".{target.name}.json"), target.with_name(f".{target.name}.new")
    try:
        profiler.export_chrome_trace(str(raw))
        with raw.open("rb") as source, gzip.open(packed, "wb", compresslevel=4) as file:
            shutil.copyfileobj(source, file, 1 << 20)
        packed.replace(target)
    finally:
        raw.unlink(missing_ok=True)
        packed.unlink(missing_ok=True)
