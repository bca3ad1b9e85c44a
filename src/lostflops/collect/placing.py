"""Put a saved trace into its place: a reduced trace under its name, or the trace itself, compressed.

The copy of the job that saved the trace starts this file as a program, with nothing on its path: it imports only the
standard library. It stays small and lets another process (`reducer.py`) reduce the trace. That process may lack
packages, take too long or be killed for memory: the trace is then kept as it is, and the reason is recorded.

`<trace>.lock` is locked meanwhile. Afterwards it is gone, or says what went wrong: that nothing was written, or, after
`KEPT`, why the trace is not reduced. A trace that is written again, as for a moved window, gets a new lock: a process
that holds the old lock gives up.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

KEPT: Final = "kept: "
TRACE, REDUCED = ".json.gz", ".parts"
_REDUCING: Final = 300
"""Seconds after which reducing ends and a trace is kept as it is: the host has no time to spare."""
_LOOK: Final = 0.25
_GRACE: Final = 2
"""Seconds after the end of a job from which on its trace is reduced without giving way."""
_NICE: Final = 10
_ISOLATED: Final = ("-E", "-P")
"""Flags with which Python ignores the job's path, but finds packages in the user's own site folder."""
_LOCK: Final = ".lock"
_CHUNK: Final = 1 << 20
_LONGEST_REASON: Final = 200
_FOLDERS: Final = re.compile(rb"/(?<=[\"; ]/)(?:[^\"/;\n]+/)+(?=[^\"/;\n]+\.py\()")
"""Begins with a literal character: with the condition first, the search is thirty times slower."""
_TRACE_NAME: Final = re.compile(rb'("traceName": ")[^"\n]*/')
_GZIP: Final = 31
_THREADS: Final = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def finish(
    plain: Path,
    trace: Path,
    is_wanted: Callable[[], bool] = lambda: True,
    *,
    reducer: str = "",
    keep_raw: bool = False,
    job: int = 0,
) -> str | None:
    """Put a saved trace into its place, reduced or compressed; raise OSError if that fails.

    `reducer` is the Python that reduces it, giving way to all other processes while the process `job` runs. Returns
    why reducing failed, or None.
    """
    work, part = plain.with_name(f".{plain.name}.work"), plain.with_name(plain.name + ".part")
    try:
        check_whole(plain)
        reduced, reason = _reduce_trace(plain, work, reducer, job) if reducer else (None, None)
        if reduced is None or keep_raw:
            _be_nice(_NICE)
            _compress(plain, part)
        if is_wanted():
            _place(trace, part, reduced)
    finally:
        for left in (plain, part):
            left.unlink(missing_ok=True)
        shutil.rmtree(work, ignore_errors=True)
    return reason


def _place(trace: Path, part: Path, reduced: Path | None) -> None:
    """Move the files into their place; first remove what an earlier attempt left in the other form.

    Both forms of a window describe the same steps.
    """
    reduced_file(trace).unlink(missing_ok=True)
    if part.exists():
        part.replace(trace)
    else:
        trace.unlink(missing_ok=True)
    if reduced is not None:
        reduced.replace(reduced_file(trace))


def plain_file(trace: Path) -> Path:
    return trace.with_suffix("")


def reduced_file(trace: Path) -> Path:
    """Return the path of the reduced form of a trace.

    >>> reduced_file(Path("rank-00003.w0001.json.gz")).name
    'rank-00003.w0001.parts'
    """
    return trace.with_name(trace.name.removesuffix(TRACE) + REDUCED)


def lock_of(trace: Path) -> Path:
    return trace.with_name(trace.name + _LOCK)


def _reduce_trace(plain: Path, work: Path, reducer: str, job: int) -> tuple[Path | None, str | None]:
    """Return the reduced trace, or else the reason why it could not be made."""
    try:
        code, said = _run_reducer(plain, work, reducer, job)
        if code is None:
            _be_nice(_NICE)
            code, said = _run_reducer(plain, work, reducer, 0)
    except subprocess.TimeoutExpired as error:
        return None, f"it took over {error.timeout:.3g} s"
    except OSError as error:
        return None, f"{Path(reducer).name}: {error.strerror}"
    if code == 0:
        return work / "reduced", None
    if code is None or code < 0:
        return None, f"ended by signal {-(code or 0)}"
    return None, next((line for line in reversed(said.split("\n")) if line), "it failed")[:_LONGEST_REASON]


def _run_reducer(plain: Path, work: Path, reducer: str, job: int) -> tuple[int | None, str]:
    """Return the reducer's exit code (None: it was stopped because the job has ended), and what it printed to stderr.

    Without a job it is as nice as the process that started it: other processes of the job, or its next attempt, may
    train.
    """
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    program = Path(__file__).resolve().with_name("reducer.py")
    own = ("-s",) if os.environ.get("PYTHONNOUSERSITE") else ()
    words = [reducer, *_ISOLATED, *own, str(program), str(plain), str(work), *(["idle"] if job else [])]
    environment = {**os.environ, **dict.fromkeys(_THREADS, "1")}
    with subprocess.Popen(words, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        try:
            return _wait_for_exit(process, job)
        finally:
            process.kill()


def _wait_for_exit(process: subprocess.Popen[bytes], job: int) -> tuple[int | None, str]:
    begun = alone = time.monotonic()
    longest = _most_reducing()
    while True:
        with suppress(subprocess.TimeoutExpired):
            said = process.communicate(timeout=_LOOK)[1]
            return process.returncode, said.decode(errors="replace")
        now = time.monotonic()
        if now - begun > longest:
            raise subprocess.TimeoutExpired(process.args, longest)
        if not job or _lives(job):
            alone = now
        elif now - alone > _GRACE:
            return None, ""


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _most_reducing() -> float:
    """Return the most seconds for reducing: half of the time that is left, so that the trace can still be kept."""
    left = signal.getitimer(signal.ITIMER_REAL)[0]
    return min(_REDUCING, left / 2) if left else _REDUCING


def check_whole(plain: Path) -> None:
    with plain.open("rb") as file:
        file.seek(max(0, plain.stat().st_size - 16))
        if not file.read().rstrip().endswith(b"}"):
            raise OSError("the trace was cut short; the disk may be full")


def _compress(plain: Path, part: Path) -> None:
    packer = zlib.compressobj(1, zlib.DEFLATED, _GZIP)
    with plain.open("rb") as source, part.open("wb") as target:
        for lines in clean_blocks(iter(partial(source.read, _CHUNK), b"")):
            target.write(packer.compress(lines))
        target.write(packer.flush())


def clean_blocks(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the blocks without folders, each cut after the end of a line.

    >>> list(clean_blocks(iter([b'1\\n"/a/', b'b.py(3): f"\\n', b'2'])))
    [b'1\\n', b'"b.py(3): f"\\n', b'2']
    """
    rest = b""
    for block in blocks:
        lines, line_end, begun = block.rpartition(b"\n")
        if line_end:
            yield without_folders(rest + lines + line_end)
            rest = begun
        else:
            rest += begun
    if rest:
        yield without_folders(rest)


