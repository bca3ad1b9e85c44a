"""The place of a file or a run: a folder of this machine, or an address in an object store.

An address is kept as text. `Path` would make `s3:/bucket` of `s3://bucket`, as it does with what is typed; `remote`
undoes that, and is the only place that distinguishes the two kinds.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lostflops.core.errors import UsageError

SCHEMES: Final = ("s3",)
_TYPED: Final = re.compile(rf"({'|'.join(SCHEMES)}):/{{1,2}}([^/].*)", re.DOTALL)
_URL: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://|(gs|gcs|abfss?|adl|az|hdfs|oss|s3a|s3n|S3|https?):/[^/]")
"""Other URLs; those of known stores also as `Path` changes them, because they would be names of local folders."""
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_LONGEST_NAME: Final = 255


@dataclass(frozen=True, slots=True, order=True)
class Address:
    """An object, or all objects that begin with it and a slash.

    >>> Address("s3://bucket/run").parent / "traces"
    Address(url='s3://bucket/traces')
    """

    url: str

    def __str__(self) -> str:
        return self.url

    def __truediv__(self, name: str) -> Address:
        return Address(f"{self.url}/{name}")

    @property
    def name(self) -> str:
        return self.url.rpartition("/")[2]

    @property
    def parent(self) -> Address:
        return Address(self.url.rpartition("/")[0])

    def with_name(self, name: str) -> Address:
        return self.parent / name


Place = Path | Address


def remote(place: str | Place) -> Address | None:
    """Return the address, or None for a path on this machine.

    >>> remote("s3://bucket/run/"), remote(Path("s3://bucket/run")), remote("runs/s3")
    (Address(url='s3://bucket/run'), Address(url='s3://bucket/run'), None)
    """
    if isinstance(place, Address):
        return place
    text = str(place)
    if (found := _TYPED.fullmatch(text)) is not None:
        if "@" in found[2].partition("/")[0]:
            raise UsageError(f"{found[1]}:// addresses cannot contain keys: set AWS_ACCESS_KEY_ID or a profile.")
        return Address(f"{found[1]}://{found[2].rstrip('/')}")
    if (other := _URL.match(text)) is not None:
        known = ", ".join(f"{scheme}://" for scheme in SCHEMES)
        scheme = other[1] or other[2]
        raise UsageError(f"Lostflops cannot read {scheme}://, only {known}. Copy the files to this machine first.")
    return None


def place_of(text: str | Path) -> Place:
    """Return the address if `remote` finds one, otherwise the path as it is."""
    return remote(text) or Path(text)


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Give errors of a file its name: the system gives none to errors of a file that is open already."""
    try:
        yield
    except OSError as error:
        if error.filename is not None or error.errno is None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from None


def cache_folder() -> Path:
    """Return the folder for what can be fetched or computed again; raise OSError if the user has none."""
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").resolve() / "lostflops"
    except RuntimeError:
        raise FileNotFoundError(errno.ENOENT, "no home directory: set XDG_CACHE_HOME to a folder") from None


def folder_for(path: Path, what: str) -> Path:
    """Return a local path; raise if it is an address, for output that cannot go to a store."""
    if (address := remote(path)) is not None:
        raise UsageError(f"{what} to a local folder, not to {address}.")
    return path


def as_typed(place: str | Place) -> str:
    """Return the place as its user would type it.

    >>> as_typed(Path("s3://bucket/run")), as_typed(Path("runs/a"))
    ('s3://bucket/run', 'runs/a')
    """
    return str(remote(place) or place)


def unsafe(name: str) -> str | None:
    """Return why the name of an object, or its rest below a folder, cannot be a path here; None if it can.

    >>> unsafe("a/b.json"), unsafe("../b.json"), unsafe("a//b")
    (None, "has a part that is not a file name ('..')", "has a part that is not a file name ('')")
    """
    if _CONTROL.search(name):
        return "has control characters"
    for part in name.split("/"):
        if part in ("", ".", "..") or len(part.encode()) > _LONGEST_NAME:
            return f"has a part that is not a file name ({part[:40]!r})"
    return None
