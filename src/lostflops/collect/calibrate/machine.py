"""Identity, description and free memory of this host."""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")
_NETWORK: Final = Path("/proc/self/ns/net")
_CGROUP: Final = Path("/sys/fs/cgroup")


def place() -> str:
    """Return a text that is the same for ranks that share a host name, a kernel and a network, and for no others."""
    inode = ""
    with suppress(OSError):
        inode = str(_NETWORK.stat().st_ino)
    return " ".join((socket.gethostname(), _text(_BOOT).strip(), inode))


def describe() -> dict[str, Any]:
    memory = _meminfo("MemTotal")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {"host": socket.gethostname(), "cpu": _cpu(), "cores": cores, "memory": memory}


def free_memory() -> int | None:
    """Return the bytes that may be used, within the container if there is one; None if unknown.

    A container's cached files are counted as used by the kernel, but can make room, so they are added.
    """
    free = _meminfo("MemAvailable")
    with suppress(ValueError):
        most, used = int(_text(_CGROUP / "memory.max")), int(_text(_CGROUP / "memory.current"))
        files = dict(line.split() for line in _text(_CGROUP / "memory.stat").splitlines()).get("inactive_file", "0")
        left = max(most - used + int(files), 0)
        free = min(free, left) if free is not None else left
    return free


def _meminfo(name: str) -> int | None:
    for line in _text(Path("/proc/meminfo")).splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    return None


def _cpu() -> str | None:
    for line in _text(Path("/proc/cpuinfo")).splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return ""
