"""Changes of the table of a fleet. Each is one commit; if another writer was first, it is planned and tried again."""

from __future__ import annotations

import fcntl
import os
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from lostflops.core.errors import RunBusy
from lostflops.fleet.data_files import remove_files, touch_files
from lostflops.fleet.locations import local_path

MOST_SECONDS: Final = 300.0
"""Longest time to try; shorter than the age at which `sweep` removes files that no version names."""
_FIRST_WAIT, _LONGEST_WAIT = 0.02, 1.0
_LONGEST_TURN: Final = 10.0
"""Time to wait for another writer, which may have stopped with the lock."""
_MOST_VERSIONS: Final = 20
_KEPT_VERSIONS: Final = 10
"""Versions that stay when there are more than `_MOST_VERSIONS`. Each costs every commit some ms, because pyiceberg
copies the list of all many times."""


@dataclass(slots=True)
class FileChange:
    """Data files that leave the table, and those that enter it."""

    removed: list[Any] = field(default_factory=list)
    added: list[Any] = field(default_factory=list)


Plan = Callable[[Any], FileChange | None]
"""Returns the change of this version of the table, or None if none is needed. A plan for another version may return
the same new files again: those that no plan returned last are deleted."""


def commit(table: Any, plan: Plan, seconds: float = MOST_SECONDS) -> bool:
    """Change the table; return whether anything changed. `table` is its newest version afterwards.

    No try begins after `seconds`: then other writers were always faster, and RunBusy is raised.
    """
    written: dict[str, Any] = {}
    for attempt in _wait_between_tries(seconds):
        with _taking_turns(table) as is_alone:
            if attempt or is_alone:
                _refresh(table)
            change = plan(table)
            if change is None or not (change.removed or change.added):
                remove_files(table, written.values())
                return False
            written.update((file.file_path, file) for file in change.added)
            is_done = _publish(table, change)
        if is_done:
            kept = {file.file_path for file in change.added}
            remove_files(table, (file for path, file in written.items() if path not in kept))
            touch_files(change.removed)
            return True
    remove_files(table, written.values())
    raise _busy(table, seconds)


@contextmanager
def _taking_turns(table: Any) -> Iterator[bool]:
    """Wait for other writers of a local table, and yield whether they wait for this one.

    It only saves work: a writer that waited too long, or elsewhere, goes on, and one of two commits is refused.
    """
    folder = local_path(table.location())
    if folder is None:
        yield False
        return
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield _try_to_lock(lock)
    finally:
        os.close(lock)


def _try_to_lock(lock: int) -> bool:
    stop = time.monotonic() + _LONGEST_TURN
    while time.monotonic() < stop:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(random.uniform(0, _FIRST_WAIT))  # noqa: S311 - not a secret
        except OSError:  # a file system without locks
            return False
        else:
            return True
    return False


def _wait_between_tries(seconds: float) -> Iterator[int]:
    stop, attempt = time.monotonic() + seconds, 0
    while time.monotonic() < stop:
        yield attempt
        attempt += 1
        time.sleep(random.uniform(0, min(_FIRST_WAIT * 2**attempt, _LONGEST_WAIT)))  # noqa: S311 - not a secret


def _publish(table: Any, change: FileChange) -> bool:
    """Commit the change, and trim old versions in the same commit; return False if another writer was first."""
    from pyiceberg.exceptions import CommitFailedException, ValidationException  # noqa: PLC0415 - an extra

    transaction = table.transaction()
    update = transaction.update_snapshot()
    producer = update.overwrite() if change.removed else update.merge_append()
    for file in change.removed:
        producer.delete_data_file(file)
    for file in change.added:
        producer.append_data_file(file)
    before = table.metadata
    try:
        producer.commit()
        _trim_versions(transaction, _KEPT_VERSIONS, above=_MOST_VERSIONS)
        transaction.commit_transaction()
    except (CommitFailedException, ValidationException):
        return False
    except Exception as error:
        # The catalog may have accepted it before its answer was lost. Unless that is known, no file is deleted.
        _refresh(table)
        if table.metadata.snapshot_by_id(producer.snapshot_id) is not None:
            return True
        if not _is_overtaken(before, table.metadata, error):
            raise
        return False
    return True


def _is_overtaken(before: Any, now: Any, error: Exception) -> bool:
    """Return whether a commit failed because of another, and cannot succeed any more."""
    if now.current_snapshot_id != before.current_snapshot_id:
        return True
    # Versions that this commit named were removed, or metadata was replaced while it was read.
    return isinstance(error, ValueError | FileNotFoundError) and now != before


def forget_versions(table: Any, older_than: datetime) -> int:
    """Remove all versions from before a time, except the newest; return how many."""
    from pyiceberg.exceptions import CommitFailedException  # noqa: PLC0415

    for _ in _wait_between_tries(MOST_SECONDS):
        with _taking_turns(table):
            _refresh(table)
            transaction = table.transaction()
            count = _trim_versions(transaction, kept=1, above=1, older_than=older_than)
            try:
                transaction.commit_transaction()
            except (CommitFailedException, ValueError):  # another writer changed the table, or removed them
                continue
            return count
    raise _busy(table, MOST_SECONDS)


def _trim_versions(transaction: Any, kept: int, above: int, older_than: datetime | None = None) -> int:
    """Forget old versions, except the newest `kept`; return how many."""
    from pyiceberg.table.update.snapshot import ExpireSnapshots  # noqa: PLC0415

    versions = sorted(transaction.table_metadata.snapshots, key=lambda version: version.timestamp_ms)
    if len(versions) <= above:
        return 0
    old = [
        version.snapshot_id
        for version in versions[: len(versions) - kept]
        if older_than is None or version.timestamp_ms < older_than.timestamp() * 1e3
    ]
    named = {ref.snapshot_id for ref in transaction.table_metadata.refs.values()}
    old = [version for version in old if version not in named]
    if old:
        ExpireSnapshots(transaction).by_ids(old).commit()
    return len(old)


def _refresh(table: Any) -> None:
    """Read the newest version; the file that the catalog names may just have been replaced and removed."""
    for wait in (0.0, 0.05, 0.2, 1.0):
        time.sleep(wait)
        try:
            table.refresh()
        except FileNotFoundError:
            continue
        return
    table.refresh()


def _busy(table: Any, seconds: float) -> RunBusy:
    return RunBusy(f"other writers changed {table.location()} for {seconds:.0f} s without a pause. Try again.")
