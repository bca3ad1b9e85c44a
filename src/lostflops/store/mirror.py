"""A local copy of a run in an object store: each of its files is fetched once.

In the store a run is

    commits/000002.json               the manifest of a generation; the highest is the run
    data/000002-<writer>/<table>/...  what was written for it

and here the same files with the manifest as `run.json`: a run like any other. Files never change under their name, so a
file that is here with its checksum is not fetched again.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shlex
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from lostflops.core.errors import BrokenRun, NotARun, RunError
from lostflops.store import manifest as manifests
from lostflops.store.checksums import find_damage
from lostflops.store.manifest import DataFile, Manifest
from lostflops.store.objects import Listed, Objects, in_parallel, objects_of
from lostflops.store.places import Address, cache_folder, unsafe
from lostflops.store.tables import TABLES

COMMITS: Final = "commits"
GONE: Final = b"{}"
"""Content of an old commit after its data was removed, so that its number stays taken."""
_COMMIT: Final = re.compile(r"(\d{6,18})\.json")
_FILE: Final = re.compile(
    rf"data/\d{{6,18}}-[0-9a-f]{{16}}/(?:{'|'.join(table.name for table in TABLES)})/[A-Za-z0-9_.-]{{1,200}}\.parquet"
)
_KEPT_NS: Final = 7 * 24 * 3600 * 10**9
"""Files that no manifest names any more are kept this long: they may still be in use."""


def mirror_run(run: Address) -> Path:
    """Return the folder with a current copy of the run."""
    objects = objects_of(run)
    try:
        folder = folder_of(run, objects)
        with _alone(folder):
            manifest = _fetch_newest(run, folder, objects)
            _keep(folder, manifest)
    except OSError as error:
        raise RunError(f"{error.filename or run} cannot be read: {error.strerror or error}.") from None
    return folder


def folder_of(run: Address, objects: Objects) -> Path:
    """Return the folder of a run in the user's cache; two stores may have a run of the same address."""
    number = hashlib.sha256(f"{objects.endpoint}\n{run}".encode()).hexdigest()[:24]
    name = run.name if unsafe(run.name) is None and len(run.name) < 100 else "run"
    folder = cache_folder() / "runs" / number / name
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


def list_commits(run: Address, objects: Objects) -> dict[int, Listed]:
    """Return commits by their number."""
    return {
        int(number[1]): listed
        for listed in objects.below(run / COMMITS)
        if (number := _COMMIT.fullmatch(listed.address.name)) and listed.address.parent == run / COMMITS
    }


def is_run_at(run: Address) -> bool:
    return bool(list_commits(run, objects_of(run)))


def newest(run: Address, objects: Objects) -> tuple[int, Manifest]:
    """Return number and manifest of the last commit; raise NotARun if there is none."""
    number = -1
    while (commits := list_commits(run, objects)) and max(commits) != number:
        number = max(commits)
        with suppress(FileNotFoundError):
            data = objects.read(commits[number].address)
            if data != GONE:  # two were made since it was listed
                return number, check_paths(manifests.decode_manifest(data, run, commits[number].address), run)
    if number >= 0:
        raise BrokenRun(f"the last commit of {run}, {number}, is gone. Ingest the traces again to a new address.")
    raise NotARun(
        f"{run} is not a run (no {COMMITS}/). To make one: lostflops ingest TRACES -o {shlex.quote(str(run))}"
    )


def check_paths(manifest: Manifest, run: Address) -> Manifest:
    """Raise if a manifest, which others may have written, has a path that cannot belong to a run."""
    for file in _files(manifest):
        if not _FILE.fullmatch(file.path):
            raise BrokenRun(f"{run} names a file that cannot belong to a run: {file.path[:80]!r}.")
    return manifest


def fetch(run: Address, folder: Path, file: DataFile, objects: Objects) -> Path:
    """Return a data file here, fetched if needed; raise FileNotFoundError if the store does not have it."""
    path = folder / file.path
    if not _is_here(path, file):
        objects.fetch(run / file.path, path)
        if damage := find_damage(path, file):
            path.unlink()
            raise BrokenRun(f"{run / file.path} {damage}. Ingest the traces again.")
    return path


def _fetch_newest(run: Address, folder: Path, objects: Objects) -> Manifest:
    """Fetch the newest run; files that disappear meanwhile belong to a run that two newer ones have replaced."""
    before = -1
    while True:
        number, manifest = newest(run, objects)
        missing = [file for file in _files(manifest) if not _is_here(folder / file.path, file)]
        try:
            in_parallel(lambda file: fetch(run, folder, file, objects), missing)
        except FileNotFoundError as error:
            if number == before:
                raise BrokenRun(f"{error.filename} is missing. Ingest the traces of {run} again.") from None
            before = number
        else:
            return manifest


def _keep(folder: Path, manifest: Manifest) -> None:
    named = {str(folder / file.path) for file in _files(manifest)}
    path = folder / manifests.FILE_NAME
    if not path.exists() or path.read_bytes() != manifests.encode_manifest(manifest):
        with suppress(OSError, RunError):  # their week begins now, whenever they were fetched
            for replaced in {folder / file.path for file in _files(manifests.load(folder))}:
                if str(replaced) not in named:
                    os.utime(replaced)
        manifests.save(folder, manifest)
    too_old = time.time_ns() - _KEPT_NS
    for path in (folder / "data").rglob("*"):
        if path.is_file() and str(path) not in named and path.stat().st_mtime_ns < too_old:
            path.unlink(missing_ok=True)


def _files(manifest: Manifest) -> Iterator[DataFile]:
    for files in manifest.files.values():
        yield from files


def _is_here(path: Path, file: DataFile) -> bool:
    return not find_damage(path, file)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Lock the folder, so that two commands at once fetch a run only once."""
    lock = os.open(folder / ".mirror", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)
