"""Identity of this process in its job: from the process group if there is one, else from variables of launchers."""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from lostflops.collect.accelerator import accelerator, module_of


def identity() -> dict[str, Any]:
    is_member = dist.is_available() and dist.is_initialized()
    rank = dist.get_rank() if is_member else _number("RANK", 0)
    device, device_name, device_memory = _device()
    return {
        "rank": rank,
        "world_size": dist.get_world_size() if is_member else _number("WORLD_SIZE", 1),
        "local_rank": _number("LOCAL_RANK", 0 if "RANK" in os.environ else rank),
        "local_world_size": _number("LOCAL_WORLD_SIZE", None),
        "restart": _number("TORCHELASTIC_RESTART_COUNT", 0),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "backend": dist.get_backend() if is_member else None,
        "device": device,
        "device_name": device_name,
        "device_memory": device_memory,
        "script": Path(sys.argv[0]).name if sys.argv else None,
    }


def _number(name: str, default: int | None) -> Any:
    text = os.environ.get(name, "")
    return int(text) if text.isdigit() else default


def _device() -> tuple[str, str | None, int | None]:
    """Return the kind, name and total memory of the current device, in bytes; None for what torch does not know."""
    kind = accelerator()
    module = module_of(kind)
    name, properties = (getattr(module, ask, None) for ask in ("get_device_name", "get_device_properties"))
    memory = None
    if properties is not None:
        memory = getattr(properties(module.current_device()), "total_memory", None)
    return kind or "cpu", name() if name is not None else None, memory
