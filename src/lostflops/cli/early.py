"""Ingest while the job still trains: windows are ingested as soon as all ranks have written theirs.

`lostflops run` checks once a second whether traces are being written, and then starts a process that waits for the last
of them and ingests. That process runs at idle priority. Whatever happens to it, all traces are ingested at the end of
the job anyway.
"""

import ctypes
import hashlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from lostflops.cli.ingesting import in_turn
from lostflops.collect.capture import Frame, rank_file, trace_of
from lostflops.live.follow import Follower

LONGEST: Final = 660
"""The process may take this many seconds, somewhat longer than a trace may."""
NOT_OURS: Final = 3
"""Exit code if rank 0 is on another host, which then ingests."""
_POLL: Final = 0.1
_MOST_LOOKING: Final = 0.05
"""At most this share of the time goes into looking for traces: a folder of very many traces is examined rarely."""
_PATIENCE: Final = 5
"""The end of a job waits this many seconds for a file system that hangs."""
_DIES_WITH_PARENT: Final = 1
_TAIL: Final = 4 << 20
"""The last window of a rank is within this many bytes at the end of its file."""
_SLACK: Final = 1_000_000_000
"""Clocks of files and of records may differ by this much, in ns."""
_FEW: Final = 64
"""Up to this many traces, further processes take longer to start than they save."""
_PROGRAM: Final = (
    "import sys; sys.path.insert(0, sys.argv[1]); from lostflops.collect.reducer import give_way; give_way()\n"
    "from lostflops.cli.early import main; main(sys.argv[2:])"
)
"""Program of the process. It lowers its priority first: its imports take as much time as a small trace."""


class EarlyIngest:
    """The process that ingests `capture` into `run` while the job trains; ranks of this host write to `local`."""

    def __init__(self, capture: Path, run: Path, local: Path) -> None:
        self._capture, self._run, self._local = capture, run, local
        self._process: subprocess.Popen[bytes] | None = None
        self._seen: str | None = None
        """Mark of the traces that are in the run, or were there before the job."""
        self._rests_until = 0.0
        self._is_wanted = True
        self._lock = threading.Lock()

    def look(self) -> None:
        """Look for new traces, and start the process if there are any. Called about once a second, on a thread of its
        own."""
        with self._lock:
            self._look()

    def stop(self) -> None:
        """End the process, without waiting for a look that hangs; a run is never half written."""
        is_locked = self._lock.acquire(timeout=_PATIENCE)
        try:
            self._is_wanted = False
            if self._process is not None and self._process.poll() is None:
                with suppress(ProcessLookupError):
                    os.killpg(self._process.pid, signal.SIGKILL)
                with suppress(subprocess.TimeoutExpired):
                    self._process.wait(_PATIENCE)
                    _taken_by(self._process)
        finally:
            if is_locked:
                self._lock.release()

    def _look(self) -> None:
        from lostflops.collect.export import pending

        if self._process is not None:
            code = self._process.poll()
            if code is None:
                return
            taken, self._process = _taken_by(self._process), None
            self._seen = taken if code == 0 else None
            self._is_wanted = self._is_wanted and code != NOT_OURS
        if not self._is_wanted or (began := time.monotonic()) < self._rests_until:
            return
        found = _mark(traces_in(self._capture))
        is_new = bool(pending(self._local)) or (self._seen is not None and found != self._seen)
        self._seen = found
        self._rests_until = began + (time.monotonic() - began) / _MOST_LOOKING
        if is_new and rank_file(self._local, 0).exists():
            self._process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        where = str(Path(__file__).resolve().parents[2])
        # Not from the folder that the job is in, whose modules may be called as ours are.
        told = map(str, (os.getpid(), self._capture, self._run, self._local))
        words = [sys.executable, "-P", "-c", _PROGRAM, where, *told]
        nothing = subprocess.DEVNULL
        return subprocess.Popen(words, stdin=nothing, stdout=subprocess.PIPE, stderr=nothing, start_new_session=True)


def _taken_by(process: subprocess.Popen[bytes]) -> str | None:
    """Return the mark of the traces that a finished process took."""
    if process.stdout is None:
        return None
    with process.stdout as said:
        return said.readline().decode().strip() or None


