"""Cores and memory of this machine, within the container if there is one."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

_CGROUPS: Final = Path("/sys/fs/cgroup")
_OWN_CGROUP: Final = Path("/proc/self/cgroup")
_VMSTAT: Final = Path("/proc/vmstat")
_MEMINFO: Final = Path("/proc/meminfo")
# Files of control groups, version 2 and version 1.
_LIMITS: Final = ("memory.max", "memory.limit_in_bytes")
_USED: Final = ("memory.current", "memory.usage_in_bytes")
_CACHES: Final = ("inactive_file", "active_file", "slab_reclaimable")


def count_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def total_memory() -> int:
    """Return the bytes that processes of this container may use, whatever is used already."""
    limits = [limit for folder in _own_cgroups() if (limit := _read_first(folder, _LIMITS)) is not None]
    return min([*limits, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")])


def free_memory() -> int | None:
    """Return the bytes that are free, within the container if there is one; None if unknown.

    The kernel counts caches as used by a container, but they make room when it is needed, so they are added.
    """
    kilobytes = _read_field(_MEMINFO, "MemAvailable:")
    free = [] if kilobytes is None else [1024 * kilobytes]
    for folder in _own_cgroups():
        most, used = _read_first(folder, _LIMITS), _read_first(folder, _USED)
        if most is not None and used is not None:
            cached = sum(_read_field(folder / "memory.stat", name) or 0 for name in _CACHES)
            free.append(max(most - used + cached, 0))
    return min(free, default=None)


def count_memory_kills() -> int:
    """Return how many processes the kernel has killed for lack of memory: in this container and on this machine."""
    events = [_read_field(folder / "memory.events", "oom_kill") or 0 for folder in _own_cgroups()]
    return max(events, default=0) + (_read_field(_VMSTAT, "oom_kill") or 0)


def private_memory(process: int | str = "self") -> int:
    """Return the bytes of memory that a process uses now and shares with no other; 0 if it has ended or is unknown.

    Pages of files are not counted: the kernel takes them back when it needs room.
    """
    try:
        _, resident, shared, *_ = Path(f"/proc/{process}/statm").read_text().split()
    except (OSError, ValueError):
        return 0
    return (int(resident) - int(shared)) * os.sysconf("SC_PAGE_SIZE")


def _own_cgroups() -> list[Path]:
    """Return the control groups of this process that limit memory, from its own to the root, of both versions."""
    try:
        lines = _OWN_CGROUP.read_text().splitlines()
    except OSError:
        return []
    found: list[Path] = []
    for line in lines:
        _, controllers, own = line.split(":", 2)
        if controllers in ("", "memory"):
            root = _CGROUPS / controllers
            folder = root / own.lstrip("/")
            found += [one for one in (folder, *folder.parents) if one == root or root in one.parents]
    return found


def _read_field(path: Path, name: str) -> int | None:
    with suppress(OSError, ValueError):
        for line in path.read_text().splitlines():
            label, _, value = line.partition(" ")
            if label == name:
                return int(value.split()[0])
    return None


def _read_first(folder: Path, names: tuple[str, ...]) -> int | None:
    for name in names:
        with suppress(OSError, ValueError):  # `max` is no limit
            return int((folder / name).read_text())
    return None
