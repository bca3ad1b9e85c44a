"""The calibration file."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import torch

from lostflops._version import __version__
from lostflops.collect.calibrate.job import CalibrationJob

SCHEMA: Final = "lostflops.calibration/1"


def facts(job: CalibrationJob, hosts: Sequence[tuple[int, ...]], described: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return all but what was measured; `described` has each rank's host."""
    return {
        "schema": SCHEMA,
        "date": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "lostflops": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "backend": job.backend,
        "nccl": nccl_version() if job.backend == "nccl" else None,
        "device": job.device.type,
        "device_name": device_name(job.device),
        "world_size": job.world,
        "hosts": [{**described[ranks[0]], "ranks": list(ranks)} for ranks in hosts],
    }


def write(document: dict[str, Any], path: Path) -> None:
    """Write all of the document or nothing."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        draft.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def nccl_version() -> str | None:
    try:
        return ".".join(map(str, torch.cuda.nccl.version()))
    except (AttributeError, RuntimeError):
        return None


def device_name(device: Any) -> str | None:
    name = getattr(getattr(torch, device.type, None), "get_device_name", None)
    return str(name(device)) if name is not None else None
