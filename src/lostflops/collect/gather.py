"""One writer per host: it moves what the ranks of this host wrote to its spool into one file of the capture.

On a shared file system ten thousand growing files are a burden; one for each host is not. Ranks are not aware of it:
they write to a local folder, and the process that launched them copies whole frames and traces up, and requests down.
"""

from __future__ import annotations

import os
import shutil
import threading
from pathlib import Path
from typing import Final

from lostflops.collect.capture import (
    FLIGHT_PREFIX,
    SUFFIX,
    WINDOWS,
    FrameReader,
    host_file,
    is_raw,
    reduced_form,
    trace_file,
    trace_of,
)
from lostflops.collect.export import Missing, missing


class Gatherer:
    def __init__(self, spool: Path, capture: Path, host: str) -> None:
        self._spool, self._capture = spool, capture
        self._target = host_file(capture, host)
        self._done: dict[Path, int] = {}
        self._dumps: dict[str, int] = {}
        """Dumps of ranks whose step does not end, and when they were written, in ns."""
        self._lock = threading.Lock()

    @property
    def has_carried(self) -> bool:
        """Whether anything was recorded, even if the spool is gone by now."""
        return bool(self._done)

    def gather(self) -> None:
        """Carry what is new to the capture; called about once a second, and once when the command has ended."""
        with self._lock:
            self._gather()

    def finish(self) -> Missing:
        """Carry all that is left, remove the spool and return the missing traces.

        If traces are still being written, the spool is kept for them alone.
        """
        with self._lock:
            found = missing(self._spool, lambda: self._gather(is_last=True))
            if not found.late:
                self._carry_traces()  # what was written anew meanwhile: nobody writes any more
                shutil.rmtree(self._spool, ignore_errors=True)
                return found
            for carried in self._spool.rglob(f"*{SUFFIX}"):
                carried.unlink()
            shutil.rmtree(self._spool / WINDOWS, ignore_errors=True)
            return found

    def _gather(self, *, is_last: bool = False) -> set[Path]:
        """Carry what is new; return the carried traces under the names that they have as raw traces."""
        for path in sorted(self._spool.rglob(f"*{SUFFIX}")):
            self._append(path, is_last=is_last)
        carried = self._carry_traces()
        self._carry_dumps()
        self._exchange_requests()
        return carried

    def _carry_traces(self) -> set[Path]:
        carried = set()
        for path in sorted(self._spool.iterdir()):
            if (trace := trace_of(path.name)) is not None:
                try:
                    self._carry_trace(path)
                except FileNotFoundError:
                    if path.exists():
                        raise
                    continue  # it is just written anew, in the other form
                carried.add(trace_file(self._spool, *trace))
        return carried

    def _carry_dumps(self) -> None:
        """Copy new dumps, and remove those whose rank took them back because its step ended after all."""
        found = {path.name: path.stat().st_mtime_ns for path in self._spool.glob(f"{FLIGHT_PREFIX}*")}
        for name in found.keys() | self._dumps.keys():
            if name not in found:
                (self._capture / name).unlink(missing_ok=True)
            elif found[name] != self._dumps.get(name):
                _copy(self._spool / name, self._capture / name)
        self._dumps = found

    def _carry_trace(self, path: Path) -> None:
        """Copy a trace to the capture and remove it here.

        A raw trace comes before its reduced form, or alone: a reduced form that is in the capture by then is older, and
        is removed.
        """
        target = self._capture / path.name
        if is_raw(path.name):
            reduced_form(target).unlink(missing_ok=True)
        before = path.stat()
        _copy(path, target)
        if os.path.samestat(before, path.stat()):  # else it was written anew, and goes with the next round
            path.unlink()

    def _exchange_requests(self) -> None:
        """Copy requests from users down to the spool, and up those that rank 0 writes there to move its window."""
        above, below = self._capture / WINDOWS, self._spool / WINDOWS
        for folder in (above, below):
            folder.mkdir(exist_ok=True)
        for source, target in ((below, above), (above, below)):
            for request in sorted(source.glob("*.json")):
                _carry(request, target / request.name)

    def _append(self, path: Path, *, is_last: bool) -> None:
        """Append whole frames to the host's file.

        A frame that is still being written goes with the next round; the last round takes everything.
        """
        done = self._done.get(path, 0)
        with path.open("rb") as source:
            source.seek(done)
            data = source.read()
        reader = FrameReader()
        frames = sum(1 for _ in reader.feed(data))
        if not (frames or (is_last and data)):
            return
        whole = len(data) if is_last else len(data) - reader.pending
        with self._target.open("ab") as target:
            target.write(data[:whole])
        self._done[path] = done + whole


def _copy(source: Path, target: Path, written: int | None = None) -> None:
    """Copy a file so that the target appears in one step, as its readers expect; `written` is its new mtime in ns."""
    temporary = target.with_name(f".{target.name}.new")
    shutil.copyfile(source, temporary)
    if written is not None:
        os.utime(temporary, ns=(written, written))
    temporary.replace(target)


def _carry(source: Path, target: Path) -> None:
    """Copy a file and its mtime, on which all hosts then agree, unless the target is newer or the same."""
    written = source.stat().st_mtime_ns
    if target.exists() and (target.stat().st_mtime_ns >= written or target.read_bytes() == source.read_bytes()):
        return
    _copy(source, target, written)


_SHARED: Final = frozenset(
    {"nfs", "nfs4", "lustre", "gpfs", "beegfs", "ceph", "fuse.ceph", "cifs", "smb3", "wekafs", "afs", "9p"}
)


def is_shared(folder: Path, mounts: Path = Path("/proc/self/mounts")) -> bool:
    """Return whether a folder is on a network file system."""
    try:
        lines = [line.split() for line in mounts.read_text().splitlines()]
    except OSError:
        return False
    around = [(Path(fields[1]), fields[2]) for fields in lines if folder.resolve().is_relative_to(fields[1])]
    return max(around, key=lambda mount: len(mount[0].parts))[1] in _SHARED if around else False
