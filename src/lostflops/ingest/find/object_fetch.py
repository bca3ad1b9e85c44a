"""Objects of a store in a worker: an object is fetched while it is read, and the written parts are sent back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from lostflops.core.errors import BrokenSource, SourceError
from lostflops.ingest.common.reader import RankClaim
from lostflops.ingest.find.sources import recognise_format, unknown_format
from lostflops.ingest.find.trace_file import UNRECOGNISED
from lostflops.ingest.formats import READERS, pipeline_schedule
from lostflops.store.objects import in_parallel, objects_of
from lostflops.store.parquet import ParquetWriter
from lostflops.store.parts import PartFile, measure_part
from lostflops.store.places import Address

_NEEDS_OTHERS: Final = {
    pipeline_schedule.NAME: "a schedule needs the files next to it. Copy its folder to this machine, and ingest that"
}


@contextmanager
def fetch_object(url: str, size: int, etag: str, own: Path) -> Iterator[Path]:
    """Fetch the object as a file of the same name, in a folder of its own that is removed afterwards."""
    address = Address(url)
    objects = objects_of(address)
    with TemporaryDirectory(dir=own) as folder:
        path = Path(folder, address.name)
        objects.fetch(address, path)
        # A large object comes in pieces, which may be of two objects in the right size.
        after = objects.one(address)
        if path.stat().st_size != size or after is None or after.etag != etag:
            raise SourceError(f"{url} changed while it was read. Ingest again when it is complete.")
        yield path


@contextmanager
def told_as(url: str, path: Path) -> Iterator[None]:
    """Report errors in the file under the address of the object."""
    try:
        yield
    except BrokenSource as error:
        said = str(error).replace(str(path), url)
        raise BrokenSource(url + said.removeprefix(path.name) if said.startswith(path.name) else said) from None


def inspect_file(path: Path, url: str, *, is_named: bool) -> tuple[str, RankClaim] | str:
    """Return the format and the rank that a file claims, or why it is skipped."""
    source_format = recognise_format(path)
    if source_format is None:
        if is_named:
            raise unknown_format(Address(url))
        return UNRECOGNISED
    if (reason := _NEEDS_OTHERS.get(source_format)) is not None:
        if is_named:
            raise SourceError(f"{url}: {reason}.")
        return reason
    return source_format, READERS[source_format].rank_claim(path)


def upload_parts(parts: Sequence[PartFile], staging: Path, stem: str, upload: str) -> list[PartFile]:
    """Send parts to the store, those of one table as one file: an object costs a request whatever its size."""
    by_table: dict[str, list[PartFile]] = {}
    for part in parts:
        by_table.setdefault(part.table, []).append(part)
    whole = [_one(members, staging, f"{stem}-all.parquet") for members in by_table.values()]
    address = Address(upload)
    objects = objects_of(address)
    in_parallel(lambda part: objects.send(staging / part.table / part.name, address / part.table / part.name), whole)
    return whole


def _one(members: Sequence[PartFile], staging: Path, name: str) -> PartFile:
    if len(members) == 1:
        return members[0]
    table = members[0].table
    paths = [staging / table / member.name for member in members]
    writer = ParquetWriter()
    try:
        writer.merge(paths, staging / table / name)
    finally:
        writer.close()
    for path in paths:
        path.unlink()
    ranks = sorted({rank for member in members for rank in member.ranks})
    return measure_part(table, staging / table / name, ranks)
