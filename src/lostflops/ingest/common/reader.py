"""What a reader is: it recognises a file, claims a rank for it, and turns it into its ranks' parts of the tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

from lostflops.ingest.common.vocabulary import Vocabulary
from lostflops.store.parts import PartWriter

Clean = Callable[[Iterator[bytes]], Iterator[bytes]]
"""Blocks of a file as they are to be read."""


class RankClaim(NamedTuple):
    """A rank, and where it comes from: `recorded`, `file name`, or `assigned` when nothing tells."""

    rank: int | None
    source: str
    ranks: int = 1
    """How many ranks in a row a file needs that tells none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadTask:
    """One file to read, and where its part goes."""

    path: Path
    claim: RankClaim
    parts: PartWriter
    vocabulary: Vocabulary
    spool_folder: str
    on_read: Callable[[int], None] | None = None
    clean: Clean | None = None


@dataclass(slots=True, kw_only=True)
class RankRows:
    """What a file says about one of its ranks, and how many rows it has in each table."""

    rank: int
    rank_source: str
    digest: str
    rows: Counter[str]
    host: str | None = None
    device: str | None = None
    device_index: int | None = None
    world_size: int | None = None
    backend: str | None = None
    base_time: int = 0


class Reader(Protocol):
    NAME: str
    IS_TIMELINE: bool
    """Whether it writes `events`: a rank has one timeline, whatever the format."""

    def recognises(self, head: bytes, path: Path) -> bool:
        """Tell from the first bytes of a file, decompressed; formats that end with their schema look at its end too."""

    def rank_claim(self, path: Path) -> RankClaim:
        """The file's rank, of several the lowest."""

    def ingest(self, job: ReadTask) -> list[RankRows]:
        """Read the file and write the parts of its ranks, mostly one."""
