"""Rounds of an ingest: files become tasks, and those whose rank turns out to be another's are read again."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count, groupby, islice
from pathlib import Path

from msgspec.structs import replace

from lostflops.ingest.common.rank_names import rank_in_name
from lostflops.ingest.common.reader import RankClaim
from lostflops.ingest.find.sources import place
from lostflops.ingest.find.trace_file import TraceFile
from lostflops.ingest.tasks import WORK, FileBatch, TaskOutcome, Unclaimed
from lostflops.store.commit import MOST_SINGLE_RANKS, RANKS_PER_FILE, RunWriter
from lostflops.store.manifest import Manifest
from lostflops.store.places import Place
from lostflops.store.scratch import scratch_folder
from lostflops.store.spread.engines import ChosenEngine
from lostflops.store.spread.names import EngineName
from lostflops.store.spread.work import Engine


@dataclass(frozen=True, slots=True)
class IngestProgress:
    """Progress of an ingest."""

    files_total: int
    files_done: int
    bytes_total: int
    bytes_done: int
    seconds: float


class Rounds:
    """Reads the files of one ingest on one engine, usually in one round."""

    def __init__(self, run: RunWriter, old: Manifest, spread: ChosenEngine, meter: Meter) -> None:
        self._run, self._old, self._spread, self._meter = run, old, spread, meter
        # Machines of a cluster do not share a folder of this one.
        is_elsewhere = bool(run.upload) and spread.name is not EngineName.LOCAL
        self._staging = "" if is_elsewhere else str(run.staging)
        self._scratch = ""
        self._made = 0

    def carry_out(self, found: Sequence[TraceFile]) -> list[TaskOutcome]:
        if self._spread.name is not EngineName.LOCAL or all(one.listed is None for one in found):
            return self._outcomes(found)
        with scratch_folder() as folder:
            self._scratch = str(folder)
            return self._outcomes(found)

    def _outcomes(self, found: Sequence[TraceFile]) -> list[TaskOutcome]:
        tasks = self._tasks(found)
        if not tasks:
            return []
        with self._spread.engine() as engine:
            outcomes = self._carry_out(engine, tasks)
            if late := self._assign_free_ranks(tasks, outcomes):
                self._meter.again(len(late))
                tasks += late
                outcomes += self._carry_out(engine, late)
            return self._reassign_ranks(tasks, outcomes, engine)

    def _carry_out(self, engine: Engine, tasks: list[FileBatch]) -> list[TaskOutcome]:
        """Return an outcome for each task; files of a task over which workers died are read again, one by one."""
        outcomes = engine.map(WORK, tasks, self._meter.read, self._meter.count_done)
        for number, (task, outcome) in enumerate(zip(tasks, outcomes, strict=True)):
            if not outcome.died:
                continue
            if len(task.files) == 1:
                outcomes[number] = TaskOutcome(skipped=[(task.files[0].address, outcome.died)])
                continue
            self._meter.again(len(task.files))
            single = [self._task(task.format, [file]) for file in task.files]
            outcomes[number] = _joined(self._carry_out(engine, single))
        return outcomes

    def _tasks(self, found: Sequence[TraceFile]) -> list[FileBatch]:
        """Return tasks of one file each, or of several ranks if there are very many ranks.

        A file per rank would then be too many. A task has at most one file of each rank.
        """
        turns = _turns(found)
        ordered = sorted(
            found,
            key=lambda one: (one.listed is not None, one.format, turns[one.path], one.claim.rank or 0, str(one.path)),
        )
        is_many = len({source.claim.rank for source in found}) > MOST_SINGLE_RANKS
        size = max(1, min(RANKS_PER_FILE, len(ordered) // (4 * self._spread.workers))) if is_many else 1
        if self._run.upload:  # what is sent is not merged later, which would bring it all here
            size = max(size, -(-len(ordered) // MOST_SINGLE_RANKS))
        return [
            self._task(source_format, [_planned(member) for member in batch])
            for (source_format, _), members in groupby(ordered, key=lambda one: (one.format, turns[one.path]))
            for batch in _split_into_batches(members, size)
        ]

    def _task(self, source_format: str, files: list[TraceFile]) -> FileBatch:
        stem = f"{files[0].claim.rank or 0:06d}-{self._made:06d}"
        self._made += 1
        return FileBatch(
            format=source_format,
            files=files,
            staging=self._staging,
            stem=stem,
            upload=self._run.upload,
            scratch=self._scratch,
        )

    def _assign_free_ranks(self, tasks: Sequence[FileBatch], outcomes: Sequence[TaskOutcome]) -> list[FileBatch]:
        """Give objects without a rank the lowest free ranks, and return their tasks.

        A worker sees that an object states no rank only after it fetched it.
        """
        unclaimed = sorted((one for outcome in outcomes for one in outcome.unclaimed), key=lambda one: one.path)
        taken = {source.rank for outcome in outcomes for source in outcome.sources}
        taken |= {source.rank for source in self._old.sources}
        files = {file.address: file for task in tasks for file in task.files}
        late: list[FileBatch] = []
        for one in unclaimed:
            first = _free(one, taken)
            taken.update(range(first, first + one.ranks))
            late.append(self._task(one.format, [replace(files[one.path], claim=RankClaim(first, "assigned"))]))
        again = {one.path for one in unclaimed}
        for task in tasks:
            task.files = [file for file in task.files if file.address not in again]
        return late

    def _reassign_ranks(
        self, tasks: Sequence[FileBatch], outcomes: list[TaskOutcome], engine: Engine
    ) -> list[TaskOutcome]:
        """Read files again if their assigned rank belongs to another file.

        Some files record their rank after the events, so it is known only at the end.
        """
        read = [source for outcome in outcomes for source in outcome.sources]
        recorded = {place(source.format, source.rank) for source in read if source.rank_source != "assigned"}
        losers = {
            source.path
            for source in read
            if source.rank_source == "assigned" and place(source.format, source.rank) in recorded
        }
        if not losers:
            return outcomes
        taken = {source.rank for source in (*read, *self._old.sources)}
        free = (rank for rank in count() if rank not in taken)
        kept, repeated = [], []
        for task, outcome in zip(tasks, outcomes, strict=True):
            if losers.isdisjoint(file.address for file in task.files):
                kept.append(outcome)
                continue
            if task.staging:
                for written in outcome.files:
                    Path(task.staging, written.part.table, written.part.name).unlink()
            task.files = [
                replace(file, claim=file.claim._replace(rank=next(free))) if file.address in losers else file
                for file in task.files
            ]
            repeated.append(task)
        return kept + self._carry_out(engine, repeated)


def _joined(outcomes: Iterable[TaskOutcome]) -> TaskOutcome:
    whole = TaskOutcome()
    for outcome in outcomes:
        whole.sources += outcome.sources
        whole.files += outcome.files
        whole.skipped += outcome.skipped
        whole.unclaimed += outcome.unclaimed
    return whole


def _turns(found: Sequence[TraceFile]) -> dict[Place, int]:
    """Return for each file how many files of its rank come before it, as far as claims and names show."""
    seen: Counter[tuple[str, int]] = Counter()
    turns: dict[Place, int] = {}
    for one in sorted(found, key=lambda one: str(one.path)):
        rank = one.claim.rank if one.claim.rank is not None else rank_in_name(one.path.name)
        turns[one.path] = seen[one.format, rank] if rank is not None else 0
        if rank is not None:
            seen[one.format, rank] += 1
    return turns


def _planned(file: TraceFile) -> TraceFile:
    """Return the file with the rank that a worker gives it; an object's name is read where the object is fetched, so
    only objects without a rank in it are given one."""
    claim = file.claim
    if file.listed is None:
        claim = RankClaim(claim.rank or 0, claim.source)
    else:
        claim = RankClaim(claim.rank if claim.source == "assigned" else None, "assigned")
    return replace(file, claim=claim, twin=_planned(file.twin) if file.twin else None)


def _free(one: Unclaimed, taken: set[int]) -> int:
    return next(first for first in count() if taken.isdisjoint(range(first, first + one.ranks)))


def _split_into_batches(items: Iterable[TraceFile], size: int) -> Iterator[list[TraceFile]]:
    """Split into batches, like itertools.batched, which Python 3.11 does not have."""
    iterator = iter(items)
    while batch := list(islice(iterator, size)):
        yield batch


class Meter:
    """Adds up what the workers report, from several threads."""

    def __init__(
        self, found: Sequence[TraceFile], report: Callable[[IngestProgress], None] | None, began: float
    ) -> None:
        self._report = report
        self._began = began
        self._files_total, self._files_done = len(found), 0
        self._bytes_total, self._bytes_done = sum(source.size for source in found), 0
        self._lock = threading.Lock()

    def read(self, count: int) -> None:
        self._tell(0, count)

    def count_done(self, task: FileBatch) -> None:
        self._tell(len(task.files), 0)

    def again(self, files: int) -> None:
        """Take back files that were inspected but not read."""
        self._tell(-files, 0)

    def _tell(self, files: int, count: int) -> None:
        with self._lock:
            self._files_done += files
            self._bytes_done += count
            if self._report is not None:
                seconds = time.monotonic() - self._began
                self._report(
                    IngestProgress(self._files_total, self._files_done, self._bytes_total, self._bytes_done, seconds)
                )
