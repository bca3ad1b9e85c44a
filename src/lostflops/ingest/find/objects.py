"""Objects of a store to ingest: the rules for local folders, files and globs, applied to a listing.

Names of objects are any text. A name that cannot be the name of a file here is left out, with the reason.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from glob import has_magic
from pathlib import PurePosixPath
from typing import Final

from lostflops.collect.capture import FOLDER, SUFFIX
from lostflops.core.errors import UsageError
from lostflops.ingest.common.rank_names import rank_in_name
from lostflops.ingest.common.reader import RankClaim
from lostflops.ingest.find.captures import is_collectors
from lostflops.ingest.find.trace_file import NO_TRACE, UNCLAIMED, TraceFile, state_of
from lostflops.ingest.formats.capture import reader as capture
from lostflops.store.objects import Listed, Objects, objects_of
from lostflops.store.places import Address, unsafe

Skipped = tuple[str, str]
_OF_RUN: Final = re.compile(
    r"(.*/)(?:commits/(?:\d{6,}\.json|probe)|data/\d{6,}(?:-[0-9a-f]{16})?/[a-z_]+/[^/]+\.parquet)", re.DOTALL
)


def found_objects(argument: Address) -> tuple[list[TraceFile], list[Skipped]]:
    """Return the objects of an address: itself, all below it, or those that match it.

    Also return names that cannot be a file on this machine, each with the reason.
    """
    objects = objects_of(argument)
    named, searched = _named_and_searched(argument, objects)
    listed = {one.address: (one, False) for one in searched} | {one.address: (one, True) for one in named}
    if not listed:
        raise UsageError(f"{argument} has no object that could be a trace.")
    found, skipped = [], []
    for _, (object_, is_named) in sorted(listed.items()):
        reason = unsafe(object_.address.url.partition("://")[2])
        if reason is None:
            found.append(_build_found(object_, is_named))
        else:
            skipped.append((object_.address.url.encode("unicode_escape").decode(), f"its name {reason}"))
    return found, skipped


def _named_and_searched(argument: Address, objects: Objects) -> tuple[list[Listed], list[Listed]]:
    """Return the objects that the argument names, and those in folders that it names."""
    if (one := objects.one(argument)) is not None:
        return [one], []
    if below := objects.below(argument):  # a folder may be called like a pattern
        return [], list(_traces_of(argument, below))
    named, folders = objects.matching(argument) if has_magic(argument.url) else ([], [])
    return named, [one for folder in folders for one in _traces_of(folder, objects.below(folder))]


def _traces_of(folder: Address, listed: Sequence[Listed]) -> Iterator[Listed]:
    """Yield objects as for a local folder: no hidden files, and from runs only what was captured into them."""
    top = f"{folder}/"
    runs = {match[1] for one in listed if (match := _OF_RUN.fullmatch(one.address.url))}
    for one in listed:
        name = one.address.url.removeprefix(top)
        is_in_run = any(one.address.url.startswith(run) for run in runs - {top})
        if top in runs:
            is_in_run = is_in_run or not name.startswith(f"{FOLDER}/")
        is_hidden = any(part.startswith(".") and part not in (".", "..") for part in name.split("/"))
        suffix = PurePosixPath(one.address.name).suffix
        if not (is_in_run or is_hidden or suffix in NO_TRACE or is_collectors(one.address)):
            yield one


def _build_found(listed: Listed, is_named: bool) -> TraceFile:
    """Build it from the name; the worker that fetches the object sees the rest."""
    name = listed.address.name
    rank = rank_in_name(name)
    claim = UNCLAIMED if rank is None else RankClaim(rank, "file name")
    source_format = capture.NAME if name.endswith(SUFFIX) else ""
    return TraceFile(
        address=str(listed.address), format=source_format, claim=claim, is_named=is_named, listed=state_of(listed)
    )
