"""How a worker process ended, as far as it was observed: by a signal, with an exit code, or without memory."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Final

from lostflops.core.units import format_bytes

_CGROUPS: Final = Path("/sys/fs/cgroup")
_OWN_CGROUP: Final = Path("/proc/self/cgroup")
_VMSTAT: Final = Path("/proc/vmstat")
_NEAR: Final = 0.8
"""Share of the memory limit from which a killed process is taken to have reached it."""


def describe_death(code: int, peak: int, kills_before: int, kills_after: int) -> str:
    """Return how a process ended: `code` as of `subprocess`, `peak` is its largest memory in bytes, 0 if unknown.

    >>> describe_death(7, 0, 0, 0), describe_death(-11, 0, 0, 0)
    ('exit code 7', 'killed by SIGSEGV')
    >>> describe_death(-9, 3 << 30, 4, 5)
    'killed by SIGKILL when the kernel was out of memory, after using 3.22 GB'
    """
    if code >= 0:
        return f"exit code {code}"
    number = -code
    name = signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
    used = f", after using {format_bytes(peak)}" if peak else ""
    if number == signal.SIGKILL and kills_after > kills_before:
        return f"killed by {name} when the kernel was out of memory{used}"
    limit = memory_limit()
    if number == signal.SIGKILL and limit and peak >= _NEAR * limit:
        return f"killed by {name}{used} of {format_bytes(limit)}: out of memory"
    return f"killed by {name}"


def count_memory_kills() -> int:
    """Return how many processes the kernel has killed for lack of memory: in this container and on this machine."""
    events = [_read_field(folder / "memory.events", "oom_kill") for folder in _own_cgroups()]
    return max(events, default=0) + _read_field(_VMSTAT, "oom_kill")


def memory_limit() -> int:
    """Return the memory that processes of this container may use, in bytes; 0 if unknown."""
    limits = [_read_number(folder / "memory.max") for folder in _own_cgroups()]
    limits.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    return min((limit for limit in limits if limit > 0), default=0)


def _own_cgroups() -> list[Path]:
    """Return the control groups (version 2) of this process, from its own to the root."""
    try:
        lines = _OWN_CGROUP.read_text().splitlines()
    except OSError:
        return []
    own = next((line.removeprefix("0::") for line in lines if line.startswith("0::")), None)
    if own is None:
        return []
    folder = _CGROUPS / own.lstrip("/")
    return [one for one in (folder, *folder.parents) if one == _CGROUPS or _CGROUPS in one.parents]


def _read_field(path: Path, name: str) -> int:
    try:
        fields = dict(line.split(maxsplit=1) for line in path.read_text().splitlines() if " " in line)
        return int(fields.get(name, "0"))
    except (OSError, ValueError):
        return 0


def _read_number(path: Path) -> int:
    try:
        return int(path.read_text())
    except (OSError, ValueError):  # `max` is no limit
        return 0
