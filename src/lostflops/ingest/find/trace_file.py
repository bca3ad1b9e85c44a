"""A file that may be a trace: where it is, and what is known of it before it is read."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from lostflops.ingest.common.reader import RankClaim
from lostflops.store.manifest import Source
from lostflops.store.objects import Listed
from lostflops.store.places import Place, place_of

NO_TRACE: Final = frozenset({".py", ".md", ".txt", ".log", ".csv", ".png", ".html", ".et", ".lock"})
UNRECOGNISED: Final = "no reader recognises it"
UNCLAIMED: Final = RankClaim(None, "assigned")


class ObjectState(msgspec.Struct, frozen=True):
    """A file in an object store, as it was listed."""

    size: int
    etag: str
    modified_ns: int


class TraceFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file that is to be read: plain values, because it travels to the worker that reads it."""

    address: str
    """Path on this machine, or address in an object store."""
    format: str = ""
    """Empty for an object that was not fetched yet."""
    claim: RankClaim = UNCLAIMED
    """`claim.rank` is None while the rank is unknown."""
    is_named: bool = False
    """Whether the user named it; if not, it is in a folder that the user named."""
    listed: ObjectState | None = None
    """None for a file on this machine."""
    twin: TraceFile | None = None
    """For a reduced trace, the raw trace that is read if this one is broken."""

    @property
    def path(self) -> Place:
        return place_of(self.address)

    @property
    def size(self) -> int:
        return self.listed.size if self.listed else Path(str(self.path)).stat().st_size

    @property
    def modified_ns(self) -> int:
        return self.listed.modified_ns if self.listed else Path(str(self.path)).stat().st_mtime_ns

    def is_unchanged(self, source: Source) -> bool:
        """Return whether the file is as it was when it was read."""
        if self.listed is not None:
            # Without an ETag, nothing shows whether an object changed.
            return bool(source.etag) and (source.size, source.etag) == (self.listed.size, self.listed.etag)
        return isinstance(self.path, Path) and source.is_unchanged(self.path)


def state_of(listed: Listed) -> ObjectState:
    """Return what travels with a file of what a listing shows."""
    return ObjectState(listed.size, listed.etag, listed.modified_ns)
