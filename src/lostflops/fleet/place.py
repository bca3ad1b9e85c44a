"""A fleet, opened for questions: the summaries of many runs as a view, with only the columns that are asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from hashlib import sha256
from pathlib import Path
from threading import Lock
from typing import Any, Final

import duckdb

from lostflops.core.errors import BrokenRun, LostflopsError
from lostflops.core.units import pluralise
from lostflops.core.utf8 import spell_path
from lostflops.fleet.catalogs import in_words, load_table, open_scan
from lostflops.fleet.kinds import LocalTable, NamedCatalog, RunFolder, TableKind, find_kind
from lostflops.fleet.local_catalog import read_metadata
from lostflops.fleet.locations import is_inside, local_path
from lostflops.fleet.rows import check_columns, fill_table, quote, read_summary, select_summaries
from lostflops.fleet.summary import COLUMNS, RunSummary
from lostflops.store.asking import asking
from lostflops.store.connections import connect
from lostflops.store.manifest import FILE_NAME as RUN_FILE
from lostflops.store.parquet import scan
from lostflops.store.places import Place
from lostflops.store.run import Run

Summarise = Callable[[Run], RunSummary]
MakeView = Callable[[duckdb.DuckDBPyConnection, tuple[str, ...], int | None], None]
"""Makes the view of these columns; files of a table that have only runs from before a time may be left out."""
VIEW: Final = "runs"
_DAMAGE: Final = (duckdb.IOException, duckdb.InvalidInputException, duckdb.SerializationException)
_PER_FETCH: Final = 256
_MOST_NAMED: Final = 3


class Fleet:
    """The summaries of many runs. Open it with `open_fleet`."""

    def __init__(self, place: str, make_view: MakeView) -> None:
        self.place = place
        """As its user names it."""
        self._make_view = make_view
        self.notes: list[str] = []
        """What its runs do not show, because a run cannot be read or is there twice; known once `table` was entered."""

    @contextmanager
    def table(self, columns: Iterable[str] = (), since: int | None = None) -> Iterator[duckdb.DuckDBPyConnection]:
        """Give a connection with these columns of all runs, or all columns, as view `runs`.

        Runs that started before `since`, in ns, may be left out: files without any later run are not read.

        >>> with open_fleet("runs/").table(["labels", "life"]) as fleet:  # doctest: +SKIP
        ...     fleet.sql("SELECT labels['team'], sum(life['training']) FROM runs GROUP BY ALL").fetchall()
        """
        connection = connect()
        try:
            with asking(), _naming_damage(self.place):
                self._make_view(connection, check_columns(columns), since)
                yield connection
        finally:
            connection.close()

    def summaries(self) -> Iterator[RunSummary]:
        """Return each run as it was added."""
        with self.table() as connection:
            rows = connection.execute(select_summaries(VIEW))
            while some := rows.fetchmany(_PER_FETCH):
                yield from (read_summary(dict(zip(COLUMNS, row, strict=True))) for row in some)


def open_fleet(place: str | Place, summarise: Summarise) -> Fleet:
    """Open a folder that contains runs, or a table that `add_runs` made.

    `summarise` gives the summary of a run in such a folder, once for each; tables have them.
    """
    kind = find_kind(place)
    if isinstance(kind, RunFolder):
        view = _FolderView(kind, summarise)
        fleet = Fleet(str(kind), view.make)
        fleet.notes = view.notes
        return fleet
    return Fleet(str(kind), partial(_make_table_view, kind))


def read_version(place: str | Place) -> str:
    """Return a text that changes when a run is added to a fleet, or changed."""
    kind = find_kind(place)
    if isinstance(kind, RunFolder):
        return "\n".join(f"{spell_path(path)} {_describe_file(path / RUN_FILE)}" for path in kind.runs)
    if isinstance(kind, LocalTable):
        metadata = read_metadata(kind.folder)
        return "" if metadata is None else sha256(metadata).hexdigest()
    return str(load_table(kind).metadata_location)


def _describe_file(path: Path) -> str:
    try:
        status = path.stat()
    except OSError as error:
        return str(error.errno)
    return f"{status.st_ino} {status.st_mtime_ns} {status.st_size}"


class _FolderView:
    """Summaries of the runs in a folder, which are read once."""

    def __init__(self, kind: RunFolder, summarise: Summarise) -> None:
        self._kind = kind
        self._summarise = summarise
        self._summaries: list[RunSummary] = []
        self._lock = Lock()
        self.notes: list[str] = []

    def make(self, connection: duckdb.DuckDBPyConnection, columns: tuple[str, ...], _since: int | None) -> None:
        with self._lock:
            if not self._summaries:
                self._summaries = self._read_all()
        fill_table(connection, VIEW, self._summaries, columns)

    def _read_all(self) -> list[RunSummary]:
        """Read each run once. Of copies of a run, the one that goes on longest counts."""
        longest: dict[str, RunSummary] = {}
        copies, damaged = 0, list[str]()
        for path in self._kind.runs:
            try:
                made = self._read(str(path))
            except Exception as error:  # noqa: BLE001 - one bad run does not take the others
                damaged.append(f"{spell_path(path)}: {_reason(error)}")
                continue
            known = longest.setdefault(made.run, made)
            copies += known is not made
            if (made.stop, made.total_ns) > (known.stop, known.total_ns):
                longest[made.run] = made
        if not longest:
            raise BrokenRun(f"no run in {self._kind} can be read. {damaged[0]}")
        self.notes += _describe_left_out(copies, damaged)
        return list(longest.values())

    def _read(self, path: str) -> RunSummary:
        with asking(), Run.open(path) as run:
            return self._summarise(run)


def _describe_left_out(copies: int, damaged: Sequence[str]) -> Iterator[str]:
    if damaged:
        more = f" And {len(damaged) - _MOST_NAMED} more." if len(damaged) > _MOST_NAMED else ""
        yield f"{pluralise(len(damaged), 'run')} cannot be read: not counted. {' '.join(damaged[:_MOST_NAMED])}{more}"
    if copies:
        yield f"{pluralise(copies, 'run')} in this folder {'is a copy' if copies == 1 else 'are copies'}: counted once."


def _reason(error: Exception) -> str:
    if isinstance(error, LostflopsError):
        return str(error)
    return f"{type(error).__name__}: {(str(error).splitlines() or ['no reason given'])[0]}."


def _make_table_view(
    kind: TableKind, connection: duckdb.DuckDBPyConnection, columns: tuple[str, ...], since: int | None
) -> None:
    with in_words(kind):
        listing = _begin_at(open_scan(kind), since)
        tasks = list(listing.plan_files())
    _check_places(kind, [task.file.file_path for task in tasks])
    typed = ", ".join(f"{quote(name)}::{COLUMNS[name]} AS {quote(name)}" for name in columns)
    paths = [path for task in tasks if (path := local_path(task.file.file_path)) is not None]
    if paths and len(paths) == len(tasks) and not any(task.delete_files for task in tasks):
        connection.execute(f"CREATE TEMP VIEW {VIEW} AS SELECT {typed} FROM {scan(paths)}")
        return
    # Only pyiceberg can open objects with the keys of a catalog, and apply rows that other engines deleted.
    with in_words(kind):
        if isinstance(kind, LocalTable):
            listing = _begin_at(load_table(kind).scan(), since)
            tasks = list(listing.plan_files())
        connection.register("scanned", _read_files(listing.select(*columns), tasks))
    connection.execute(f"CREATE TEMP TABLE {VIEW} AS SELECT {typed} FROM scanned")
    connection.unregister("scanned")


def _check_places(kind: TableKind, files: Iterable[str]) -> None:
    """Raise if a table that may come from anybody names a file elsewhere. A configured catalog decides itself."""
    if isinstance(kind, NamedCatalog):
        return
    place = f"file://{kind.folder}" if isinstance(kind, LocalTable) else str(kind)
    for file in files:
        if not is_inside(file, place):
            raise BrokenRun(f"the table of {kind} names {file}, which is not in its place")


def _begin_at(listing: Any, since: int | None) -> Any:
    """Return a scan without files that have only runs from before `since`."""
    if since is None:
        return listing
    from pyiceberg.expressions import GreaterThanOrEqual  # noqa: PLC0415 - an extra

    return listing.filter(GreaterThanOrEqual("start", since))


def _read_files(listing: Any, tasks: Iterable[Any]) -> Any:
    """Return the rows of data files that a scan listed, as Arrow batches: to list them again takes as many requests."""
    import pyarrow as pa  # noqa: PLC0415 - an extra
    from pyiceberg.io.pyarrow import ArrowScan, schema_to_pyarrow  # noqa: PLC0415

    schema = schema_to_pyarrow(listing.projection())
    whole = ArrowScan(listing.table_metadata, listing.io, listing.projection(), listing.row_filter)
    batches = whole.to_record_batches(tasks)
    return pa.RecordBatchReader.from_batches(schema, batches).cast(schema)


@contextmanager
def _naming_damage(place: str) -> Iterator[None]:
    """Turn errors of files into ours. Errors without a kind are those of a decoder."""
    try:
        yield
    except duckdb.Error as error:
        if not isinstance(error, _DAMAGE) and type(error) is not duckdb.Error:
            raise
        reason = str(error).splitlines()[0]
        raise BrokenRun(f"a part of the fleet {place} is missing or damaged. {reason}") from None
