"""One writer per host: what the ranks of this host wrote to its spool goes into one file of the capture.

On a shared file system ten thousand files that grow are a burden, one for each host is not. Ranks know nothing of it:
they write to a local folder, and the process that launched them carries whole frames and traces up, requests down.
"""

from __future__ import annotations

import os
import shutil
import threading
from pathlib import Path
from typing import Final

from lostflops.collect.capture import (
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
        self._lock = threading.Lock()

    @property
    def has_carried(self) -> bool:
        """Whether anything was recorded, also where the spool is gone by now."""
        return bool(self._done)

    def gather(self) -> None:
        """Carry what is new; called about once a second, and once when the command has ended."""
        with self._lock:
            self._gather()

    def finish(self) -> Missing:
        """The last round. The spool goes; where traces are still being written there, it stays for them alone."""
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
        """Traces that were carried, by the names that they have as raw ones."""
        for path in sorted(self._spool.rglob(f"*{SUFFIX}")):
            self._append(path, is_last=is_last)
        carried = self._carry_traces()
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

    def _carry_trace(self, path: Path) -> None:
        """A raw one comes before what it was reduced to, or alone: what is there in that form is older."""
        target = self._capture / path.name
        if is_raw(path.name):
            reduced_form(target).unlink(missing_ok=True)
        before = path.stat()
        _copy(path, target)
        if os.path.samestat(before, path.stat()):  # else it was written anew, and goes with the next round
            path.unlink()

    def _exchange_requests(self) -> None:
        """Down they come from whoever asks; up go those of rank 0, which moves its window where it writes."""
        above, below = self._capture / WINDOWS, self._spool / WINDOWS
        for folder in (above, below):
            folder.mkdir(exist_ok=True)
        for source, target in ((below, above), (above, below)):
            for request in sorted(source.glob("*.json")):
                _carry(request, target / request.name)

    def _append(self, path: Path, *, is_last: bool) -> None:
        """Only whole frames travel; one that is being written goes with the next round, and the last takes all."""
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
    """In one step, as readers of the target expect."""
    temporary = target.with_name(f".{target.name}.new")
    shutil.copyfile(source, temporary)
    if written is not None:
        os.utime(temporary, ns=(written, written))
    temporary.replace(target)


def _carry(source: Path, target: Path) -> None:
    """Unless the target is newer, or the same; the time of who wrote it goes along, so that all hosts agree on that."""
    written = source.stat().st_mtime_ns
    if target.exists() and (target.stat().st_mtime_ns >= written or target.read_bytes() == source.read_bytes()):
        return
    _copy(source, target, written)


_SHARED: Final = frozenset(
    {"nfs", "nfs4", "lustre", "gpfs", "beegfs", "ceph", "fuse.ceph", "cifs", "smb3", "wekafs", "afs", "9p"}
)


def is_shared(folder: Path, mounts: Path = Path("/proc/self/mounts")) -> bool:
    """Whether a folder lies on a file system of the network."""
    try:
        lines = [line.split() for line in mounts.read_text().splitlines()]
    except OSError:
        return False
    around = [(Path(fields[1]), fields[2]) for fields in lines if folder.resolve().is_relative_to(fields[1])]
    return max(around, key=lambda mount: len(mount[0].parts))[1] in _SHARED if around else False
