"""How processes of a job began and ended, as far as one of them can know: times, and the error or signal of the end.

A process knows when it began, and the error that ends it. Its launcher knows the exit codes and signals of processes
that could not say anything themselves, and `lostflops run` knows those of the command. These two add what they know to
the capture of the ranks concerned, after those have ended.

Only the type of an error and the lines that it passed through are kept: its message may contain anything.
"""

from __future__ import annotations

import fcntl
import os
import re
import socket
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Final

from lostflops.collect.capture import BEGAN, COMMAND, FAILED, SUFFIX, Frame, FrameReader, frame_bytes
from lostflops.collect.sampler import label, place

_LINE: Final = re.compile(r'^  File "(?P<file>[^"\n]+)", line (?P<line>\d+), in (?P<function>\S+)', re.MULTILINE)
_IN_A_WORKER: Final = "\nOriginal Traceback (most recent call last):\n"
_ERROR: Final = re.compile(r"^(?:\w+\.)*(?P<type>[A-Za-z_]\w*)(?::|$)", re.MULTILINE)
_DEEPEST: Final = 200
_END: Final = 4 << 20
"""Bytes at each end of a large file: the first have the process, the last the number of its records."""


def process_start() -> int | None:
    """Return when this process started, as Unix time in ns, exact to a clock tick; None if the kernel does not tell."""
    try:
        ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
        running = time.clock_gettime_ns(time.CLOCK_BOOTTIME) - ticks * 1_000_000_000 // os.sysconf("SC_CLK_TCK")
        return time.time_ns() - running
    except (OSError, ValueError, IndexError, AttributeError):
        return None


def describe_error(error: BaseException | None) -> dict[str, Any]:
    """Return the type of an error and its stack, outermost frame first, as in samples; both None without an error."""
    if error is None:
        return {"error": None, "stack": None}
    kind = type(error)
    name = kind.__name__ if kind.__name__[:1].isupper() else f"{kind.__module__}.{kind.__name__}"
    # A loader raises the error of its worker again, with the worker's traceback in the message.
    stack = _parse_traceback(str(error))["stack"] if _IN_A_WORKER in str(error) else None
    return {"error": name, "stack": stack or ";".join(_frames(error.__traceback__)) or None}


def _frames(trace: TracebackType | None) -> list[str]:
    found: list[str] = []
    while trace is not None:
        function, _, where = label(trace.tb_frame).partition(" ")
        found.append(f"{function} {where.rpartition(':')[0]}:{trace.tb_lineno}")
        trace = trace.tb_next
    return found[-_DEEPEST:]


def uncaught(earlier: int = 0) -> BaseException | None:
    """Return the error that ends this program; an error whose identity is `earlier` existed before."""
    error = sys.exc_info()[1] or getattr(sys, "last_value", None)
    return None if error is None or id(error) == earlier else error


def uncaught_at_exit(earlier: int = 0) -> BaseException | None:
    """Return the error that ended this program, when its exit functions run. Where people type, errors end nothing."""
    is_typed = hasattr(sys, "ps1") or "IPython" in sys.modules
    return None if is_typed else uncaught(earlier)


def failures(error: BaseException | None) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield what the error of a launcher says of its processes: their ids, and how each ended."""
    found = getattr(error, "failures", None)
    if isinstance(found, Mapping):  # torchrun, accelerate
        for one in found.values():
            yield one.pid, {**_status(one.exitcode), "error": None, "stack": None}
    elif (process := getattr(error, "error_pid", None)) is not None:  # torch.multiprocessing.spawn
        yield process, {**_status(getattr(error, "exit_code", 1)), **_parse_traceback(str(error))}


def _status(code: int) -> dict[str, Any]:
    return {"wall": time.time_ns(), "exit_code": code if code >= 0 else None, "signal": -code if code < 0 else None}


def _parse_traceback(text: str) -> dict[str, Any]:
    """Return type and stack of an error from its printed traceback; the last one in the text counts. What follows its
    type is its message, of which nothing is kept."""
    lines = [*_LINE.finditer(text)]
    types = [*_ERROR.finditer(text, lines[-1].end())] if lines else []
    stack = ";".join(f"{one['function']} {place(one['file'])}:{one['line']}" for one in lines[-_DEEPEST:])
    return {"error": types[0]["type"] if types else None, "stack": stack or None}


@dataclass(slots=True)
class _LastProcess:
    """The newest process in the file of a rank."""

    path: Path
    rank: int
    name: str
    records: int = 0
    process: int | None = None
    host: str | None = None
    command: int | None = None
    """When its command was started."""

    def take(self, record: object) -> None:
        match record:
            case {"kind": "session", "pid": int(process), "host": str(host)}:
                self.process, self.host = process, host
            case {"kind": "job", "key": key, "value": {"command": int(start)}} if key == BEGAN:
                self.command = start


def tell_of_failures(folder: Path, error: BaseException | None, command: int | None = None) -> None:
    """Add to the capture of each process of this host that a launcher's error names how it ended; if the error names
    none, but a signal, then that one ended them all."""
    by_process = dict(failures(error))
    received = getattr(error, "sigval", None)
    if not by_process and received is None:
        return
    for one in _last_processes(folder, command):
        if one.host != socket.gethostname():
            continue
        if one.process in by_process:
            _append(one, FAILED, by_process[one.process])
        elif received is not None:
            _append(one, FAILED, {**_status(-int(received)), "error": None, "stack": None})


def tell_of_command(folder: Path, value: Mapping[str, Any]) -> None:
    """Add to the capture of all ranks of a command when it began and ended, and with what status."""
    for one in _last_processes(folder, value.get("start")):
        _append(one, COMMAND, value)


def _last_processes(folder: Path, command: int | None) -> Iterator[_LastProcess]:
    """Yield the newest process of each rank, if this command started it and it has ended."""
    for path in sorted(folder.rglob(f"rank-*{SUFFIX}")):
        with suppress(OSError):
            found = _last_process(path)
            if found is not None and found.command == command:
                yield found


def _last_process(path: Path) -> _LastProcess | None:
    """Return the newest process of a rank; None if it still writes, which its lock shows. Of a large file only both
    ends are read."""
    newest: _LastProcess | None = None
    with path.open("rb") as file:
        if _is_locked(path):
            return None
        for frame in _read_ends(file):
            if newest is None or newest.name != frame.session:
                newest = _LastProcess(path, frame.rank, frame.session)
            newest.records = max(newest.records, frame.first + len(frame.records))
            for record in frame.records:
                newest.take(record)
    return newest


def _is_locked(path: Path) -> bool:
    with path.open("ab") as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            return True
        except OSError:  # a file system without locks
            return False
    return False


def _read_ends(file: BinaryIO) -> Iterator[Frame]:
    reader = FrameReader()
    size = file.seek(0, os.SEEK_END)
    for start, stop in [(0, size)] if size <= 2 * _END else [(0, _END), (size - _END, size)]:
        file.seek(start)
        yield from reader.feed(file.read(stop - start))
    yield from reader.finish()  # a torn frame at the end hides nothing that comes after it


def _append(process: _LastProcess, key: str, value: Mapping[str, Any]) -> None:
    record = {"kind": "job", "key": key, "value": dict(value)}
    with suppress(OSError), process.path.open("ab") as file:
        file.write(frame_bytes(process.rank, process.name, process.records, 0, [record]))
