"""A window's trace is written by a process that the job does not wait for.

Saving a trace takes seconds and holds the interpreter's lock, so a forked copy of the process does it. In that copy the
other threads are gone, and one of them may have asked for the interpreter's lock: the copy would hand it over and
wait forever. So the copy never returns to Python code: its calls are a chain that runs inside one C call
(`deque(map(call, ...))`), and its last call starts this file as a program, which compresses the trace. It is forked
twice, so that it is no child of the job, keeps no file of the job open, and ends after `LONGEST` seconds at the latest.

`<trace>.lock` is locked as long as a trace is being written; where that failed it stays, with the reason in it. A trace
that is written anew, as a moved window is, gets a new lock: who holds the old one gives up.
"""

from __future__ import annotations

import ctypes
import fcntl
import gc
import os
import re
import signal
import sys
import time
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import takewhile
from operator import call, not_
from pathlib import Path
from typing import Any, Final

LONGEST: Final = 600
_LOCK: Final = ".lock"
_CHUNK: Final = 1 << 20
_FOLDERS: Final = re.compile(rb"(?<=[\"; ])/(?:[^\"/;\n]+/)+(?=[^\"/;\n]+\.py\()")
_TRACE_NAME: Final = re.compile(rb'("traceName": ")[^"\n]*/')
_GZIP: Final = 31


def begin(save: Callable[[bytes], object], trace: Path) -> bool:
    """Have `save(name)` called and its file become `trace`, elsewhere; False if no process could be made.

    `save` is C code that keeps the interpreter's lock. Raises OSError when the folder takes no files.
    """
    if not sys.executable or not Path(__file__).is_file():
        return False
    _lock_of(trace).unlink(missing_ok=True)
    lock = os.open(_lock_of(trace), os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
    nothing = os.open(os.devnull, os.O_RDWR)
    try:
        _lock(lock)
        os.set_inheritable(lock, True)
        return _fork(_calls(save, trace, lock, nothing))
    finally:
        os.close(lock)
        os.close(nothing)


def finish(plain: Path, trace: Path, is_wanted: Callable[[], bool] = lambda: True) -> None:
    """Compress what was saved under its name; OSError says why it could not be."""
    part = plain.with_name(plain.name + ".part")
    try:
        _check_whole(plain)
        _compress(plain, part)
        if is_wanted():
            part.replace(trace)
    finally:
        for left in (plain, part):
            left.unlink(missing_ok=True)


def plain_file(trace: Path) -> Path:
    return trace.with_suffix("")


def is_pending(trace: Path) -> bool:
    """Whether somebody still writes it."""
    try:
        lock = os.open(_lock_of(trace), os.O_RDWR)
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
    """Traces of a capture that are still being written."""
    traces = (file.with_name(file.name.removesuffix(_LOCK)) for file in folder.glob(f"*.json.gz{_LOCK}"))
    return sorted(trace for trace in traces if is_pending(trace))


def failure(trace: Path) -> str | None:
    """Why a trace that is not pending was not written; the lock file goes. None where it was, wherever it is by now."""
    try:
        reason = _lock_of(trace).read_text()
        _lock_of(trace).unlink()
    except OSError:
        return None if trace.parent.is_dir() else "the folder is gone"
    return reason or "the exporting process ended early"


def _calls(save: Callable[[bytes], object], trace: Path, lock: int, nothing: int) -> list[Callable[[], object]]:
    """What the copy does, in order; names are relative to the folder, so that no path stands in the trace."""
    c = ctypes.PyDLL(None)
    plain = f"{plain_file(trace).name}.{os.fstat(lock).st_ino}"
    words = [sys.executable, "-I", "-S", str(Path(__file__).resolve()), plain, trace.name, str(lock)]
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


def _lock_of(trace: Path) -> Path:
    return trace.with_name(trace.name + _LOCK)


def _lock(file: int) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return


def _is_last(trace: Path, lock: int) -> bool:
    """Whether nobody writes the trace anew by now."""
    try:
        return os.path.samestat(_lock_of(trace).stat(), os.fstat(lock))
    except FileNotFoundError:
        return False


def _check_whole(plain: Path) -> None:
    with plain.open("rb") as file:
        file.seek(max(0, plain.stat().st_size - 16))
        if not file.read().rstrip().endswith(b"}"):
            raise OSError("the trace was cut short; the disk may be full")


def _compress(plain: Path, part: Path) -> None:
    packer = zlib.compressobj(1, zlib.DEFLATED, _GZIP)
    with plain.open("rb") as source, part.open("wb") as target:
        while chunk := source.read(_CHUNK):
            target.write(packer.compress(without_folders(chunk + source.readline())))
        target.write(packer.flush())


def without_folders(text: bytes) -> bytes:
    """Source files by their names alone, and the trace's own without its folder.

    >>> without_folders(b'"name": "/home/me/secret/train.py(12): main"')
    b'"name": "train.py(12): main"'
    >>> without_folders(b'"traceName": "/home/me/run/capture/x.json"')
    b'"traceName": "x.json"'
    """
    return _FOLDERS.sub(b"", _TRACE_NAME.sub(rb"\1", text))


def _main(arguments: list[Any]) -> None:
    plain, trace, lock = Path(arguments[0]), Path(arguments[1]), int(arguments[2])
    try:
        finish(plain, trace, partial(_is_last, trace, lock))
        if _is_last(trace, lock):
            _lock_of(trace).unlink(missing_ok=True)
    except OSError as error:
        os.write(lock, (error.strerror or str(error)).encode())


if __name__ == "__main__":
    _main(sys.argv[1:])
