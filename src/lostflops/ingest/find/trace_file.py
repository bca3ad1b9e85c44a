"""A file that may be a trace: where it is, and what is known of it before it is read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lostflops.ingest.common.reader import RankClaim
from lostflops.store.manifest import Source
from lostflops.store.objects import Listed
from lostflops.store.places import Place

NO_TRACE: Final = frozenset({".py", ".md", ".txt", ".log", ".csv", ".png", ".html", ".et", ".lock"})
UNRECOGNISED: Final = "no reader recognises it"
UNCLAIMED: Final = RankClaim(None, "assigned")


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceFile:
    """A file in a known format."""

    path: Place
    format: str
    """Empty for an object that was not fetched yet."""
    claim: RankClaim
    """`claim.rank` is None if the file does not state its rank."""
    is_named: bool = False
    listed: Listed | None = None
    """The object as listed, for a file in an object store."""
    twin: TraceFile | None = None
    """The raw trace of a reduced one, which is read if this file is broken."""

    @property
    def size(self) -> int:
        return self.listed.size if self.listed else Path(str(self.path)).stat().st_size

    @property
    def modified_ns(self) -> int:
        return self.listed.modified_ns if self.listed else Path(str(self.path)).stat().st_mtime_ns

    def is_unchanged(self, source: Source) -> bool:
        """Return whether the file is as it was when it was read."""
        if self.listed is not None:
            # A store that tells no ETag tells nothing.
            return bool(source.etag) and (source.size, source.etag) == (self.listed.size, self.listed.etag)
        return isinstance(self.path, Path) and source.is_unchanged(self.path)
