"""Changes of a run: one writer at a time, new files next to the old ones, one atomic switch."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import socket
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from lostflops._version import __version__
from lostflops.collect.capture import ANOMALIES, FOLDER
from lostflops.core.errors import RunBusy, RunError
from lostflops.store import manifest as manifests
from lostflops.store.checksums import check_sizes, check_tables, checksum_of_file
from lostflops.store.manifest import DataFile, Manifest, Source
from lostflops.store.parquet import ParquetWriter
from lostflops.store.places import Place
from lostflops.store.scratch import locked
from lostflops.store.tables import DERIVED, RANKS, TABLES
from lostflops.store.validity import mark_run

DATA = "data"
PREDICTIONS = "predictions"
"""Predictions made from the run, one file each: not part of its data, and kept when that is replaced."""
_LOCK = ".lock"
_NEW_MANIFEST = f".{manifests.FILE_NAME}.new"
_OURS = re.compile(
    rf"{re.escape(_LOCK)}|{re.escape(_NEW_MANIFEST)}"
    rf"|(?:{FOLDER}|{ANOMALIES})/.+"
    rf"|{PREDICTIONS}/\.?p-[^/]+"
    rf"|{DATA}/\d{{6,}}/(?:{'|'.join(table.name for table in TABLES)})/[^/]+\.parquet"
)
MOST_SINGLE_RANKS = 256
RANKS_PER_FILE = 64
_WRITTEN_AGAIN: Final = frozenset({RANKS.name, *(table.name for table in DERIVED)})


_EARLY, _INGEST, _ACCOUNT = "early", "ingest", "account"
_SIGNED: Final = re.compile(rf"({_EARLY}|{_INGEST}|{_ACCOUNT}) (\d{{1,10}}) ([A-Za-z0-9._-]{{1,253}})")


class RunWriter:
    """Holds the lock of a run; `commit` switches to the new state, and leaving without it changes nothing.

    New data goes to `folder / DATA / <generation>`, which no committed run names before `commit`.
    """

    def __init__(self, folder: Path, *, is_early: bool = False, is_reader: bool = False) -> None:
        """`is_early`: the job itself ingests its traces. `is_reader`: a reading command adds derived tables."""
        self.folder = folder
        self._sign = _EARLY if is_early else _ACCOUNT if is_reader else _INGEST
        self.manifest = Manifest()
        self.staging = folder
        self._lock = -1
        self._rewritten = 0
        self._made_folders: list[Path] = []

    def __enter__(self) -> RunWriter:
        self._refuse_foreign()
        self._made_folders = [path for path in (self.folder, *self.folder.parents) if not path.exists()]
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._lock = self._open_lock()
        except OSError as error:
            raise RunError(f"{self.folder} cannot be written: {error.strerror}. Choose another folder.") from None
        try:
            self._start()
        except BaseException:
            os.close(self._lock)
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Remove whatever was not committed; the manifest on disk decides, even if an interrupt hid the commit."""
        is_run = (self.folder / manifests.FILE_NAME).exists()
        if not is_run or manifests.load(self.folder).generation != self.generation:
            shutil.rmtree(self.staging, ignore_errors=True)
        _remove_empty(self.folder / DATA)
        if not is_run:
            for leftover in (_LOCK, _NEW_MANIFEST):
                (self.folder / leftover).unlink(missing_ok=True)
            with suppress(OSError):  # somebody else may have put something there meanwhile
                for made in self._made_folders:
                    made.rmdir()
        os.close(self._lock)

    def _open_lock(self) -> int:
        """Open the lock file and lock it; a file that its last owner removed protects nothing and is opened again."""
        while True:
            lock = os.open(self.folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o644)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                error = _busy_error(self.folder, lock)
                os.close(lock)
                raise error from None
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(lock), (self.folder / _LOCK).stat()):
                    _sign_lock(lock, self._sign)
                    return lock
            os.close(lock)

    def _start(self) -> None:
        if (self.folder / manifests.FILE_NAME).exists():
            self.manifest = manifests.load(self.folder)
            check_sizes(self.folder, self.manifest)
            check_tables(self.folder, self.manifest, self.manifest.files)
        if self._sign != _ACCOUNT:  # other readers may still use files that a reader's commit replaced
            self._remove_unnamed()
        self.staging = self.folder / DATA / f"{self.manifest.generation + 1:06d}"
        self.staging.mkdir(parents=True, exist_ok=True)

    def _refuse_foreign(self) -> None:
        """Raise if a folder that is not a run has anything except a capture, and what an interrupted ingest left."""
        if not self.folder.is_dir() or (self.folder / manifests.FILE_NAME).exists():
            return
        for path in sorted(self.folder.rglob("*")):
            name = str(path.relative_to(self.folder))
            if not path.is_dir() and not _OURS.fullmatch(name):
                raise RunError(
                    f"{self.folder} is not a run and has other files ({name!r}). Choose an empty or new folder."
                )

    def _remove_unnamed(self) -> None:
        """Delete data that no manifest names: that of an interrupted ingest, and parts that were replaced."""
        named = {file.path for files in self.manifest.files.values() for file in files}
        for generation in (self.folder / DATA).glob("[0-9]*"):
            for path in generation.rglob("*"):
                if not path.is_dir() and str(path.relative_to(self.folder)) not in named:
                    path.unlink()
        _remove_empty(self.folder / DATA)
        with suppress(OSError), locked(self.folder / PREDICTIONS, is_needed=True):
            remove_drafts(self.folder / PREDICTIONS)

    def commit(self, sources: list[Source], files: dict[str, list[DataFile]]) -> None:
        """Make `sources` and `files` (without `ranks`, which follows from the sources) the run."""
        writer = ParquetWriter()
        try:
            merged = {name: self._merge_files(writer, name, kept) for name, kept in files.items() if kept}
            merged[RANKS.name] = [self._write_ranks(writer, sources)] if sources else []
        finally:
            writer.close()
        self._measure(merged)
        columns = self._list_columns(merged)
        written, number = f"lostflops {__version__}", self.generation
        self._publish(Manifest(writer=written, generation=number, columns=columns, sources=sources, files=merged))

    def _list_columns(self, files: dict[str, list[DataFile]]) -> dict[str, list[str]]:
        """Return the columns that all files of each table have; files of an older run stay as they are."""
        columns = manifests.current_columns()
        for name, old in self.manifest.columns.items():
            before = {file.path for file in self.manifest.files.get(name, [])}
            # Rows of ranks are always written again, and derived rows if other code made them.
            is_new = name in _WRITTEN_AGAIN and before.isdisjoint(file.path for file in files.get(name, []))
            if before and not is_new:
                columns[name] = old
        return columns

    @property
    def place(self) -> Place:
        """The run as its user names it."""
        return self.folder

    @property
    def upload(self) -> str:
        """Address to which workers also send what they wrote; empty if they only write to the staging folder."""
        return ""

    @property
    def generation(self) -> int:
        """Number of the generation that is being written."""
        return int(self.staging.name.partition("-")[0])

    def at(self, file: DataFile) -> Path:
        """Return where the rows of a file can be read."""
        return self.folder / file.path

    def all_at(self, files: Sequence[DataFile]) -> list[Path]:
        return [self.at(file) for file in files]

    def _measure(self, files: dict[str, list[DataFile]]) -> None:
        """Fill in size and checksum of files that were written here; workers report those of theirs."""
        for file in (file for kept in files.values() for file in kept if file.crc32 < 0):
            path = self.folder / file.path
            if file.bytes < 0 or path.exists():  # a file of an older version may have no checksum yet
                file.bytes, file.crc32 = path.stat().st_size, checksum_of_file(path)

    def _publish(self, manifest: Manifest) -> None:
        for made in (self.staging, *self.staging.iterdir(), self.staging.parent):
            manifests.make_durable(made)
        manifests.save(self.folder, manifest)
        mark_run(manifest)
        self.manifest = manifest

    def _is_many(self, files: list[DataFile]) -> bool:
        return len({rank for file in files for rank in file.ranks}) > MOST_SINGLE_RANKS

    def _merge_files(self, writer: ParquetWriter, table: str, files: list[DataFile]) -> list[DataFile]:
        """Return files of single ranks as they are, or merge ranges of ranks if there are very many."""
        ordered = sorted(files, key=lambda file: (file.ranks, file.format, file.path))
        if not self._is_many(ordered):
            return ordered
        ranges: dict[tuple[int, str], list[DataFile]] = {}
        for file in ordered:
            ranges.setdefault((file.ranks[0] // RANKS_PER_FILE, file.format), []).append(file)
        return [self._one_file(writer, table, *key, members) for key, members in sorted(ranges.items())]

    def _one_file(
        self, writer: ParquetWriter, table: str, number: int, source_format: str, members: list[DataFile]
    ) -> DataFile:
        if len(members) == 1:
            return members[0]
        first = number * RANKS_PER_FILE
        name = f"{source_format}-ranks-{first:06d}-{first + RANKS_PER_FILE - 1:06d}.parquet"
        path = self.staging / table / name
        parts = self.all_at(members)
        writer.merge(parts, path)
        for part in parts:
            if part.is_relative_to(self.staging):
                part.unlink()
        ranks = sorted({rank for member in members for rank in member.ranks})
        return DataFile(path=self.relative(path), format=source_format, ranks=ranks)

    def without(self, writer: ParquetWriter, table: str, file: DataFile, ranks: set[int]) -> DataFile | None:
        """Return a file of several ranks without some of them; None if nothing is left."""
        kept = [rank for rank in file.ranks if rank not in ranks]
        if len(kept) == len(file.ranks):
            return file
        if not kept:
            return None
        self._rewritten += 1
        path = self.staging / table / f"{file.format}-rest-{self._rewritten:06d}.parquet"
        writer.merge([self.at(file)], path, where=f"rank IN ({', '.join(map(str, kept))})")
        return DataFile(path=self.relative(path), format=file.format, ranks=kept)

    def relative(self, path: Path) -> str:
        return str(path.relative_to(self.folder))

    def _write_ranks(self, writer: ParquetWriter, sources: list[Source]) -> DataFile:
        rows = rank_rows(sources)
        path = self.staging / RANKS.name / "all.parquet"
        writer.write(RANKS, {name: [row[name] for row in rows] for name in RANKS.column_names()}, path)
        ranks = sorted({source.rank for source in sources})
        return DataFile(path=self.relative(path), format="", ranks=ranks)


def remove_drafts(predictions: Path) -> None:
    """Delete predictions that were never completed; whoever writes one holds the lock of the folder."""
    for draft in predictions.glob(".p-*"):
        draft.unlink(missing_ok=True)


def _remove_empty(folder: Path) -> None:
    """Remove empty folders, from the bottom up."""
    for path in sorted((folder, *folder.rglob("*")), reverse=True):
        if path.is_dir() and not any(path.iterdir()):
            path.rmdir()


def rank_rows(sources: list[Source]) -> list[dict[str, object]]:
    """Return one row per rank; if a rank has several files, the first format with a timeline describes it."""
    by_rank: dict[int, list[Source]] = {}
    for source in sorted(sources, key=lambda source: (source.rank, source.events == 0, source.path)):
        by_rank.setdefault(source.rank, []).append(source)
    return [_rank_row(rank, own) for rank, own in by_rank.items()]


def _rank_row(rank: int, own: list[Source]) -> dict[str, object]:
    first = own[0]

    def first_known(name: str) -> object:
        return next((value for source in own if (value := getattr(source, name)) is not None), None)

    return {
        "rank": rank,
        "rank_source": first.rank_source,
        "host": first_known("host"),
        "device": first_known("device"),
        "device_index": first_known("device_index"),
        "world_size": first_known("world_size"),
        "backend": first_known("backend"),
        "formats": ",".join(dict.fromkeys(source.format for source in own)),
        "source": first.path,
        "source_bytes": first.size,
        "source_hash": first.hash,
        "base_time": first.base_time,
        "events": sum(source.events for source in own),
    }


def _sign_lock(lock: int, sign: str) -> None:
    with suppress(OSError):  # a disk that is full will be told of by what is written
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{sign} {os.getpid()} {socket.gethostname()}".encode(), 0)


def _busy_error(folder: Path, lock: int) -> RunBusy:
    """Return the error for a lock that another process holds."""
    signed = _SIGNED.fullmatch(os.pread(lock, 512, 0).decode(errors="replace"))
    who = f" (process {signed[2]} on {signed[3]})" if signed else ""
    if signed is None or signed[1] == _INGEST:
        return RunBusy(f"another ingest{who} is writing to {folder}. Wait, or choose another folder.")
    if signed[1] == _ACCOUNT:
        said = f"another command{who} is computing the ledgers of {folder}"
    else:
        said = f"the job of {folder} is adding its newest window to the run{who}, at idle priority"
    error = RunBusy(f"{said}. Wait, or choose another folder.")
    error.is_early = True
    return error
