"""What writers do with a fleet: add runs, remove old ones, merge small files, and remove old versions."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from datetime import datetime
from typing import Any, Final

from lostflops.core.errors import UsageError
from lostflops.fleet.catalogs import in_words, load_table, make_table
from lostflops.fleet.commits import MOST_SECONDS, FileChange, commit, forget_versions
from lostflops.fleet.data_files import FILE_ROWS, group_small, is_small, list_tasks, read_column, read_rows, write_rows
from lostflops.fleet.kinds import NamedCatalog, RunFolder, TableKind, find_kind, find_target
from lostflops.fleet.rows import keep_newest, make_rows
from lostflops.fleet.summary import RunSummary
from lostflops.fleet.sweep import list_named, remove_file, sweep
from lostflops.store.places import Place

_MOST_SMALL: Final = 48
"""Small files that a table may have before some writer merges them."""
_COMMITS_PER_CHECK: Final = 16
_COMMITS_PER_SWEEP: Final = 64
_LATEST: Final = 2**63 - 1
"""The last time that the table can hold."""


def add_runs(place: str | Place, summaries: Iterable[RunSummary], seconds: float = MOST_SECONDS) -> int:
    """Add runs in one commit, and return how many; a run that is there already is replaced.

    The place is made if it is an empty or new folder. Of two summaries of one run, the last is taken. If other writers
    keep the table busy, RunBusy is raised after about `seconds`.
    """
    newest = keep_newest(summaries)
    kind = find_target(place)
    if not newest:
        return 0
    table = make_table(kind)
    with in_words(kind):
        _commit_runs(table, newest, seconds)
        _maintain(table, kind)
    return len(newest)


def remove_runs(place: str | Place, stopped_before: datetime) -> int:
    """Remove the runs that stopped before a time, in one commit; return how many."""
    kind = _find_table(place)
    table = load_table(kind)
    with in_words(kind):
        from pyarrow.compute import less  # noqa: PLC0415 - an extra
        from pyiceberg.expressions import LessThan  # noqa: PLC0415

        last = min(int(stopped_before.timestamp()) * 1_000_000_000, _LATEST)
        rewrite = Rewrite("stop", LessThan("stop", last), lambda stops: less(stops, last))
        return rewrite.dropped if commit(table, rewrite.plan) else 0


def compact(place: str | Place) -> int:
    """Merge all small files of a fleet; return how many there were. No row changes."""
    kind = _find_table(place)
    table = load_table(kind)
    with in_words(kind):
        return _merge_small(table)


def expire(place: str | Place, older_than: datetime) -> int:
    """Remove versions of the table from before a time, and files that only they name; return how many versions.

    The newest version stays, so no run is lost. What killed writers left is removed too, if it is an hour old.
    """
    kind = _find_table(place)
    table = load_table(kind)
    with in_words(kind):
        files = list_named(table, table.metadata.snapshots)
        removed = forget_versions(table, older_than)
        for location in sorted(files - list_named(table, table.metadata.snapshots)):
            remove_file(table, location)
        if not isinstance(kind, NamedCatalog):
            sweep(table)
    return removed


class Rewrite:
    """Rows that leave the table, and rows that enter it in the same commit."""

    def __init__(self, column: str, where: Any, drops: Callable[[Any], Any], added: Sequence[RunSummary] = ()) -> None:
        """`where` selects files, and `drops` the rows to remove in them, by the values of one column."""
        self._column = column
        self._where = where
        self._drops = drops
        self._added = added
        self._written: list[Any] = []
        self._rests: dict[Hashable, list[Any] | None] = {}
        """New files with the rest of the rows of a file; None if it loses none."""
        self.dropped = 0
        """Rows that left the table, according to the last plan."""

    def plan(self, table: Any) -> FileChange:
        if not self._written:
            parts = [self._added[first : first + FILE_ROWS] for first in range(0, len(self._added), FILE_ROWS)]
            self._written = [write_rows(table, make_rows(table, part)) for part in parts]
        change = FileChange(added=list(self._written))
        self.dropped = 0
        for task in list_tasks(table, self._where):
            file = _identify(task)
            if file not in self._rests:
                self._rests[file] = self._write_rest(table, task)
            if (rest := self._rests[file]) is not None:
                change.removed.append(task.file)
                change.added += rest
                self.dropped += task.file.record_count - sum(new.record_count for new in rest)
        return change

    def _write_rest(self, table: Any, task: Any) -> list[Any] | None:
        from pyarrow.compute import any as any_of  # noqa: PLC0415
        from pyarrow.compute import invert  # noqa: PLC0415

        if not any_of(self._drops(read_column(table, task, self._column))).as_py():
            return None
        rows = read_rows(table, [task])
        rest = rows.filter(invert(self._drops(rows[self._column])))
        return [write_rows(table, rest)] if rest.num_rows else []


class Merge:
    """Small files that become one."""

    def __init__(self, group: Sequence[Any]) -> None:
        self._group: dict[Hashable, Any] = {_identify(task): task for task in group}
        self._written: list[Any] = []

    def plan(self, table: Any) -> FileChange | None:
        """Return None if another writer changed one of the files."""
        if not self._group.keys() <= {_identify(task) for task in list_tasks(table)}:
            return None
        if not self._written:
            rows = read_rows(table, self._group.values())
            self._written = [write_rows(table, rows.sort_by("start"))] if rows.num_rows else []
        return FileChange([task.file for task in self._group.values()], list(self._written))


def _find_table(place: str | Place) -> TableKind:
    kind = find_kind(place)
    if isinstance(kind, RunFolder):
        raise UsageError(f"{kind} is a folder of runs without a table: there is nothing to merge or remove.")
    return kind


def _commit_runs(table: Any, summaries: Sequence[RunSummary], seconds: float) -> None:
    import pyarrow as pa  # noqa: PLC0415
    from pyarrow.compute import is_in  # noqa: PLC0415
    from pyiceberg.expressions import In  # noqa: PLC0415

    runs = [summary.run for summary in summaries]
    values = pa.array(runs, pa.string())
    rewrite = Rewrite("run", In("run", set(runs)), lambda column: is_in(column, values), summaries)
    commit(table, rewrite.plan, seconds)


def _maintain(table: Any, kind: TableKind) -> None:
    """Merge and sweep now and then. Each commit has a number of its own, so only one of many writers does it."""
    number = table.metadata.last_sequence_number
    try:
        if number % _COMMITS_PER_CHECK == 0 and sum(map(is_small, list_tasks(table))) >= _MOST_SMALL:
            _merge_small(table)
        if number % _COMMITS_PER_SWEEP == 0 and not isinstance(kind, NamedCatalog):
            sweep(table)
    except Exception:  # noqa: BLE001 - the runs are added, and another writer does it later
        return


def _merge_small(table: Any) -> int:
    groups = [group for group in group_small(list_tasks(table)) if len(group) > 1 or group[0].delete_files]
    return sum(len(group) for group in groups if commit(table, Merge(group).plan))


def _identify(task: Any) -> Hashable:
    """Return a key of a data file together with the rows that other engines deleted in it."""
    return task.file.file_path, frozenset(file.file_path for file in task.delete_files)
