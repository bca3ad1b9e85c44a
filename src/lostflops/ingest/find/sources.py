"""The files to ingest: arguments expanded, formats recognised, ranks claimed."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path

from msgspec.structs import replace

from lostflops.collect.capture import FOLDER, reduced_form
from lostflops.core.errors import BrokenSource, RankConflict, SourceError, UnknownFormat, UsageError
from lostflops.core.units import pluralise
from lostflops.core.utf8 import utf8
from lostflops.ingest.common.byte_stream import ByteStream
from lostflops.ingest.common.rank_names import process_in_name, rank_in_name
from lostflops.ingest.common.reader import RankClaim
from lostflops.ingest.common.refusals import refusal_of
from lostflops.ingest.find.captures import MOST_WINDOWS, is_collectors, other_windows, raw_twins, read_instead
from lostflops.ingest.find.objects import found_objects
from lostflops.ingest.find.trace_file import NO_TRACE, UNRECOGNISED, TraceFile
from lostflops.ingest.formats import READERS
from lostflops.ingest.formats.capture import reader as capture
from lostflops.ingest.formats.kineto import reader as kineto
from lostflops.ingest.formats.nccl_log import reader as nccl_log
from lostflops.store.manifest import Source, is_run
from lostflops.store.places import Address, Place, remote

_HEAD = 64 << 10
OLDER_LOG = "a newer log of NCCL has ranks of this one; name the logs to ingest if both are needed"
OLDER_WINDOW = f"its rank has {MOST_WINDOWS} newer windows, and a run uses at most {MOST_WINDOWS} from a folder"


def find_sources(
    arguments: Sequence[str | Path], known_sources: Sequence[Source] = ()
) -> tuple[list[TraceFile], list[tuple[str, str]]]:
    """Return the files to ingest in order of path, and files in folders that no reader knows, each with a reason.

    A file that is named and not recognised is an error; a file in a named folder is skipped. Files that were read
    before and are unchanged since are not opened.
    """
    before = {source.path: source for source in known_sources}
    found: list[TraceFile] = []
    refusals: list[SourceError] = []
    listed, skipped = _list_files(arguments)
    for candidate in listed:
        path = candidate.path
        source = before.get(str(path))
        if source is not None and candidate.is_unchanged(source):
            claim = _known_claim(source, known_sources)
            found.append(replace(candidate, format=source.format, claim=claim))
        elif isinstance(path, Address):  # whoever fetches it will see
            found.append(candidate)
        elif isinstance(known := _inspect(path), TraceFile):
            found.append(replace(candidate, format=known.format, claim=known.claim))
        elif candidate.twin is not None:
            skipped.append((str(path), read_instead(str(known))))
            listed.append(candidate.twin)  # it has its turn at the end
        elif candidate.is_named:
            raise known if isinstance(known, SourceError) else unknown_format(path)
        else:
            skipped.append((str(path), str(known)))
            refusals += [known] if isinstance(known, SourceError) else []
    if not found and refusals:
        raise BrokenSource(f"none of {pluralise(len(listed), 'file')} can be read. The first error: {refusals[0]}")
    if not found:
        raise UsageError(
            f"no traces found in {', '.join(map(str, arguments))}. Give trace files, or a folder with traces."
        )
    older = dict.fromkeys(_older_windows(found), OLDER_WINDOW) | dict.fromkeys(_older_logs(found), OLDER_LOG)
    skipped += [(str(one.path), reason) for one, reason in older.items()]
    return sorted((one for one in found if one not in older), key=_by_path), skipped


def _known_claim(source: Source, known_sources: Sequence[Source]) -> RankClaim:
    """Return the ranks of a file that was read before."""
    if source.format != nccl_log.NAME:
        return RankClaim(source.rank, source.rank_source)
    ranks = [one.rank for one in known_sources if one.path == source.path]
    return RankClaim(min(ranks), source.rank_source, max(ranks) - min(ranks) + 1)


def _inspect(path: Path) -> TraceFile | SourceError | str:
    """Return the file with the format and rank that it claims, or why it is refused."""
    try:
        known = recognise_format(path)
        if known is None:
            return UNRECOGNISED
        return TraceFile(address=str(path), format=known, claim=READERS[known].rank_claim(path))
    except Exception as error:
        refusal = refusal_of(error, str(path))
        if refusal is None:
            raise
        return refusal


def _older_windows(found: Sequence[TraceFile]) -> list[TraceFile]:
    """Return the files in folders other than the newest windows of each rank that a run takes.

    A profiler may leave a file every few steps.
    """
    windows: dict[object, list[TraceFile]] = {}
    for one in found:
        whose = one.claim.rank if one.claim.rank is not None else _process(one)
        if one.format == kineto.NAME and not one.is_named and whose is not None:
            windows.setdefault(whose, []).append(one)
    newest_first = (sorted(own, key=lambda one: one.modified_ns, reverse=True) for own in windows.values())
    return [one for own in newest_first for one in own[MOST_WINDOWS:]]


def _older_logs(found: Sequence[TraceFile]) -> list[TraceFile]:
    """Return the logs of NCCL in folders that may have a rank of a newer one or of one that is named.

    A folder of logs often has those of earlier attempts, and the same lines by rank and merged.
    """
    taken: list[range] = []
    older = []
    logs = [one for one in found if one.format == nccl_log.NAME and one.claim.rank is not None]
    for one in sorted(logs, key=lambda one: (one.is_named, one.modified_ns), reverse=True):
        ranks = range(one.claim.rank or 0, (one.claim.rank or 0) + one.claim.ranks)
        if not one.is_named and any(ranks.start < other.stop and other.start < ranks.stop for other in taken):
            older.append(one)
        else:
            taken.append(ranks)
    return older


def _by_path(found: TraceFile) -> tuple[bool, tuple[str, ...]]:
    return isinstance(found.path, Address), tuple(str(found.path).split("/"))


def unknown_format(path: Place) -> UnknownFormat:
    return UnknownFormat(f"{path} has an unknown format; Lostflops reads {', '.join(READERS)}. {_advice(path)}")


def _advice(path: Place) -> str:
    if path.name.endswith((".nsys-rep", ".qdrep")):
        return f"Export it first: nsys export --type sqlite {path.name}"
    return "Give a trace exported by torch.profiler, or a Flight Recorder dump."


def _list_files(arguments: Sequence[str | Path]) -> tuple[list[TraceFile], list[tuple[str, str]]]:
    """Return the files to inspect, and those left out: windows of a capture folder, and names that cannot be a file."""
    listed: dict[Place, TraceFile] = {}
    skipped: list[tuple[str, str]] = []
    for argument in arguments:
        address = remote(argument)
        if address is not None:
            more, unusable = found_objects(address)
            skipped += unusable
        else:
            more = [TraceFile(address=str(utf8(path)), is_named=is_named) for path, is_named in _expand(str(argument))]
        for one in more:
            if one.path not in listed or one.is_named:
                listed[one.path] = one
    for path in raw_twins(listed):
        # It is mostly not opened; where it is and tells no rank, its name does.
        named = RankClaim(rank_in_name(path.name), "file name")
        twin, reduced = replace(listed.pop(path), claim=named), reduced_form(path)
        listed[reduced] = replace(listed[reduced], twin=twin)
    gone, left = other_windows(
        [path for path, one in listed.items() if not one.is_named], lambda path: listed[path].modified_ns
    )
    return [one for path, one in listed.items() if path not in gone], skipped + left


def _expand(argument: str) -> Iterator[tuple[Path, bool]]:
    path = Path(argument)
    if path.is_dir():
        yield from ((entry, False) for entry in _files_below(path))
    elif path.exists():
        yield path.resolve(), True
    elif glob.has_magic(argument):
        for match in sorted(glob.glob(argument, recursive=True)):  # noqa: PTH207 - absolute patterns too
            yield from _expand(match)
    else:
        raise UsageError(f"{argument} does not exist.")


def _files_below(folder: Path) -> Iterator[Path]:
    if is_run(folder):
        folder /= FOLDER
    for parent, folders, files in os.walk(folder):
        if is_run(Path(parent)):  # its parts are no traces
            folders.clear()
            continue
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(files):
            path = Path(parent, name)
            if name.startswith(".") or is_collectors(path):
                continue
            if (path.suffix not in NO_TRACE or _is_nccl_log(path)) and path.is_file():
                yield path.resolve()


def _is_nccl_log(path: Path) -> bool:
    """Return whether a file in a folder is a log of NCCL; other logs and texts are not mentioned."""
    try:
        return path.suffix in nccl_log.LOGS and path.is_file() and nccl_log.recognises(b"", path)
    except OSError:
        return False


def recognise_format(path: Path) -> str | None:
    head = next(ByteStream(path, block=_HEAD).blocks(), b"")[:_HEAD]
    return next((name for name, reader in READERS.items() if reader.recognises(head, path)), None)


def settle_ranks(found: Sequence[TraceFile], taken: set[int]) -> list[TraceFile]:
    """Give each file without a rank the lowest free rank, or as many in a row as it has ranks.

    All files of one process get the same rank.
    """
    used = taken | {
        source.claim.rank for source in found if source.claim.rank is not None and source.format != nccl_log.NAME
    }
    by_process = {process: one.claim.rank for one in found if (process := _process(one)) and one.claim.rank is not None}
    settled: list[TraceFile] = []
    for source in found:
        rank, process = source.claim.rank, _process(source)
        if rank is None and process is not None:
            rank = by_process.get(process)
        if rank is None:
            needed = range(source.claim.ranks)
            rank = next(first for first in count() if used.isdisjoint(first + more for more in needed))
            used.update(rank + more for more in needed)
        if process is not None:
            by_process[process] = rank
        settled.append(replace(source, claim=source.claim._replace(rank=rank)))
    return settled


def _process(source: TraceFile) -> str | None:
    """Return the process that a profiler's file names, if a process can have several files of its format."""
    return process_in_name(source.path.name) if source.format == kineto.NAME else None


def place(source_format: str, rank: int) -> tuple[str, int]:
    """Return the place that a file takes in a run: a rank has one timeline, in whatever format, and one dump."""
    reader = READERS.get(source_format)
    return "timeline" if reader is not None and reader.IS_TIMELINE else source_format, rank


Owners = dict[tuple[str, int], tuple[str, Place]]
"""Format and file that have each place of a run."""


def refuse_conflict(
    owners: Owners, source_format: str, rank: int, path: Place, *, may_be_windows: bool = False
) -> None:
    """Record that a file has a rank; raise if another file already has its place.

    Files of one profiler `may_be_windows` of one rank: this is checked after they were read.
    """
    # A rank that moves to another host is in the captures of both.
    owner = path.parent if source_format == capture.NAME else path
    other_format, other = owners.setdefault(place(source_format, rank), (source_format, owner))
    if other != owner and not (may_be_windows and other_format == source_format == kineto.NAME):
        raise rank_conflict(rank, other, owner)


def rank_conflict(rank: int, other: Place | str, owner: Place | str) -> RankConflict:
    return RankConflict(
        f"two files have rank {rank}: {other} and {owner}. "
        "Leave one out, or ingest them into two runs; --replace replaces an older file of the run."
    )
