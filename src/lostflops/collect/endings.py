"""How processes of a job began and ended, as far as one of them can know: times, and the error or signal of the end.

A process knows when it began, and the error that ends it. Its launcher knows the exit codes and signals of processes
that could not say anything themselves, and `lostflops run` knows those of the command. These two add what they know to
the capture of the ranks concerned, after those have ended.

Only the type of an error and the lines that it passed through are kept: its message may contain anything.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from lostflops.collect.capture import COMMAND, FAILED, SUFFIX, FrameReader, frame_bytes
from lostflops.collect.sampler import label, place

_LINE: Final = re.compile(r'^  File "(?P<file>[^"\n]+)", line (?P<line>\d+), in (?P<function>\S+)', re.MULTILINE)
_ERROR: Final = re.compile(r"^(?:\w+\.)*(?P<type>[A-Za-z_]\w*)(?::|$)", re.MULTILINE)
_DEEPEST: Final = 200
_BLOCK: Final = 1 << 20


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
    return {"error": type(error).__name__, "stack": ";".join(_frames(error.__traceback__)) or None}


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
    """Return type and stack of an error from its printed traceback; the last one in the text counts."""
    lines = [*_LINE.finditer(text)]
    types = [*_ERROR.finditer(text, lines[-1].end())] if lines else []
    stack = ";".join(f"{one['function']} {place(one['file'])}:{one['line']}" for one in lines[-_DEEPEST:])
    return {"error": types[-1]["type"] if types else None, "stack": stack or None}


@dataclass(slots=True)
class _LastProcess:
    """The newest process in the file of a rank."""

    path: Path
    rank: int
    name: str
    records: int
    process: int | None


def tell_of_failures(folder: Path, error: BaseException | None) -> None:
    """Add to the capture of each process that a launcher's error names how it ended; if the error names none, but a
    signal, then that one ended them all."""
    by_process = dict(failures(error))
    received = getattr(error, "sigval", None)
    for one in _newest_sessions(folder) if by_process or received is not None else ():
        if one.process in by_process:
            _append(one, FAILED, by_process[one.process])
        elif received is not None:
            _append(one, FAILED, {**_status(-int(received)), "error": None, "stack": None})


def tell_of_command(folder: Path, value: Mapping[str, Any]) -> None:
    """Add to the capture of all ranks in a folder when their command began and ended, and with what status."""
    for one in _newest_sessions(folder):
        _append(one, COMMAND, value)


def _newest_sessions(folder: Path) -> Iterable[_LastProcess]:
    for path in sorted(folder.rglob(f"rank-*{SUFFIX}")):
        newest: _LastProcess | None = None
        reader = FrameReader()
        with path.open("rb") as file:
            while block := file.read(_BLOCK):
                for frame in reader.feed(block):
                    if newest is None or newest.name != frame.session:
                        newest = _LastProcess(path, frame.rank, frame.session, 0, None)
                    newest.records = max(newest.records, frame.first + len(frame.records))
                    records: list[object] = [*frame.records]
                    told = [one for one in records if isinstance(one, dict) and one.get("kind") == "session"]
                    newest.process = told[-1].get("pid") if told else newest.process
        if newest is not None:
            yield newest


def _append(session: _LastProcess, key: str, value: Mapping[str, Any]) -> None:
    frame = frame_bytes(
        session.rank, session.name, session.records, 0, [{"kind": "job", "key": key, "value": dict(value)}]
    )
    with session.path.open("ab") as file:
        file.write(frame)
