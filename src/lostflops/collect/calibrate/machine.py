"""Identity and description of this host."""

from __future__ import annotations

import socket
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from lostflops.core.resources import count_cores, total_memory

_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")
_NETWORK: Final = Path("/proc/self/ns/net")


def place() -> str:
    """Return a text that is the same for ranks that share a host name, a kernel and a network, and for no others."""
    inode = ""
    with suppress(OSError):
        inode = str(_NETWORK.stat().st_ino)
    return " ".join((socket.gethostname(), _text(_BOOT).strip(), inode))


def describe() -> dict[str, Any]:
    return {"host": socket.gethostname(), "cpu": _cpu(), "cores": count_cores(), "memory": total_memory()}


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
