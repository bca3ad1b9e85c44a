"""Processes that a process has started: their memory and their use of the CPU, from /proc."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

HAS_PROC = Path("/proc/self/stat").exists()


def pids_of(root: int) -> list[int]:
    """Return the process and all that descend from it."""
    found = [root]
    for pid in found:
        with suppress(OSError):  # it has ended meanwhile
            for tasks in Path(f"/proc/{pid}/task").glob("*/children"):
                found += map(int, _read(tasks).split())
    return found


def memory_of(root: int) -> int:
    """Return the resident memory of a process and all that descend from it, in bytes."""
    pages = [_read(Path(f"/proc/{pid}/statm")).split()[1:2] for pid in pids_of(root)]
    return sum(int(count) for found in pages for count in found) * os.sysconf("SC_PAGE_SIZE")


def cpu_seconds_of(root: int) -> float:
    ticks = 0
    for pid in pids_of(root):
        fields = _read(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split()
        ticks += sum(map(int, fields[11:13]))
    return ticks / os.sysconf("SC_CLK_TCK")


def is_there(pid: int) -> bool:
    """Return whether a process exists and has not ended."""
    state = _read(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split()
    return bool(state) and state[0] != "Z"


def happens(check: Callable[[], bool], seconds: float) -> bool:
    """Return whether a check comes true in this time."""
    until = time.monotonic() + seconds
    while not (done := check()) and time.monotonic() < until:
        time.sleep(0.02)
    return done


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:  # it has ended meanwhile
        return ""
