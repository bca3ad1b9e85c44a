"""Account for the ranks of a run once, and store the result in the run."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator
from tempfile import SpooledTemporaryFile
from typing import IO, Final

import msgspec

from lostflops.account.align.one_clock import OneClock
from lostflops.account.derive.tasks import WORK, DerivedFile, DeriveTask, derive_from
from lostflops.account.derive.timeline import TimelineSpan
from lostflops.account.ledger.by_rank import WORTH, Progress
from lostflops.account.ledger.from_rows import accounted_ranks, recorded_ranks
from lostflops.account.ledger.windows import choose
from lostflops.store.commit import RANKS_PER_FILE, RunWriter
from lostflops.store.derived import account_code, data_digest, digest_inputs
from lostflops.store.manifest import DataFile, Manifest
from lostflops.store.places import Place, naming
from lostflops.store.remote_commit import writer_of
from lostflops.store.run import Run
from lostflops.store.spread.engines import ChosenEngine
from lostflops.store.spread.names import EngineName
from lostflops.store.tables import ACCOUNTS, DERIVED, RANKS

_TASKS_OF_WORKER: Final = 4
_MOST_IN_MEMORY: Final = 32_000_000
"""Bytes of derived files that are held in memory; those of a thousand ranks are about three times as many."""


def needs_accounts(run: Run) -> bool:
    """Return whether a rank that recorded any time has no account, or one that other code made."""
    return not recorded_ranks(run) <= accounted_ranks(run)


def with_accounts(run: Run, progress: Progress | None = None) -> Run:
    """Return the run, opened again if its ranks had to be accounted for first.

    A run that cannot be written, or is being written, stays as it is: its questions are answered from its events.
    """
    is_stored_here = run.manifest.generation and run.address == str(run.path)
    if not is_stored_here or not needs_accounts(run):
        return run
    try:
        _derive(run, run.path, ChosenEngine.from_environment(), progress)
    except Exception:  # noqa: BLE001 - a question that needs a ledger computes it, and says what is wrong
        return run
    run.close()
    return Run.open(run.path)


def derive(place: Place, spread: ChosenEngine | None = None, progress: Progress | None = None) -> bool:
    """Account for the ranks of a run that have no account yet; return whether anything was stored.

    The lock is taken only to store: a job that adds a window does not wait for the computation. Raises RunError if
    another process writes to the run then, or if nobody may.
    """
    with Run.open(str(place)) as run:
        return needs_accounts(run) and _derive(run, place, spread or ChosenEngine.from_environment(), progress)


def _derive(run: Run, place: Place, spread: ChosenEngine, progress: Progress | None) -> bool:
    found = _Derivation(run, spread)
    with SpooledTemporaryFile(_MOST_IN_MEMORY) as spool:
        made = _WaitingFiles(spool)
        made.add(found.carry_out(progress))
        with writer_of(place, is_reader=True) as writer:
            return found.is_current(writer.manifest) and _store(writer, found.kept_files(writer.manifest), made)


class _WaitingFiles:
    """Derived files that wait for the lock of the run, on disk if they are large."""

    def __init__(self, spool: IO[bytes]) -> None:
        self._spool = spool
        self._files: list[tuple[DerivedFile, int]] = []

    def add(self, files: Iterable[DerivedFile]) -> None:
        for one in files:
            self._spool.write(one.data)
            self._files.append((msgspec.structs.replace(one, data=b""), len(one.data)))

    def __iter__(self) -> Iterator[DerivedFile]:
        self._spool.seek(0)
        for one, size in self._files:
            yield msgspec.structs.replace(one, data=self._spool.read(size))


def _store(writer: RunWriter, files: dict[str, list[DataFile]], made: Iterable[DerivedFile]) -> bool:
    for one in made:
        path = writer.staging / one.table / one.name
        path.parent.mkdir(parents=True, exist_ok=True)
        with naming(path), path.open("wb") as file:
            file.write(one.data)
            file.flush()
            os.fsync(file.fileno())
        files.setdefault(one.table, []).append(DataFile(path=writer.relative(path), format="", ranks=one.ranks))
    writer.commit(writer.manifest.sources, files)
    return True


class _Derivation:
    """Accounts that a run lacks, and the tasks that compute them."""

    def __init__(self, run: Run, spread: ChosenEngine) -> None:
        self._run, self._spread = run, spread
        self._events: dict[int, int] = dict(run.rows("select rank, events from ranks where events > 0 order by rank"))
        [(accounts,)] = run.rows("select count(*) from accounts")
        current = accounted_ranks(run)
        # Accounts of other code, or of another scope, go with all that belongs to them.
        self._accounted = current if len(current) == accounts else frozenset[int]()
        [(drawn,)] = run.rows("select count(*) from timeline")
        self._is_drawn = drawn > 0

    def is_current(self, manifest: Manifest) -> bool:
        """Return whether the run is still as it was read: with the same data, and no newer accounts."""
        own = self._run.manifest
        return data_digest(manifest) == data_digest(own) and _accounts_of(manifest) == _accounts_of(own)

    def kept_files(self, manifest: Manifest) -> dict[str, list[DataFile]]:
        """Return the files of the run, without those that other code derived."""
        stale = set() if self._accounted else {table.name for table in DERIVED}
        return {name: list(own) for name, own in manifest.files.items() if name not in stale and name != RANKS.name}

    def carry_out(self, progress: Progress | None) -> Iterator[DerivedFile]:
        is_here = self._spread.is_single or sum(self._events.values()) <= WORTH
        tasks = self._tasks(RANKS_PER_FILE if is_here else self._ranks_of_task())
        total, done = len(self._events), 0
        if is_here:
            for task in tasks:
                yield from derive_from(self._run, task)
                done += len(task.ranks)
                if progress is not None:
                    progress(done, total)
            return
        lock = threading.Lock()

        def report_progress(task: DeriveTask) -> None:
            nonlocal done
            with lock:  # workers are heard by a thread each
                done += len(task.ranks)
                if progress is not None:
                    progress(done, total)

        with self._spread.engine() as engine:
            for files in engine.map(WORK, tasks, lambda _: None, report_progress):
                yield from files

    def _ranks_of_task(self) -> int:
        return max(1, min(RANKS_PER_FILE, len(self._events) // (_TASKS_OF_WORKER * self._spread.workers)))

    def _tasks(self, size: int) -> list[DeriveTask]:
        run, hosts = self._run, dict(self._run.rows("select rank, host from ranks"))
        inputs = digest_inputs(run.manifest.files, lambda file: run.path / file.path, hosts)
        span = None if self._is_drawn and self._accounted else TimelineSpan.of(run, OneClock.of(run))
        ranks = list(self._events) if span is not None else sorted(self._events.keys() - self._accounted)
        where = run.address if self._spread.name is EngineName.RAY else str(run.path)
        return [
            DeriveTask(
                run=where,
                data=data_digest(run.manifest),
                kind=choose(run, run.ranks),
                ranks=batch,
                accounts={rank: inputs[rank] for rank in batch if rank not in self._accounted},
                code=account_code(),
                span=span,
                stem=f"ranks-{batch[0]:06d}",
            )
            for batch in (ranks[first : first + size] for first in range(0, len(ranks), size))
        ]


def _accounts_of(manifest: Manifest) -> list[str]:
    return [file.path for file in manifest.files.get(ACCOUNTS.name, [])]
