"""Ingest of traces into a run: only files that need it are read, then one atomic commit."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb
from msgspec import structs

from lostflops.collect.capture import trace_of
from lostflops.core.defects import describe_defect
from lostflops.core.errors import BrokenSource, RunError, SourceError
from lostflops.ingest.common.byte_stream import file_hash
from lostflops.ingest.common.rank_names import process_in_name
from lostflops.ingest.common.reader import RankClaim
from lostflops.ingest.common.refusals import ProgressFailed, guard, is_defect, refusal_of
from lostflops.ingest.find.captures import (
    belong_together,
    find_superseded,
    forms,
    left_by_older_attempt,
    of_older_attempts,
)
from lostflops.ingest.find.jobs import refuse_several_jobs
from lostflops.ingest.find.sources import (
    OLDER_LOG,
    OLDER_WINDOW,
    Owners,
    find_sources,
    place,
    refuse_conflict,
    settle_ranks,
)
from lostflops.ingest.find.trace_file import TraceFile, state_of
from lostflops.ingest.formats.capture import reader as capture
from lostflops.ingest.formats.kineto import reader as kineto
from lostflops.ingest.formats.nccl_log import reader as nccl_log
from lostflops.ingest.join.agreed_steps import drop_disagreed_steps
from lostflops.ingest.join.alignment import align_ranks, hosts_of
from lostflops.ingest.join.captures import attempts_of_traces, drop_known_groups, number_attempts
from lostflops.ingest.join.flight import complete_ranks
from lostflops.ingest.join.rings import number_by_ring
from lostflops.ingest.join.snapshots import keep_one_history
from lostflops.ingest.join.windows import WindowBatch, join_windows
from lostflops.ingest.rounds import IngestProgress, Meter, Rounds
from lostflops.ingest.tasks import TaskOutcome
from lostflops.store.asking import asking
from lostflops.store.commit import DATA, RunWriter
from lostflops.store.derived import carry_over
from lostflops.store.manifest import DataFile, Manifest, Source
from lostflops.store.objects import objects_of
from lostflops.store.parquet import ParquetWriter
from lostflops.store.places import Place, place_of
from lostflops.store.remote_commit import writer_of
from lostflops.store.scratch import remove_abandoned, scratch_folder
from lostflops.store.spread.engines import ChosenEngine
from lostflops.store.spread.names import EngineName


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestSummary:
    """Summary of an ingest."""

    run: Place
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
    engine: EngineName = EngineName.LOCAL,
    progress: Callable[[IngestProgress], None] | None = None,
    is_early: bool = False,
) -> IngestSummary:
    """Add traces to the run at `out`, or create it; files that it already has, unchanged, are not read again.

    A file that changed replaces what was read from it before. A file that claims the rank of another file is refused,
    unless `replace` is set: it then replaces that file. A job that ingests its own traces while it trains sets
    `is_early`: other ingests wait for it.
    """
    remove_abandoned()
    spread = ChosenEngine(engine, workers)
    guarded = guard(progress) if progress is not None else None

    def attempt(refused: Mapping[str, SourceError]) -> IngestSummary:
        run = writer_of(out, is_early=is_early)
        with asking():
            return _ingest(sources, run, spread, replace, progress=guarded, refused=refused)

    try:
        try:
            return attempt({})
        except Exception as error:
            if not is_defect(error) or not (faulty := _find_faulty(sources)):
                raise
        return attempt(faulty)
    except ProgressFailed as failed:
        raise failed.error from None
    except OSError as error:
        what = f"{error.strerror or error}: {error.filename or out}"
        raise SourceError(f"{what}. Check the files, their permissions and the disk.") from None
    except duckdb.Error as error:
        raise RunError(f"{out} cannot be written: {error}") from None
    except Exception as error:
        if not is_defect(error):
            raise
        raise RunError(f"{out} cannot be written: {describe_defect(error)}.") from error


def _find_faulty(sources: Sequence[str | Path]) -> dict[str, SourceError]:
    """Return the sources that cannot be ingested even alone, because of a defect, each with its refusal.

    Sources are joined after each was read; if that fails, this finds out which one it is about.
    """
    faulty: dict[str, SourceError] = {}
    for one in find_sources(sources)[0]:
        with scratch_folder() as folder:
            try:
                _ingest([one.address], writer_of(folder / "run"), ChosenEngine(asked=1), refused={})
            except Exception as error:
                if is_defect(error) and (refusal := refusal_of(error, one.address)) is not None:
                    if one.is_named:
                        raise refusal from error
                    faulty[one.address] = refusal
    return faulty


def _ingest(
    sources: Sequence[str | Path],
    writer: RunWriter,
    spread: ChosenEngine,
    replace: bool = False,
    *,
    progress: Callable[[IngestProgress], None] | None = None,
    refused: Mapping[str, SourceError],
) -> IngestSummary:
    began = time.monotonic()
    with writer as run:
        before = run.manifest.sources
        found, skipped = find_sources(sources, before)
        skipped += [(one.address, str(refused[one.address])) for one in found if one.address in refused]
        found = [one for one in found if one.address not in refused]
        refuse_several_jobs(found, sources)
        old = _without_superseded(
            run.manifest, found, {path for path, why in skipped if why in {OLDER_WINDOW, OLDER_LOG}}
        )
        unchanged, fresh = _split_unchanged(found, old, before)
        moved = {str(source.path) for source in fresh if source.claim.rank is None}
        here = [source for source in fresh if source.listed is None]
        objects = [source for source in fresh if source.listed is not None]
        taken = {source.rank for source in old.sources if source.path not in moved and source.format != nccl_log.NAME}
        fresh = settle_ranks(here, taken) + objects
        _refuse_known_conflicts(fresh, unchanged, old, replace)
        outcomes = Rounds(run, old, spread, Meter(fresh, progress, began)).carry_out(fresh)
        read = [source for outcome in outcomes for source in outcome.sources]
        skipped += [entry for outcome in outcomes for entry in outcome.skipped]
        if not read and not unchanged:
            raise BrokenSource(
                f"none of {len(found) + len(refused)} files can be read. The first error: {skipped[0][1]}"
            )
        kept = _kept_sources(old, read, replace)
        if read or len(old.sources) < len(before):
            files, batches = _files(run, old, kept, outcomes)
            number_attempts(run, files)
            for source, reason in join_windows(run, files, batches):
                read.remove(source)
                skipped.append(reason)
            complete_ranks(run, files, {source.rank for source in read})
            held, left = _of_one_attempt(run, files, kept + read)
            skipped += left
            drop_known_groups(run, files)
            keep_one_history(run, files)
            number_by_ring(run, files, {source.rank for source in read})
            drop_disagreed_steps(run, files)
            align_ranks(run, files, held)
            carry_over(run, files, hosts_of(held))
            run.commit(held, files)
    replaced = {_place(source) for source in before} & {_place(source) for source in read}
    return IngestSummary(
        run=run.place,
        ranks_added=tuple(sorted({source.rank for source in read} - {source.rank for source in before})),
        ranks_replaced=tuple(sorted({rank for _, rank in replaced})),
        ranks_unchanged=tuple(sorted({source.rank for source in unchanged})),
        events=sum(source.events for source in read),
        bytes_read=sum({source.path: source.size for source in read}.values()),
        seconds=time.monotonic() - began,
        skipped=tuple(skipped),
    )


def _place(source: Source) -> tuple[str, int]:
    return place(source.format, source.rank)


def _without_superseded(manifest: Manifest, found: Sequence[TraceFile], older: set[str]) -> Manifest:
    """Return the run without the traces that are superseded by other windows of their folder."""
    gone = find_superseded([source.path for source in found], manifest.sources) | older
    return structs.replace(manifest, sources=[source for source in manifest.sources if source.path not in gone])


def _split_unchanged(
    found: Sequence[TraceFile], old: Manifest, before: Sequence[Source]
) -> tuple[list[Source], list[TraceFile]]:
    """Return the files that the run already has, and the files to read."""
    unchanged, fresh = _compare_with_run(found, old)
    gone = {source.path for source in before} - {source.path for source in old.sources}
    captures = [source.path for source in fresh if source.format == capture.NAME]
    again = belong_together(old.sources, captures, gone)
    again |= _windows_to_join(unchanged, fresh, [source for source in before if source.path in gone])
    again -= {str(source.path) for source in fresh}
    fresh += _known_again(old, again, set(map(str, captures)))
    return [source for source in unchanged if source.path not in again], fresh


def _windows_to_join(unchanged: Sequence[Source], fresh: Sequence[TraceFile], gone: Sequence[Source]) -> set[str]:
    """Return unchanged traces of ranks that gain or lose a window.

    They must be read again: events are numbered across all windows of a rank.
    """
    ranks = {source.claim.rank for source in fresh if source.format in ("", kineto.NAME)}
    ranks |= {trace[0] for source in fresh if (trace := trace_of(source.path.name)) is not None}
    ranks |= {source.rank for source in gone if source.format == kineto.NAME}
    processes = {process_in_name(source.path.name) for source in fresh} - {None}
    return {
        source.path
        for source in unchanged
        if source.format == kineto.NAME
        and (source.rank in ranks or process_in_name(place_of(source.path).name) in processes)
    }


def _known_again(old: Manifest, again: set[str], captures: set[str]) -> list[TraceFile]:
    """Return the files of the run to read again, including files that the user did not name."""
    read = {source.rank for source in old.sources if source.path in captures}
    known = {source.path: source for source in old.sources if source.path in again}
    for source in old.sources:
        if source.path in again and not _is_there(place_of(source.path)):
            if source.rank in read:
                raise SourceError(
                    f"{source.path} is gone, but it is needed: its rank {source.rank} is also in a file that changed. "
                    "Put it back, or ingest the remaining files into a new run."
                )
            known.pop(source.path, None)
    return [_found_again(place_of(path), source) for path, source in known.items()]


def _is_there(path: Place) -> bool:
    return path.exists() if isinstance(path, Path) else objects_of(path).one(path) is not None


def _found_again(path: Place, source: Source) -> TraceFile:
    claim = RankClaim(source.rank, source.rank_source)
    known = TraceFile(address=str(path), format=source.format, claim=claim)
    listed = None if isinstance(path, Path) else objects_of(path).one(path)
    return known if listed is None else structs.replace(known, listed=state_of(listed))


def _compare_with_run(found: Sequence[TraceFile], old: Manifest) -> tuple[list[Source], list[TraceFile]]:
    """Return the files that did not change, and the others; if path or time differ, the content decides."""
    by_path: dict[str, list[Source]] = {}
    for source in old.sources:
        by_path.setdefault(source.path, []).append(source)
    by_content: dict[tuple[int, str], list[list[Source]]] = {}
    for own in by_path.values():
        by_content.setdefault((own[0].size, own[0].hash), []).append(own)
    sizes = {source.size for source in old.sources}
    unchanged: list[Source] = []
    fresh: list[TraceFile] = []
    for candidate in found:
        before = by_path.get(str(candidate.path))
        alike = [before] if before is not None and candidate.is_unchanged(before[0]) else []
        if not alike and isinstance(candidate.path, Path) and (size := candidate.size) in sizes:
            alike = by_content.get((size, file_hash(candidate.path)), [])
        known = next((own for own in alike if _may_be(candidate, own)), None)
        if known is not None:
            unchanged += known
        else:
            fresh.append(_with_old_rank(candidate, before or []))
    return unchanged, fresh


def _may_be(candidate: TraceFile, known: Sequence[Source]) -> bool:
    """Return whether a file with this content claims only ranks that were read from it."""
    is_claimed = candidate.claim.rank is None or candidate.claim.rank in {source.rank for source in known}
    return is_claimed and candidate.format == known[0].format


def _with_old_rank(candidate: TraceFile, before: Sequence[Source]) -> TraceFile:
    """Return the file with the rank assigned to it before, if it states no rank and has no more ranks than then."""
    claim = candidate.claim
    if claim.rank is not None or len(before) < claim.ranks or candidate.format not in ("", before[0].format):
        return candidate
    return structs.replace(candidate, claim=RankClaim(before[0].rank, "assigned"))


def _refuse_known_conflicts(
    fresh: Sequence[TraceFile], unchanged: Sequence[Source], old: Manifest, replace: bool
) -> None:
    """Refuse conflicts that the claims already show, before anything is read."""
    owners: Owners = {}
    for source in unchanged:
        refuse_conflict(owners, source.format, source.rank, place_of(source.path), may_be_windows=True)
    for candidate in fresh:
        if candidate.listed is None and candidate.claim.source != "assigned":
            claimed = candidate.claim.rank or 0
            refuse_conflict(owners, candidate.format, claimed, candidate.path, may_be_windows=True)
    if not replace:
        known = {str(candidate.path) for candidate in fresh} | {source.path for source in unchanged}
        for source in old.sources:
            if source.path not in known and _place(source) in owners:
                refuse_conflict(owners, source.format, source.rank, place_of(source.path))


def _kept_sources(old: Manifest, read: Sequence[Source], replace: bool) -> list[Source]:
    """Return the sources of the old run that stay: neither read again nor replaced."""
    owners: Owners = {}
    for source in read:
        refuse_conflict(owners, source.format, source.rank, place_of(source.path), may_be_windows=True)
    read_again = {path for source in read for path in forms(place_of(source.path))}
    stay = [source for source in old.sources if source.path not in read_again]
    if replace:
        return [source for source in stay if _place(source) not in owners]
    for source in stay:
        if _place(source) in owners:
            refuse_conflict(owners, source.format, source.rank, place_of(source.path))
    return stay


def _files(
    run: RunWriter, old: Manifest, kept: Sequence[Source], outcomes: Sequence[TaskOutcome]
) -> tuple[dict[str, list[DataFile]], list[WindowBatch]]:
    """Return all data files of the new run by table, and the new files grouped by what was read together."""
    kept_keys = {(source.format, source.rank) for source in kept}
    files: dict[str, list[DataFile]] = {}
    writer = ParquetWriter()
    for table, members in old.files.items():
        for file in members:
            gone = {rank for rank in file.ranks if (file.format, rank) not in kept_keys}
            rest = run.without(writer, table, file, gone) if file.format else None
            if rest is not None:
                files.setdefault(table, []).append(rest)
    writer.close()
    batches: list[WindowBatch] = []
    for outcome in outcomes:
        batches.append(WindowBatch(outcome.sources, {}))
        for written in outcome.files:
            part = written.part
            path = f"{DATA}/{run.staging.name}/{part.table}/{part.name}"
            file = DataFile(path=path, format=written.format, ranks=part.ranks, bytes=part.bytes, crc32=part.crc32)
            files.setdefault(part.table, []).append(file)
            batches[-1].files.setdefault(part.table, []).append(file)
    return files, batches


def _of_one_attempt(
    run: RunWriter, files: dict[str, list[DataFile]], sources: list[Source]
) -> tuple[list[Source], list[tuple[str, str]]]:
    """Return the sources to keep, and the traces of older attempts with the reason; `files` loses their rows."""
    old = of_older_attempts(attempts_of_traces(run, files))
    gone = [source for source in sources if source.rank in old and trace_of(Path(source.path).name) is not None]
    writer = ParquetWriter()
    for source_format, ranks in {source.format: {one.rank for one in gone} for source in gone}.items():
        for table, members in files.items():
            rest = [run.without(writer, table, one, ranks) if one.format == source_format else one for one in members]
            files[table] = [file for file in rest if file is not None]
    writer.close()
    return [source for source in sources if source not in gone], [left_by_older_attempt(source) for source in gone]
