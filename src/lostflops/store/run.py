"""A run on disk, opened for queries: its tables in DuckDB, read-only."""

from __future__ import annotations

import shlex
import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar

import duckdb

from lostflops.core.errors import BrokenRun, QueryError, UsageError
from lostflops.core.notebook import as_html
from lostflops.core.results import Pair, Pairs, Result
from lostflops.core.units import pluralise
from lostflops.core.utf8 import utf8
from lostflops.store import manifest as manifests
from lostflops.store.asking import asking
from lostflops.store.checksums import check_sizes
from lostflops.store.memory_limit import limit_database, not_enough_memory
from lostflops.store.mirror import mirror_run
from lostflops.store.narrow import narrow
from lostflops.store.parquet import literal_glob
from lostflops.store.places import remote
from lostflops.store.select import EXPLAIN, READ_ONLY, check_reads, check_stranger, may_change
from lostflops.store.tables import DERIVED, TABLES, table
from lostflops.store.validity import check_values, is_marked
from lostflops.store.views import ALL, Views, reading

T = TypeVar("T")
_MOST_KEPT: Final = 2_000
"""Most answers kept for one open run."""
_MOST_ROWS_KEPT: Final = 1_000
"""Most rows of an answer that is kept."""


class Run:
    """An open run, whose tables in `lostflops.store.tables` are views.

    Open it with `Run.open(path)`: a folder, or an address such as s3://bucket/run.

    >>> with Run.open("demo-run") as run:  # doctest: +SKIP
    ...     run.sql("select kind, count(*) from events group by kind").fetchall()
    """

    steps: tuple[int, ...] = ()
    """The only steps with rows in it; empty if it shows all."""
    _whole: Run | None = None

    def __init__(self, path: Path, manifest: manifests.Manifest, connection: duckdb.DuckDBPyConnection) -> None:
        self.path = path
        self.address = str(path)
        """The run as its user names it: for a run in an object store, `path` is the local copy."""
        self.manifest = manifest
        self._connection = connection
        self._rows: dict[str, list[Any]] = {}
        self._kept: dict[Hashable, Any] = {}
        self._lock = threading.RLock()
        self._views = Views(path, manifest)

    @classmethod
    def open(cls, path: str | Path, limits: Mapping[str, str | bool | int] | None = None) -> Self:
        """Open a run; `limits` are settings of DuckDB, such as its memory."""
        address = remote(path)
        folder = mirror_run(address) if address is not None else utf8(Path(path).resolve())
        manifest = manifests.load(folder)
        check_sizes(folder, manifest)
        if not manifest.sources:
            raise BrokenRun(f"{folder} has no ranks. Ingest its traces again.")
        connection = duckdb.connect(config={"memory_limit": limit_database(), **(limits or {})})
        run = cls(folder, manifest, connection)
        run.address = str(address or folder)
        try:
            with reading(folder, manifest):
                _draw_no_progress(connection)
                if not is_marked(manifest):
                    run._views.make(connection, {*manifest.files, *(declared.name for declared in DERIVED)})
                    if not check_values(folder, manifest, connection):
                        run._views.empty(connection, DERIVED)
                # Views may read the run's data; queries may read or write nothing else.
                connection.execute("SET allowed_paths = $paths", {"paths": _list_allowed_paths(folder, manifest)})
                connection.execute("SET enable_external_access = false")
                connection.execute("SET lock_configuration = true")
        except BaseException:
            connection.close()
            raise
        return run

    @property
    def name(self) -> str:
        """Name for commands that run in the folder next to it."""
        return self.path.name if self.address == str(self.path) else self.address

    @property
    def whole(self) -> Run:
        """This run, or the whole run if this one shows only some of its steps."""
        return self._whole or self

    @property
    def ranks(self) -> tuple[int, ...]:
        return tuple(sorted({source.rank for source in self.manifest.sources}))

    @property
    def world_size(self) -> int:
        """Ranks of the job, recorded or not; the recorded ranks where the world size is unknown."""
        ((stated,),) = self.rows("select max(world_size) from ranks")
        return max(stated or 0, len(self.ranks))

    def table(self, name: str) -> duckdb.DuckDBPyRelation:
        self._views.make(self._connection)
        self._views.prepare(name, self._connection)
        try:
            return self._connection.table(table(name).name)
        except KeyError:
            known = ", ".join(declared.name for declared in TABLES)
            raise UsageError(f"a run has no table {name!r}. Tables are: {known}") from None

    def sql(self, query: str) -> duckdb.DuckDBPyRelation:
        """Return the rows of one SELECT over the tables of the run; a query never changes a run."""
        self._views.make(self._connection)  # a query may list the tables
        self._views.prepare(query, self._connection)
        try:
            if may_change(query):
                check_reads(query, self._connection)
            statements = self._connection.extract_statements(query)
            explained = EXPLAIN.match(query)
            if explained and statements:
                statements += self._connection.extract_statements(query[explained.end() :])
                statements.pop(0)
            if [statement.type for statement in statements] != [duckdb.StatementType.SELECT]:
                raise QueryError(READ_ONLY)
            return self._connection.sql(query)
        except duckdb.OutOfMemoryException:
            raise not_enough_memory() from None
        except duckdb.Error as error:
            raise QueryError(str(error)) from None

    def rows(self, query: str) -> list[Any]:
        """Return the rows of one of our own queries; small answers are kept, because an open run does not change."""
        with self._lock:
            found: list[Any] | None = self._rows.get(query)
            if found is None:
                with asking():
                    found = self._ask(query).fetchall()
                if len(found) <= _MOST_ROWS_KEPT:
                    self._rows[query] = found
                if len(self._rows) > _MOST_KEPT:
                    del self._rows[next(iter(self._rows))]
            return list(found)

    def columns(self, query: str, lists: Mapping[str, Sequence[int]] | None = None) -> dict[str, Any]:
        """Return a numpy array for each column of one of our own queries, which names `lists` as `$name`.

        Long lists of numbers cost much less so than as text.
        """
        with self._lock, asking():
            return self._ask(query, lists).fetchnumpy()

    def keep(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return what `make` gives; it is called once while the run is open."""
        with self._lock:
            if key not in self._kept:
                self._kept[key] = make()
            kept: T = self._kept[key]
            return kept

    def is_kept(self, key: Hashable) -> bool:
        with self._lock:
            return key in self._kept

    def _ask(self, query: str, lists: Mapping[str, Sequence[int]] | None = None) -> duckdb.DuckDBPyConnection:
        """Run a query. Its result is the connection's until it is fetched, so callers hold the lock until then."""
        self._views.prepare(query, self._connection)
        try:
            return self._connection.execute(query, lists)
        except (duckdb.InterruptException, duckdb.OutOfMemoryException):
            raise
        except duckdb.Error as error:
            raise QueryError(str(error)) from None

    def checked_sql(self, query: str) -> duckdb.DuckDBPyRelation:
        """Return the rows of untrusted SQL, which may call harmless functions only, and see no path of this machine."""
        check_stranger(query, self._connection)
        return self.sql(query)

    def beside(self) -> Self:
        """Return the same run for another thread: a connection serves one thread at a time."""
        return self._beside(self.steps)

    def of_steps(self, steps: Sequence[int], *, is_copied: bool = True) -> Self:
        """Return the same run as if only these steps had been recorded deeply; timings of all steps stay.

        Their rows are copied to memory if they are not too many: else each query looks through all steps.

        Rows without a step, such as a kernel without a recorded launch, are shown if they began while these steps ran.
        """
        return self._beside(steps, is_copied=is_copied)

    def _beside(self, steps: Sequence[int], *, is_copied: bool = False) -> Self:
        connection = self._connection.cursor()
        made = type(self)(self.path, self.manifest, connection)
        made.address = self.address
        made._views = self._views  # noqa: SLF001 - of the same class
        if steps:
            self._views.prepare(" ".join(ALL), connection)
            narrow(connection, steps, is_copied=is_copied)
            made.steps, made._whole = tuple(steps), self.whole  # noqa: SLF001 - of the same class
        return made

    def interrupt(self) -> None:
        """End the query that another thread waits for."""
        self._connection.interrupt()

    def close(self) -> None:
        self._rows.clear()
        self._kept.clear()
        self._connection.close()

    def _repr_html_(self) -> str | None:
        """Show the content of the run in a notebook."""
        return as_html(_glance(self))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _list_allowed_paths(folder: Path, manifest: manifests.Manifest) -> list[str]:
    """Return paths as they are, and as views name them."""
    paths = {str(folder / file.path) for files in manifest.files.values() for file in files}
    return sorted(paths | {literal_glob(path) for path in paths})


def _draw_no_progress(connection: duckdb.DuckDBPyConnection) -> None:
    """Turn off DuckDB's progress bar, which it draws on standard output if it takes the session for interactive.

    In Jupyter without ipywidgets it draws none, and refuses the setting.
    """
    with suppress(duckdb.InvalidInputException):
        connection.execute("SET enable_progress_bar = false")


_HOW_TO_ASK: Final = "To analyse it here: import lostflops as lf, then lf.open(PATH).report()."
_CLOSED: Final = "It is closed: open it again to query it."
_STEPS: Final = """
    select count(*), min(step), max(step) from (select step from steps union select step from timings)"""
_CLUSTER: Final = (
    "select max(world_size), nullif(count(distinct host), 0), string_agg(distinct device, ', ') from ranks"
)


def _glance(run: Run) -> Result:
    """Return what is in a run, without analysing it."""
    sources = run.manifest.sources
    formats = ", ".join(sorted({source.format for source in sources}))
    events = sum(source.events for source in sources)
    ranks = pluralise(len(run.ranks), "rank")
    try:
        [(steps, first, last)] = run.sql(_STEPS).fetchall()
        [(world, hosts, devices)] = run.sql(_CLUSTER).fetchall()
    except (duckdb.Error, QueryError):
        return Result("run", f"Run {run.path.name}", f"{ranks}, {pluralise(events, 'event')}. {_CLOSED}")
    held = Pairs(
        "held",
        "",
        (
            Pair("world_size", world, "count", "Ranks in the job"),
            Pair("hosts", hosts, "count", "Hosts"),
            Pair("devices", devices, "", "Devices"),
            Pair("formats", formats, "", "Formats"),
            Pair("first_step", first, "", "First step"),
            Pair("last_step", last, "", "Last step"),
        ),
    )
    verdict = f"{ranks}, {pluralise(steps, 'step')}, {pluralise(events, 'event')}."
    command = f"lostflops open {shlex.quote(_near(run))}"
    return Result("run", f"Run {run.path.name}", verdict, (held,), (_HOW_TO_ASK,), command)


def _near(run: Run) -> str:
    """Return the path relative to the current folder if the run is below it, otherwise its address."""
    here = Path.cwd()
    is_below = run.path.is_relative_to(here) and run.address == str(run.path)
    return str(run.path.relative_to(here)) if is_below else run.address
