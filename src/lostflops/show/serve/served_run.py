"""The run that is served: opened once, and again when another ingest has replaced it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from lostflops.show.serve.work import StoppableRun
from lostflops.store.derived import data_digest
from lostflops.store.manifest import FILE_NAME
from lostflops.store.mirror import mirror_run
from lostflops.store.places import remote

FileState = tuple[int, int, int]


class OpenedRun:
    def __init__(self, path: Path, limits: Mapping[str, str | bool | int] | None = None) -> None:
        address = remote(path)
        # Of a run in a store the copy is watched, which the next verb that is asked about it renews.
        self.path = mirror_run(address) if address is not None else path
        self._limits = limits
        self._seen = self._on_disk()
        self._run = StoppableRun.open(self.path, limits)

    @property
    def identity(self) -> str:
        """Changes when the run is ingested again, and not when something is derived from it."""
        return data_digest(self._run.manifest)

    def beside(self) -> StoppableRun:
        """Return a new connection to what is on disk now. Work that goes on keeps the run that it began with."""
        self.refresh()
        return self._run.beside()

    def refresh(self) -> None:
        found = self._on_disk()
        if found != self._seen:
            self._run, self._seen = StoppableRun.open(self.path, self._limits), found

    def close(self) -> None:
        self._run.close()

    def _on_disk(self) -> FileState:
        try:
            status = (self.path / FILE_NAME).stat()
        except OSError:
            return 0, 0, 0  # opening it says what is wrong
        return status.st_ino, status.st_mtime_ns, status.st_size
