"""Locations of files as Iceberg names them: URLs of this machine or of an object store."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit


def local_path(location: str) -> Path | None:
    """Return the path of a file of this machine, or None if it is elsewhere.

    >>> local_path("file:///fleet/runs/data/a.parquet"), local_path("s3://bucket/a.parquet")
    (PosixPath('/fleet/runs/data/a.parquet'), None)
    """
    parts = urlsplit(location)
    return Path(parts.path) if parts.scheme in ("", "file") and not parts.netloc else None


def is_inside(location: str, place: str) -> bool:
    """Return whether a file is below a place.

    >>> is_inside("s3://bucket/fleet/a", "s3://bucket/fleet"), is_inside("file:///fleet/../b", "file:///fleet")
    (True, False)
    """
    rest = location.removeprefix(f"{place.rstrip('/')}/")
    return rest != location and ".." not in rest.split("/")
