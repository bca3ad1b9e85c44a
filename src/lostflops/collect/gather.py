"""One writer per host: what the ranks of this host wrote to its spool goes into one file of the capture.

On a shared file system ten thousand files that grow are a burden, one for each host is not. Ranks know nothing of it:
they write to a local folder, and the process that launched them carries whole frames and traces up, requests down.
"""

from __future__ import annotations

import shutil
import threading
from pathlib import Path
from typing import Final

from lostflops.capture import SUFFIX, WINDOWS, FrameReader, host_file, trace_of


class Gatherer:
    def __init__(self, spool: Path, capture: Path, host: str) -> None:
        self._spool, self._capture = spool, capture
        self._target = host_file(capture, host)
        self._done: dict[Path, int] = {}
        self._lock = threading.Lock()

    def gather(self) -> None:
        """Carry what is new; called about once a second, and once when the command has ended."""
        with self._lock:
            self._gather()

    def finish(self) -> None:
        self.gather()
        shutil.rmtree(self._spool, ignore_errors=True)

    def _gather(self) -> None:
        for path in sorted(self._spool.rglob(f"*{SUFFIX}")):
            self._append(path)
        for path in sorted(self._spool.iterdir()):
            if trace_of(path.name) is not None:
                _copy(path, self._capture / path.name)
                path.unlink()
        (self._spool / WINDOWS).mkdir(exist_ok=True)
        for request in sorted((self._capture / WINDOWS).glob("*.json")):
            if not (self._spool / WINDOWS / request.name).exists():
                _copy(request, self._spool / WINDOWS / request.name)

    def _append(self, path: Path) -> None:
        """Only whole frames travel; one that is being written goes with the next round."""
        done = self._done.get(path, 0)
        with path.open("rb") as source:
            source.seek(done)
            data = source.read()
        reader = FrameReader()
        frames = sum(1 for _ in reader.feed(data))
        if not frames:
            return
        whole = len(data) - reader.pending
        with self._target.open("ab") as target:
            target.write(data[:whole])
        self._done[path] = done + whole


def _copy(source: Path, target: Path) -> None:
    """In one step, as readers of the target expect."""
    temporary = target.with_name(f".{target.name}.new")
    shutil.copyfile(source, temporary)
    temporary.replace(target)


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