def without_folders(text: bytes) -> bytes:
    """Return a trace's text with names of files alone, without their folders: source files, and the trace itself.

    >>> without_folders(b'"name": "/home/me/secret/train.py(12): main"')
    b'"name": "train.py(12): main"'
    >>> without_folders(b'"traceName": "/home/me/run/capture/x.json"')
    b'"traceName": "x.json"'
    """
    return _FOLDERS.sub(b"", _TRACE_NAME.sub(rb"\1", text))


def _be_nice(how: int) -> None:
    """Set how nice our session is, if this process leads it.

    A session may have a share of the processor of its own (autogroups); a reducer makes it smaller for the whole
    session.
    """
    if os.getsid(0) == os.getpid():
        with suppress(OSError):
            Path("/proc/self/autogroup").write_text(str(how))


def _is_last(trace: Path, lock: int) -> bool:
    """Return whether no other process has begun to write the trace again."""
    try:
        return os.path.samestat(lock_of(trace).stat(), os.fstat(lock))
    except FileNotFoundError:
        return False


def main(arguments: list[Any]) -> None:
    plain, trace, lock = Path(arguments[0]), Path(arguments[1]), int(arguments[2])
    reducer, keep_raw, job = arguments[3], arguments[4], int(arguments[5])
    is_last = partial(_is_last, trace, lock)
    _be_nice(_NICE)
    try:
        reason = finish(plain, trace, is_last, reducer=reducer, keep_raw=bool(keep_raw), job=job)
        if reason is not None:
            os.write(lock, f"{KEPT}{reason}".encode())
        elif is_last():
            lock_of(trace).unlink(missing_ok=True)
    except OSError as error:
        os.write(lock, (error.strerror or str(error)).encode())


if __name__ == "__main__":
    main(sys.argv[1:])
