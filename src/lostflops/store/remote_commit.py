"""Changes of a run in an object store, without lock or rename: a commit is an object that is created once.

Generation N of a run is `commits/N.json`, created only if there is none. Two writers that began from the same run both
write N, each to a folder of its own; the second to commit finds N taken and changes nothing. So data of generation N
that its commit does not name can never be committed, and the writer that commits N removes it at once.
"""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from lostflops.collect.capture import FOLDER
from lostflops.core.errors import BrokenRun, NotARun, RunBusy, RunError
from lostflops.core.utf8 import utf8
from lostflops.store import manifest as manifests
from lostflops.store.commit import DATA, MOST_SINGLE_RANKS, PREDICTIONS, RunWriter
from lostflops.store.manifest import DataFile, Manifest
from lostflops.store.mirror import COMMITS, GONE, fetch, folder_of, list_commits, newest
from lostflops.store.objects import in_parallel, objects_of
from lostflops.store.places import Address, Place, remote
from lostflops.store.validity import mark_run

_OURS: Final = frozenset({COMMITS, DATA, FOLDER, PREDICTIONS})
_PROBE: Final = "probe"
_KEPT: Final = 2
"""Number of commits whose data stays: a reader may just have listed the one before the last."""


class RemoteRunWriter(RunWriter):
    """Writes a run in an object store.

    `folder` is a working copy: files of the run that are needed are fetched to it, and new files are sent from it.
    """

    def __init__(self, run: Address) -> None:
        self.run = run
        self._objects = objects_of(run)
        self._may_be_committed = False
        super().__init__(Path())

    @property
    def place(self) -> Place:
        return self.run

    @property
    def upload(self) -> str:
        """Address to which workers send what they wrote."""
        return str(self.run / DATA / self.staging.name)

    def __enter__(self) -> RemoteRunWriter:
        try:
            self.folder = folder_of(self.run, self._objects)
            number = self._start_from()
            self._refuse_without_conditions()
        except OSError as error:
            raise RunError(f"{self.run} cannot be written: {error.strerror or error}.") from None
        self.staging = self.folder / DATA / f"{number + 1:06d}-{secrets.token_hex(8)}"
        self.staging.mkdir(parents=True)
        return self

    def __exit__(self, *_: object) -> None:
        """Remove what can no longer be committed.

        A commit that was requested may arrive after we gave it up, and then needs the files that it names; whoever
        commits the same number instead removes them.
        """
        with suppress(OSError):
            if not self._may_be_committed:
                shutil.rmtree(self.staging, ignore_errors=True)
                self._objects.remove([one.address for one in self._objects.below(Address(self.upload))])

    def at(self, file: DataFile) -> Path:
        path = self.folder / file.path
        if file.bytes < 0:  # written here
            return path
        try:
            return fetch(self.run, self.folder, file, self._objects)
        except FileNotFoundError:
            if self.generation in list_commits(self.run, self._objects):
                raise self._busy() from None
            raise BrokenRun(f"{self.run / file.path} is missing. Ingest the traces to a new address.") from None

    def all_at(self, files: Sequence[DataFile]) -> list[Path]:
        in_parallel(self.at, files)
        return super().all_at(files)

    def _start_from(self) -> int:
        try:
            number, self.manifest = newest(self.run, self._objects)
        except NotARun:
            other = next((name for name in self._objects.names(self.run) if name not in _OURS), None)
            if other is not None:
                said = f"{self.run} is not a run and has other objects ({other!r})"
                raise RunError(f"{said}. Choose an empty or new address.") from None
            return 0
        return number

    def _refuse_without_conditions(self) -> None:
        """Raise if the store overwrites an object on create: two writers would both believe that they committed."""
        probe = self.run / COMMITS / _PROBE
        if self._objects.create(secrets.token_bytes(8), probe) and self._objects.create(secrets.token_bytes(8), probe):
            raise RunError(
                f"the store of {self.run} does not support If-None-Match, so two writers could overwrite each other's "
                "data. Write the run to a local folder, and copy it."
            )

    def _measure(self, files: dict[str, list[DataFile]]) -> None:
        """Send files that were written here; workers sent theirs."""
        here = [file for kept in files.values() for file in kept if file.bytes < 0]
        in_parallel(lambda file: self._objects.send(self.folder / file.path, self.run / file.path), here)
        super()._measure(files)

    def _publish(self, manifest: Manifest) -> None:
        data = manifests.encode_manifest(manifest)
        self._may_be_committed = True
        commit = self.run / COMMITS / f"{self.generation:06d}.json"
        if not self._objects.create(data, commit):
            # Where it is old already it may have been ours, its answer lost, and later ones name what we wrote.
            self._may_be_committed = self._objects.read(commit) == GONE
            raise self._busy()
        mark_run(manifest)
        before, self.manifest = self.manifest, manifest
        with suppress(OSError):  # what is left is removed at the next commit
            self._sweep((before, manifest))

    def _is_many(self, files: list[DataFile]) -> bool:
        """Return whether there are too many files, which are then merged.

        Workers write files of several ranks, so there are many only after additions.
        """
        return len(files) > MOST_SINGLE_RANKS

    def _busy(self) -> RunBusy:
        this = "this one may or may not be in the run" if self._may_be_committed else "this one was not written"
        return RunBusy(f"another ingest wrote to {self.run} at the same time; {this}. Ingest again.")

    def _sweep(self, kept: tuple[Manifest, ...]) -> None:
        named = {str(self.run / file.path) for one in kept for files in one.files.values() for file in files}
        for number, commit in list_commits(self.run, self._objects).items():
            if number <= self.generation - _KEPT and commit.size != len(GONE):
                self._objects.write(GONE, commit.address)
        data = f"{self.run / DATA}/"
        left = [one.address for one in self._objects.below(self.run / DATA) if one.address.url not in named]
        self._objects.remove([one for one in left if self._is_lost(one.url.removeprefix(data))])

    def _is_lost(self, name: str) -> bool:
        number = name.partition("-")[0]
        return number.isascii() and number.isdigit() and int(number) <= self.generation


def writer_of(out: str | Place, *, is_early: bool = False, is_reader: bool = False) -> RunWriter:
    """Return the writer of a folder, or of an address in an object store."""
    address = remote(out)
    return (
        RemoteRunWriter(address)
        if address is not None
        else RunWriter(utf8(Path(str(out)).resolve()), is_early=is_early, is_reader=is_reader)
    )
