"""Traces into a run: the least work that is right, then one atomic commit."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from lostflops.ingest.byte_stream import file_hash
from lostflops.ingest.flight_join import complete_ranks
from lostflops.ingest.pool import carry_out_all
from lostflops.ingest.sources import Found, find_sources, refuse_conflict, settle_ranks
from lostflops.ingest.tasks import Outcome, Task
from lostflops.store.commit import DATA, RunWriter
from lostflops.store.manifest import DataFile, Manifest, Source
from lostflops.store.parquet import ParquetWriter


@dataclass(frozen=True, slots=True)
class Progress:
    """How far an ingest is."""

    files_total: int
    files_done: int
    bytes_total: int
    bytes_done: int
    seconds: float


@dataclass(frozen=True, slots=True)
class IngestSummary:
    """What an ingest did."""

    run: Path
    ranks_added: tuple[int, ...]
    ranks_replaced: tuple[int, ...]
    ranks_unchanged: tuple[int, ...]
    events: int
    bytes_read: int
    seconds: float
    skipped: tuple[tuple[str, str], ...]


def ingest(
    sources: Sequence[str | Path],
    out: str | Path,
    *,
    workers: int | None = None,
    replace: bool = False,
    progress: Callable[[Progress], None] | None = None,
) -> IngestSummary:
    """Add traces to the run at `out`, or make it; files that are in it already, unchanged, are not read again.

    A file that changed replaces what was read from it before. A file that claims a rank which another
    file holds is refused, unless `replace` puts it in that file's place.
    """
    began = time.monotonic()
    found, skipped = find_sources(sources)
    with RunWriter(Path(out).resolve()) as run:
        old = run.manifest
        unchanged, fresh = _split_unchanged(found, old)
        fresh = settle_ranks(fresh, {source.rank for source in old.sources})
        tasks = [_task(source, number, run.staging) for number, source in enumerate(fresh)]
        meter = _Meter(tasks, progress, began)
        outcomes = carry_out_all(tasks, workers or os.cpu_count() or 1, meter.read, meter.done)
        kept = _kept_sources(old, outcomes, replace)
        replaced = {(source.format, source.rank) for source in old.sources} & {_key(o.source) for o in outcomes}
        if outcomes:
            files = _files(run, old, kept, outcomes)
            complete_ranks(run, files, {outcome.source.rank for outcome in outcomes})
            run.commit(kept + [outcome.source for outcome in outcomes], files)
    ranks = {outcome.source.rank for outcome in outcomes}
    replaced_ranks = {rank for _, rank in replaced}
    return IngestSummary(
        run=run.folder,
        ranks_added=tuple(sorted(ranks - {source.rank for source in old.sources})),
        ranks_replaced=tuple(sorted(replaced_ranks)),
        ranks_unchanged=tuple(sorted({source.rank for source in unchanged})),
        events=sum(outcome.source.events for outcome in outcomes),
        bytes_read=sum(outcome.source.size for outcome in outcomes),
        seconds=time.monotonic() - began,
        skipped=tuple(skipped),
    )


def _key(source: Source) -> tuple[str, int]:
    return source.format, source.rank


def _split_unchanged(found: Sequence[Found], old: Manifest) -> tuple[list[Source], list[Found]]:
    """Files that the run holds already, and files to read.

    Same path, size and time of change is taken for the same content, as make and git do; failing
    that, the content itself is compared.
    """
    by_path = {source.path: source for source in old.sources}
    by_content = {(source.size, source.hash): source for source in old.sources}
    sizes = {source.size for source in old.sources}
    unchanged: list[Source] = []
    fresh: list[Found] = []
    for candidate in found:
        status = candidate.path.stat()
        known = by_path.get(str(candidate.path))
        if known is None or (known.size, known.modified_ns) != (status.st_size, status.st_mtime_ns):
            same_size = status.st_size in sizes
            known = by_content.get((status.st_size, file_hash(candidate.path))) if same_size else None
        if known is not None and known.format == candidate.format:
            unchanged.append(known)
        else:
            fresh.append(candidate)
    return unchanged, fresh


def _task(source: Found, number: int, staging: Path) -> Task:
    assert source.claim.rank is not None
    return Task(
        path=str(source.path),
        format=source.format,
        rank=source.claim.rank,
        rank_source=source.claim.source,
        staging=str(staging),
        stem=f"{source.format}-{source.claim.rank:06d}-{number:06d}",
    )


def _kept_sources(old: Manifest, outcomes: Sequence[Outcome], replace: bool) -> list[Source]:
    """Sources of the old run that stay: not those that were read again, nor those that are replaced."""
    owners: dict[tuple[str, int], Path] = {}
    for outcome in outcomes:
        refuse_conflict(owners, *_key(outcome.source), Path(outcome.source.path))
    read_again = {outcome.source.path for outcome in outcomes}
    stay = [source for source in old.sources if source.path not in read_again]
    if replace:
        return [source for source in stay if _key(source) not in owners]
    for source in stay:
        refuse_conflict(owners, *_key(source), Path(source.path))
    return stay


def _files(
    run: RunWriter, old: Manifest, kept: Sequence[Source], outcomes: Sequence[Outcome]
) -> dict[str, list[DataFile]]:
    """Data files of the new run by table."""
    kept_keys = {_key(source) for source in kept}
    files: dict[str, list[DataFile]] = {}
    writer = ParquetWriter()
    for table, members in old.files.items():
        for file in members:
            gone = {rank for rank in file.ranks if (file.format, rank) not in kept_keys}
            rest = run.without(writer, table, file, gone) if file.format else None
            if rest is not None:
                files.setdefault(table, []).append(rest)
    writer.close()
    for outcome in outcomes:
        for table, names in outcome.files.items():
            for name in names:
                path = f"{DATA}/{run.staging.name}/{table}/{name}"
                file = DataFile(path=path, format=outcome.source.format, ranks=[outcome.source.rank])
                files.setdefault(table, []).append(file)
    return files


class _Meter:
    """Adds up what the workers report; they report from several threads."""

    def __init__(self, tasks: Sequence[Task], report: Callable[[Progress], None] | None, began: float) -> None:
        self._report = report
        self._began = began
        self._files_total, self._files_done = len(tasks), 0
        self._bytes_total, self._bytes_done = sum(Path(task.path).stat().st_size for task in tasks), 0
        self._lock = threading.Lock()

    def read(self, count: int) -> None:
        self._tell(0, count)

    def done(self) -> None:
        self._tell(1, 0)

    def _tell(self, files: int, count: int) -> None:
        with self._lock:
            self._files_done += files
            self._bytes_done += count
            if self._report is not None:
                seconds = time.monotonic() - self._began
                self._report(
                    Progress(self._files_total, self._files_done, self._bytes_total, self._bytes_done, seconds)
                )
