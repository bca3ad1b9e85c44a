"""The reader protocol: a reader recognises a file, claims a rank for it, and turns it into rows of its ranks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

from lostflops.ingest.common.vocabulary import Vocabulary
from lostflops.store.parts import PartWriter

Clean = Callable[[Iterator[bytes]], Iterator[bytes]]
"""A function from the blocks of a file to the blocks that are read instead."""


class RankClaim(NamedTuple):
    """A rank that a file claims, and where the rank comes from."""

    rank: int | None
    """None if the file does not state its rank."""
    source: str
    """`recorded`, `file name`, or `assigned` if the file does not state its rank."""
    ranks: int = 1
    """Number of consecutive ranks that a file without a stated rank needs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadTask:
    """One file to read, and where its rows go."""

    path: Path
    claim: RankClaim
    parts: PartWriter
    vocabulary: Vocabulary
    spool_folder: str
    on_read: Callable[[int], None] | None = None
    clean: Clean | None = None


@dataclass(slots=True, kw_only=True)
class RankRows:
    """Facts that a file states about one of its ranks."""

    rank: int
    rank_source: str
    digest: str
    rows: Counter[str]
    """Number of rows in each table."""
    host: str | None = None
    device: str | None = None
    device_index: int | None = None
    world_size: int | None = None
    backend: str | None = None
    base_time: int = 0


class Reader(Protocol):
    NAME: str
    IS_TIMELINE: bool
    """Whether it writes `events`: a rank has one timeline, in whatever format."""

    def recognises(self, head: bytes, path: Path) -> bool:
        """Return whether a file has this format, from its first bytes, decompressed.

        Formats that end with their schema look at the end of the file too.
        """

    def rank_claim(self, path: Path) -> RankClaim:
        """Return the file's rank; of several, the lowest."""

    def ingest(self, job: ReadTask) -> list[RankRows]:
        """Read the file and write the parts of its ranks, usually one rank."""
