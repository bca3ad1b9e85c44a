"""Which files to ingest: arguments expanded, formats recognised, ranks claimed."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

from lostflops.capture import FOLDER
from lostflops.errors import RankConflict, UnknownFormat, UsageError
from lostflops.ingest.byte_stream import ByteStream
from lostflops.ingest.captures import is_request, other_windows, raw_twins
from lostflops.ingest.readers import READERS, capture
from lostflops.ingest.reading import RankClaim
from lostflops.store.manifest import Source, is_run
from lostflops.utf8 import utf8

_HEAD = 64 << 10
_NO_TRACE = frozenset({".py", ".md", ".txt", ".log", ".csv", ".png", ".html", ".et", ".lock"})


@dataclass(frozen=True, slots=True)
class Found:
    """A file in a known format; `claim.rank` is None when nothing tells it."""

    path: Path
    format: str
    claim: RankClaim
    is_named: bool = False


def find_sources(
    arguments: Sequence[str | Path], known_sources: Sequence[Source] = ()
) -> tuple[list[Found], list[tuple[str, str]]]:
    """Files to ingest in order of path, and files in folders that no reader knows, each with a reason.

    A file that is named and not recognised is an error; one that merely lies in a folder is skipped. Files that were
    read before and did not change since are not opened.
    """
    before = {source.path: source for source in known_sources}
    found: dict[Path, Found] = {}
    listed, skipped = _listed(arguments)
    for path, is_named in listed.items():
        source = before.get(str(path))
        if source is not None and source.is_unchanged(path):
            found[path] = Found(path, source.format, RankClaim(source.rank, source.rank_source), is_named)
            continue
        known = _recognise(path)
        if known is not None:
            found[path] = Found(path, known, READERS[known].rank_claim(path), is_named)
        elif is_named:
            raise UnknownFormat(f"{path} is in no format that Lostflops reads ({', '.join(READERS)}). {_advice(path)}")
        else:
            skipped.append((str(path), "no reader recognises it"))
    if not found:
        raise UsageError(
            f"no traces found in {', '.join(map(str, arguments))}. Name trace files, or a folder with them."
        )
    return sorted(found.values(), key=lambda source: source.path), skipped


def _advice(path: Path) -> str:
    if path.suffix in (".nsys-rep", ".qdrep"):
        return f"Export it first: nsys export --type sqlite {path.name}"
    return "Give the trace that torch.profiler exported, or a Flight Recorder dump."


def _listed(arguments: Sequence[str | Path]) -> tuple[dict[Path, bool], list[tuple[str, str]]]:
    """Files to look at, and whether they were named; of a capture folder the traces of one window, and those left."""
    listed: dict[Path, bool] = {}
    for argument in arguments:
        for path, is_named in _expand(str(argument)):
            listed[utf8(path)] = listed.get(path, False) or is_named
    for path in raw_twins(listed):
        del listed[path]
    gone, left = other_windows([path for path, is_named in listed.items() if not is_named])
    return {path: is_named for path, is_named in listed.items() if path not in gone}, left


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
            if path.suffix in _NO_TRACE or name.startswith(".") or is_request(path):
                continue
            if path.is_file():
                yield path.resolve()


def _recognise(path: Path) -> str | None:
    head = next(ByteStream(path, block=_HEAD).blocks(), b"")[:_HEAD]
    return next((name for name, reader in READERS.items() if reader.recognises(head, path)), None)


def settle_ranks(found: Sequence[Found], taken: set[int]) -> list[Found]:
    """Give each file without a rank the lowest free one, or as many in a row as it holds."""
    used = taken | {source.claim.rank for source in found if source.claim.rank is not None}
    settled: list[Found] = []
    for source in found:
        rank = source.claim.rank
        if rank is None:
            needed = range(source.claim.ranks)
            rank = next(first for first in count() if used.isdisjoint(first + more for more in needed))
            used.update(rank + more for more in needed)
        settled.append(replace(source, claim=source.claim._replace(rank=rank)))
    return settled


def place(source_format: str, rank: int) -> tuple[str, int]:
    """What a file takes in a run: a rank has one timeline, in whatever format, and one dump beside it."""
    reader = READERS.get(source_format)
    return "timeline" if reader is not None and reader.IS_TIMELINE else source_format, rank


def refuse_conflict(owners: dict[tuple[str, int], Path], source_format: str, rank: int, path: Path) -> None:
    """Note that a file is a rank's; raise when another one has its place already."""
    # A rank that moves to another host is in the captures of both.
    owner = path.parent if source_format == capture.NAME else path
    other = owners.setdefault(place(source_format, rank), owner)
    if other != owner:
        raise RankConflict(
            f"two files claim rank {rank}: {other} and {owner}. "
            "Leave one out, or ingest them into two runs; --replace puts a new file in the place of an old one."
        )
