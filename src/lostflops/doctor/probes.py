"""Probes of this machine: disk, clocks, cores, limits and the job's interpreter."""

from __future__ import annotations

import ctypes
import os
import resource
import time
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Final

from lostflops.core.resources import count_cores
from lostflops.doctor.interpreter import ask
from lostflops.doctor.machine import Disk, Machine

_CLOCKSOURCE: Final = Path("/sys/devices/system/clocksource/clocksource0/current_clocksource")
_NVIDIA: Final = Path("/proc/driver/nvidia/params")
_MOUNTS: Final = Path("/proc/self/mounts")
_WRITTEN: Final = 4 << 20
_TIMEX_BYTES: Final = 256
_MAX_ERROR, _STATUS = 24, 40
"""Offsets of `maxerror` and `status` in `struct timex`, if a long has 8 bytes."""
_UNSYNCHRONISED: Final = 0x40
_TIME_ERROR: Final = 5


def look(folder: Path, python: str, environment: Mapping[str, str]) -> Machine:
    interpreter, error = ask(python, environment)
    is_synchronised, clock_error = kernel_clock()
    return Machine(
        interpreter=interpreter,
        interpreter_error=error,
        disk=disk(folder),
        environment=environment,
        nvidia_params=_text(_NVIDIA),
        clocksource=(_text(_CLOCKSOURCE) or "").strip() or None,
        clock_step_ns=clock_step(),
        is_synchronised=is_synchronised,
        clock_error_us=clock_error,
        cores=count_cores(),
        load=os.getloadavg()[0],
        open_files=_limit(resource.RLIMIT_NOFILE),
        file_size=_limit(resource.RLIMIT_FSIZE),
    )


def disk(folder: Path) -> Disk:
    """Return the disk of a folder, or of the nearest folder above it that exists."""
    place = folder.resolve()
    while not place.is_dir() and place != place.parent:
        place = place.parent
    error, took = _write(place)
    try:
        state = os.statvfs(place)
        free: int | None = state.f_bavail * state.f_frsize
    except OSError:
        free = None
    return Disk(
        folder=str(place),
        file_system=file_system(place, _text(_MOUNTS) or ""),
        free_bytes=free,
        write_error=error,
        write_ns=took,
        written_bytes=_WRITTEN,
    )


def _write(folder: Path) -> tuple[str, int | None]:
    """Write, sync and remove a small file; return why that failed (empty: it did not) and its time in ns."""
    path = folder / f".lostflops-doctor-{os.getpid()}"
    began = time.perf_counter_ns()
    try:
        with path.open("xb") as file:
            file.write(bytes(_WRITTEN))
            file.flush()
            os.fsync(file.fileno())
        return "", time.perf_counter_ns() - began
    except OSError as error:
        return error.strerror or str(error), None
    finally:
        path.unlink(missing_ok=True)


def file_system(place: Path, mounts: str) -> str | None:
    """Return the type of the file system that holds a place, from the text of /proc/self/mounts; None if unknown.

    >>> file_system(Path("/data/run"), "/dev/sda / ext4 rw 0 0\\nserver:/x /data nfs4 rw 0 0\\n")
    'nfs4'
    """
    found: tuple[int, str] | None = None
    for line in mounts.splitlines():
        _, point, kind, *_ = [*line.split(), "", "", ""]
        mounted = Path(point.replace("\\040", " "))
        if point and place.is_relative_to(mounted) and (found is None or len(mounted.parts) >= found[0]):
            found = (len(mounted.parts), kind)
    return found[1] if found else None


def kernel_clock() -> tuple[bool | None, int | None]:
    """Return whether the kernel's clock follows a time server, and its largest error in us; None if it does not say."""
    if ctypes.sizeof(ctypes.c_long) != 8:
        return None, None
    try:
        buffer = ctypes.create_string_buffer(_TIMEX_BYTES)
        state = ctypes.CDLL(None, use_errno=True).adjtimex(buffer)
    except (AttributeError, OSError):
        return None, None
    if state < 0:
        return None, None
    status = ctypes.c_int.from_buffer(buffer, _STATUS).value
    is_synchronised = state != _TIME_ERROR and not status & _UNSYNCHRONISED
    return is_synchronised, ctypes.c_long.from_buffer(buffer, _MAX_ERROR).value if is_synchronised else None


def clock_step() -> int:
    """Return the smallest step of the wall clock among some readings, in ns."""
    readings = [time.time_ns() for _ in range(2000)]
    steps = [later - earlier for earlier, later in pairwise(readings) if later > earlier]
    return min(steps, default=10**9)


def _limit(which: int) -> int | None:
    soft, _ = resource.getrlimit(which)
    return None if soft == resource.RLIM_INFINITY else soft


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
