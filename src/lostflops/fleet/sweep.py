"""Files of a table that none of its versions names: of writers that were killed, and of versions that were removed."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any, Final

from lostflops.fleet.locations import local_path
from lostflops.store.objects import objects_of
from lostflops.store.places import remote

GRACE_SECONDS: Final = 3600.0
"""Age at which a file that no version names belongs to no writer that is still at work."""
_PARTS: Final = ("data", "metadata")


def sweep(table: Any) -> None:
    """Delete files that no version names and that are old enough.

    A file that some version between the oldest and the newest names is in one of these two, or was written after the
    oldest. So only these two are read.
    """
    versions = sorted(table.metadata.snapshots, key=lambda version: version.timestamp_ms)
    if not versions:
        return
    ends = [versions[0], versions[-1]] if len(table.metadata.refs) == 1 else versions
    kept = list_named(table, ends)
    last = min(time.time(), versions[0].timestamp_ms / 1e3) - GRACE_SECONDS
    for location, modified in list(_list_files(table.location())):
        if modified < last and location not in kept:
            remove_file(table, location)


def list_named(table: Any, versions: Iterable[Any]) -> set[str]:
    """Return the files that versions name, and the table's own metadata."""
    metadata = table.metadata
    named = {table.metadata_location, *(entry.metadata_file for entry in metadata.metadata_log)}
    named.update(statistics.statistics_path for statistics in (*metadata.statistics, *metadata.partition_statistics))
    for version in versions:
        named.add(version.manifest_list)
        for manifest in version.manifests(table.io):
            if manifest.manifest_path not in named:
                named.add(manifest.manifest_path)
                named.update(entry.data_file.file_path for entry in manifest.fetch_manifest_entry(table.io))
    return named


def remove_file(table: Any, location: str) -> None:
    """Delete a file; one that stays is found again later."""
    with suppress(Exception):
        table.io.delete(location)


def _list_files(location: str) -> Iterator[tuple[str, float]]:
    """Return each file and its Unix time of modification; nothing for places other than a folder or an S3 store."""
    folder = local_path(location)
    for part in _PARTS:
        if folder is not None:
            for path in (folder / part).glob("*"):
                with suppress(OSError):  # another writer may have removed it
                    yield f"{location}/{part}/{path.name}", path.stat().st_mtime
        elif location.startswith("s3://") and (address := remote(location)) is not None:
            for entry in objects_of(address).below(address / part):
                yield str(entry.address), entry.modified_ns / 1e9
