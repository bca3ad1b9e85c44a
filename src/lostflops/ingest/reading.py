"""What a reader is: it recognises a file, claims a rank for it, and turns it into a rank's part of the tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

from lostflops.ingest.vocabulary import Vocabulary
from lostflops.store.parts import PartWriter


class RankClaim(NamedTuple):
    """A rank, and where it comes from: `recorded`, `file name`, or `assigned` when nothing tells."""

    rank: int | None
    source: str


@dataclass(frozen=True, slots=True)
class Job:
    """One file to read, and where its part goes."""

    path: Path
    claim: RankClaim
    parts: PartWriter
    vocabulary: Vocabulary
    spool_folder: str
    on_read: Callable[[int], None] | None = None


@dataclass(slots=True)
class Ingested:
    """What a file told about its rank, and how many rows were written by table."""

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

    def recognises(self, head: bytes) -> bool: ...

    def rank_claim(self, path: Path) -> RankClaim: ...

    def ingest(self, job: Job) -> Ingested: ...