def traces_in(capture: Path) -> dict[str, int]:
    """Return the names of traces, and when they were written."""
    found = {}
    with os.scandir(capture) as entries:
        for entry in entries:
            if trace_of(entry.name) is not None:
                with suppress(FileNotFoundError):  # another form has just taken its place
                    found[entry.name] = entry.stat().st_mtime_ns
    return found


def _mark(traces: dict[str, int]) -> str:
    return hashlib.sha256(repr(sorted(traces.items())).encode()).hexdigest()


@dataclass(slots=True)
class _Rank:
    session: str = ""
    host: str | None = None
    world_size: int = 0
    windows: dict[int, tuple[str, int]] = field(default_factory=dict)
    """Last state of each window, and the time from which on its trace can be written."""

    def take(self, frame: Frame) -> None:
        if frame.session != self.session:
            self.session, self.windows = frame.session, {}
        for record in frame.records:
            match record:
                case {"kind": "session", "host": host, "world_size": int(size)}:
                    self.host, self.world_size = host, size
                case {"kind": "window", "window": int(window), "state": str(state), "time": int(when)}:
                    before = self.windows.get(window)
                    # A trace is newer than what it tells of; who looks for it may find it much later.
                    since = before[1] if state == "exported" and before and before[0] == "stopped" else when
                    self.windows[window] = (state, since)


class Ranks:
    """Windows of all ranks of a job, by what the ranks recorded and by the files that exist."""

    def __init__(self) -> None:
        self._ranks: dict[int, _Rank] = {}

    def take(self, frames: Iterable[Frame]) -> None:
        for frame in frames:
            self._ranks.setdefault(frame.rank, _Rank()).take(frame)

    @property
    def host(self) -> str | None:
        """Host of rank 0."""
        return self._ranks[0].host if 0 in self._ranks else None

    def is_whole(self, traces: dict[str, int]) -> bool:
        """Return whether all ranks have written their trace of the newest window."""
        if not traces or len(self._ranks) < max((rank.world_size for rank in self._ranks.values()), default=1):
            return False
        newest = max(traces, key=lambda name: traces[name])
        window = _place(newest)[1]
        written: dict[int, int] = {}
        for name, when in traces.items():
            rank, number = _place(name)
            if number == window:
                written[rank] = max(when, written.get(rank, 0))
        return all(_is_over(one.windows.get(window), written.get(rank)) for rank, one in self._ranks.items())


def _place(name: str) -> tuple[int, int]:
    found = trace_of(name)
    assert found is not None
    return found


def _is_over(state: tuple[str, int] | None, written: int | None) -> bool:
    """Return whether no more trace will come. A rank without the window was not asked for it; a trace from before the
    end of the window belongs to an older attempt."""
    if state is None or state[0] in ("skipped", "failed"):
        return True
    return written is not None and state[0] in ("stopped", "exported") and written > state[1] - _SLACK


def main(arguments: list[Any]) -> None:
    end_with_parent(int(arguments[0]))
    from lostflops.collect.export import pending
    from lostflops.ingest import ingest

    signal.alarm(LONGEST)
    capture, run, local = map(Path, arguments[1:])
    ranks, follower = Ranks(), Follower(folder=capture, rank_tail=_TAIL)
    while True:
        began = time.monotonic()
        ranks.take(follower.poll())
        if ranks.host not in (None, socket.gethostname()):
            sys.exit(NOT_OURS)
        traces = traces_in(capture)
        if ranks.is_whole(traces) and not pending(local):
            break
        time.sleep(max(_POLL, (time.monotonic() - began) / _MOST_LOOKING))
    print(_mark(traces), flush=True)
    workers = 1 if len(traces) <= _FEW else None
    in_turn(lambda: ingest([capture], run, workers=workers, is_early=True), behind_anybody=True)


def end_with_parent(parent: int) -> None:
    """End this process when the parent ends, even if that is killed; unblock signals that the parent blocked for its
    command."""
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    with suppress(AttributeError):
        ctypes.CDLL(None).prctl(_DIES_WITH_PARENT, int(signal.SIGKILL))
    if os.getppid() != parent:
        sys.exit("the parent process has already ended")
