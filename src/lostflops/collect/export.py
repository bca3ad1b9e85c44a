"""Write a window's trace in a process that the job does not wait for.

Saving a trace takes seconds and holds the interpreter lock, so a forked copy of the process does it. In that copy the
other threads are gone, and one of them may have asked for the interpreter lock: the copy would hand it over and wait
forever. So the copy never returns to Python code: its calls are a chain that runs inside one C call (`deque(map(call,
...))`), and its last call starts `placing.py` as a program, which reduces or compresses the trace. It is forked twice,
so that it is not a child of the job, keeps no file of the job open, and ends after at most `LONGEST` seconds.
`<trace>.lock` is locked while a trace is being written.
"""

from __future__ import annotations

import ctypes
import fcntl
import gc
import os
import shutil
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from itertools import takewhile
from operator import call, not_
from pathlib import Path
from typing import Any, Final, NamedTuple

from lostflops.collect import placing
from lostflops.collect.placing import KEPT, TRACE, lock_of, plain_file

LONGEST: Final = 600
_ENDED_EARLY: Final = "the process that writes the trace ended early"


class TraceForm(NamedTuple):
    """The form in which a trace is kept."""

    reducer: str = ""
    """The Python that reduces the trace; empty if the trace is kept as it is."""
    keep_raw: bool = False
    """Whether the trace is kept in addition to its reduced form."""


RAW: Final = TraceForm()


class ExportOutcome(NamedTuple):
    is_written: bool
    is_reduced: bool = False
    """Whether the trace was reduced; valid only if a reducer was given."""
    reason: str | None = None


class Missing(NamedTuple):
    """Traces that are missing when their job has ended."""

    late: list[Path]
    """Traces that are still being written."""
    failed: dict[Path, str]
    """Traces that could not be written, each with the reason."""


def begin(save: Callable[[bytes], object], trace: Path, form: TraceForm = RAW) -> bool:
    """Call `save(name)` in another process and turn its file into `trace`; return False if no process could be made.

    `save` is C code that keeps the interpreter's lock. Raises OSError if no file can be made in the folder.
    """
    if not sys.executable or not Path(placing.__file__).is_file():
        return False
    lock_of(trace).unlink(missing_ok=True)
    lock = os.open(lock_of(trace), os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
    nothing = os.open(os.devnull, os.O_RDWR)
    try:
        _lock(lock)
        os.set_inheritable(lock, True)
        return _fork(_calls(save, trace, form, (lock, nothing)))
    finally:
        os.close(lock)
        os.close(nothing)


def is_pending(trace: Path) -> bool:
    """Return whether a process is still writing the trace."""
    try:
        lock = os.open(lock_of(trace), os.O_RDWR)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # a file system without locks
        return not os.fstat(lock).st_size and time.time() - os.fstat(lock).st_mtime < LONGEST
    finally:
        os.close(lock)
    return False


def pending(folder: Path) -> list[Path]:
    """Return the traces of a capture that are still being written."""
    return [trace for trace in _list_begun_traces(folder) if is_pending(trace)]


def missing(folder: Path, carried: Callable[[], Collection[Path]] = tuple) -> Missing:
    """Return the traces that are missing.

    `carried` moves traces elsewhere and returns them: they are not missing, unless they are being written again.
    """
    late = pending(folder)  # first: whoever ends from now on may not be carried
    gone = carried()
    failed = {trace: reason for trace in _list_begun_traces(folder) if (reason := _failure(trace)) is not None}
    return Missing([one for one in late if one not in failed and (one not in gone or is_pending(one))], failed)


def _failure(trace: Path) -> str | None:
    """Return why a trace was not written; None if it is pending, was written, or its rank has reported the reason."""
    if is_pending(trace):
        return None
    try:
        said = lock_of(trace).read_text()
    except FileNotFoundError:  # it was just written
        return None
    return None if said.startswith(KEPT) else said or _ENDED_EARLY


def _list_begun_traces(folder: Path) -> list[Path]:
    return sorted(file.with_suffix("") for file in folder.glob(f"*{lock_of(Path(TRACE)).name}"))


def outcome(trace: Path) -> ExportOutcome:
    """Return what became of a trace that is not pending, wherever it is by now.

    Removes the lock file, and the files that its process left if it was killed.
    """
    try:
        said = lock_of(trace).read_text()
        if not said:
            _remove_unfinished(trace)
        lock_of(trace).unlink()
    except OSError:
        is_there = trace.parent.is_dir()
        return ExportOutcome(is_there, is_reduced=is_there, reason=None if is_there else "the folder is gone")
    if said.startswith(KEPT):
        return ExportOutcome(True, reason=f"not reduced: {said.removeprefix(KEPT)}")
    return ExportOutcome(False, reason=said or _ENDED_EARLY)


def _remove_unfinished(trace: Path) -> None:
    name = f"{plain_file(trace).name}.{lock_of(trace).stat().st_ino}"
    for left in (name, f"{name}.part"):
        trace.with_name(left).unlink(missing_ok=True)
    shutil.rmtree(trace.with_name(f".{name}.work"), ignore_errors=True)


def _calls(
    save: Callable[[bytes], object], trace: Path, form: TraceForm, files: tuple[int, int]
) -> list[Callable[[], object]]:
    """Return the calls that the copy makes, in order; names are relative to the folder, so no path is in the trace."""
    lock, nothing = files
    c = ctypes.PyDLL(None)
    plain = f"{plain_file(trace).name}.{os.fstat(lock).st_ino}"
    program = str(Path(placing.__file__).resolve())
    words = [sys.executable, "-I", "-S", program, plain, trace.name, str(lock), form.reducer, "1" * form.keep_raw]
    words.append(str(os.getpid()))
    arguments = (ctypes.c_char_p * (len(words) + 1))(*map(os.fsencode, words), None)
    kept = {0, 1, 2, lock, nothing}
    return [
        c.setsid,
        partial(c.nice, 10),
        *(partial(c.signal, number, None) for number in (signal.SIGALRM, signal.SIGTERM, signal.SIGINT)),
        partial(c.alarm, LONGEST),
        *(partial(c.dup2, nothing, number) for number in range(3)),
        *(partial(c.close, number) for number in _open_files() - kept),
        partial(c.chdir, os.fsencode(trace.parent.resolve())),
        partial(save, plain.encode()),
        partial(c.execv, os.fsencode(sys.executable), arguments),
        partial(c["_exit"], 1),
    ]


def _fork(calls: list[Callable[[], object]]) -> bool:
    c, parent, collects = ctypes.PyDLL(None), os.getpid(), gc.isenabled()
    work: partial[Any] = partial(deque, _in_turn(calls), 0)
    exporter: partial[Any] = partial(deque, takewhile(not_, _in_turn([c.fork, work])), 0)
    chain = filter(None, _in_turn([c.fork, exporter, partial(c["_exit"], 0)]))
    gc.disable()  # a finalizer is Python code
    try:
        child = next(chain)
    finally:
        if os.getpid() != parent:
            os._exit(1)
        if collects:
            gc.enable()
    if child > 0:
        _reap(child)
    return bool(child > 0)


def _in_turn(calls: Sequence[Callable[[], Any]]) -> Iterator[Any]:
    return map(call, calls)


def _reap(child: int) -> None:
    try:
        os.waitpid(child, 0)
    except ChildProcessError:  # the program reaps all it has, or ignores SIGCHLD
        return


def _open_files() -> set[int]:
    folder = Path("/proc/self/fd")
    return {int(file.name) for file in (folder if folder.is_dir() else Path("/dev/fd")).iterdir()}


def _lock(file: int) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return
