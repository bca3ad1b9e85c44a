"""Work in forked processes whose file operations fail, or kill them, at a chosen operation: see faults.c.

The parent imports everything once and stays without threads, so a fork takes milliseconds. It must be started with the
library that `build` compiles as LD_PRELOAD.
"""

from __future__ import annotations

import ctypes
import errno
import importlib
import os
import pickle
import shutil
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lostflops.core.errors import LostflopsError

SOURCE = Path(__file__).with_name("faults.c")
LONGEST = 120
"""Seconds after which a child counts as hung."""
COUNT, KILL, TORN, _GROUP, SHORT, FAIL, FULL = range(7)
WRITE, OPEN = "w", "o"
_ALLOCATING = "owmrlt"
_MOST_SEEN = 65536
COUNTERS = 2 * ctypes.sizeof(ctypes.c_long) + _MOST_SEEN + 512
"""Bytes of the counters that processes share; the first is the number of operations."""


@dataclass(frozen=True)
class Fault:
    """What happens at an operation."""

    name: str
    action: int
    code: int = 0
    kinds: str = ""
    """Kinds of operations that can fail so; empty for all. The letters are those of faults.c."""

    def can_hit(self, kind: str) -> bool:
        return not self.kinds or kind in self.kinds


COUNTED = Fault("count", COUNT)
KILLED = Fault("kill", KILL)
KILLED_IN_WRITE = Fault("kill in a write", TORN, kinds=WRITE)
NO_SPACE = Fault("ENOSPC", FAIL, errno.ENOSPC, _ALLOCATING)
BROKEN_DISK = Fault("EIO", FAIL, errno.EIO)
NO_DESCRIPTOR = Fault("EMFILE", FAIL, errno.EMFILE, OPEN)
SHORT_WRITE = Fault("short write", SHORT, kinds=WRITE)
FULL_DISK = Fault("disk full from here on", FULL, kinds=_ALLOCATING)
KILLS = (KILLED, KILLED_IN_WRITE)
ERRORS = (NO_SPACE, BROKEN_DISK, NO_DESCRIPTOR, SHORT_WRITE, FULL_DISK)


def build(folder: Path) -> Path | None:
    """Compile the library; None if there is no compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        return None
    made = folder / "faults.so"
    subprocess.run([compiler, "-O1", "-Wall", "-Werror", "-shared", "-fPIC", "-o", made, SOURCE, "-ldl"], check=True)
    return made


def preload(library: Path, fault: Fault, at: int, folder: Path) -> dict[str, str]:
    """Return the environment in which a program, and all that it starts, meets a fault below a folder."""
    return {"LD_PRELOAD": str(library), "LOSTFLOPS_FAULTS": f"{at} {fault.action} {fault.code} {folder}"}


@dataclass(frozen=True)
class Ended:
    """How a child ended."""

    signal: int
    value: Any = None
    error: str = ""
    """Type and message of what it raised; empty if it returned."""
    is_ours: bool = False
    """Whether it raised an error of Lostflops."""
    stderr: str = ""
    seen: int = 0
    """Operations that it began."""
    hit: str = ""
    """Kind and path of the operation that was hit; empty if none was."""

    @property
    def is_ok(self) -> bool:
        return not self.signal and not self.error


class Forks:
    """Runs functions in forked children, below a folder whose operations count."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._library = ctypes.CDLL(None)
        for name in ("faults_kinds", "faults_path"):
            getattr(self._library, name).restype = ctypes.c_char_p
        for name in ("faults_seen", "faults_fired"):
            getattr(self._library, name).restype = ctypes.c_long
        self._arm = self._library.faults_arm
        self._arm.argtypes = [ctypes.c_char_p, ctypes.c_long, ctypes.c_int, ctypes.c_int]
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - children write to it as long as this lives

    def run(self, do: Callable[[], Any]) -> Any:
        """Return what `do` gives in a child; raise if it fails."""
        ended = self.attempt(do)
        if not ended.is_ok:
            raise AssertionError(f"signal {ended.signal}, {ended.error}\n{ended.stderr}")
        return ended.value

    def warm(self, do: Callable[[], Any]) -> None:
        """Import here what `do` imports in a child, so that later children need not."""
        for name in self.run(lambda: (do(), sorted(sys.modules))[1]):
            if name not in sys.modules and name.startswith(("lostflops", "duckdb", "numpy", "s3fs", "aiobotocore")):
                importlib.import_module(name)
        assert len(list(Path("/proc/self/task").iterdir())) == 1, "a fork of several threads may hang"

    def attempt(self, do: Callable[[], Any]) -> Ended:
        """Run `do` without a fault."""
        return self._fork(do, None, -1)

    def count(self, do: Callable[[], Any]) -> str:
        """Return the kinds of all operations of `do`, a letter each."""
        ended = self._fork(do, COUNTED, -1)
        assert ended.is_ok, (ended.signal, ended.error, ended.stderr)
        assert ended.seen < _MOST_SEEN
        return self._library.faults_kinds()[: ended.seen].decode()

    def hit(self, do: Callable[[], Any], fault: Fault, at: int) -> Ended:
        """Run `do` with a fault at operation number `at`."""
        return self._fork(do, fault, at)

    def _fork(self, do: Callable[[], Any], fault: Fault | None, at: int) -> Ended:
        self._stderr.seek(0)
        self._stderr.truncate()
        reads, writes = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                os.close(reads)
                self._be_child(do, fault, at, writes)
            finally:
                os._exit(99)
        os.close(writes)
        with os.fdopen(reads, "rb") as pipe:
            answer = pipe.read()
        _, status = os.waitpid(pid, 0)
        self._stderr.seek(0)
        said = self._stderr.read().decode(errors="replace")
        seen, hit = 0, ""
        if fault is not None:
            seen = self._library.faults_seen()
            hit = self._library.faults_path().decode(errors="replace") if self._library.faults_fired() else ""
        if os.WIFSIGNALED(status):
            return Ended(os.WTERMSIG(status), stderr=said, seen=seen, hit=hit)
        value, error, is_ours = pickle.loads(answer) if answer else (None, f"exit code {os.WEXITSTATUS(status)}", False)
        return Ended(0, value, error, is_ours, said, seen, hit)

    def _be_child(self, do: Callable[[], Any], fault: Fault | None, at: int, pipe: int) -> None:
        os.dup2(self._stderr.fileno(), 2)
        signal.alarm(LONGEST)
        value, error, is_ours = None, "", False
        if fault is not None:
            self._arm(os.fsencode(self.folder), at, fault.action, fault.code)
        try:
            value = do()
        except BaseException as raised:  # noqa: BLE001 - the parent judges it
            self._library.faults_disarm()
            is_ours = isinstance(raised, LostflopsError)
            error = f"{type(raised).__name__}: {raised}"
            if not is_ours:
                error += "\n" + "".join(traceback.format_exception(raised)[-4:])
        self._library.faults_disarm()
        os.write(pipe, pickle.dumps((value, error, is_ours)))


@contextmanager
def own_places(folder: Path) -> Iterator[None]:
    """Let temporary files, the cache and the state of this process be in `folder`."""
    before = tempfile.tempdir
    tempfile.tempdir = str(folder / "tmp")
    for name, place in (("TMPDIR", "tmp"), ("XDG_CACHE_HOME", "cache"), ("XDG_STATE_HOME", "state")):
        os.environ[name] = str(folder / place)
    try:
        yield
    finally:
        tempfile.tempdir = before
