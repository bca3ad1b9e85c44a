"""Captures of the collector: one rank's file, or a host's file with many ranks."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from lostflops.collect import capture
from lostflops.core.errors import BrokenSource
from lostflops.core.limits import is_rank
from lostflops.ingest.common.byte_stream import ByteStream
from lostflops.ingest.common.reader import RankClaim, RankRows, ReadTask
from lostflops.ingest.common.refusals import refuse_large_job, refuse_many_ranks
from lostflops.ingest.formats.capture.rank import RankCapture

NAME: Final = "capture"
IS_TIMELINE: Final = False
_HEAD: Final = 1 << 20
_OF_RANK: Final = re.compile(r"rank-(\d{1,9})\.capture")


def recognises(head: bytes, path: Path) -> bool:
    """Return whether it is a capture, by its first bytes, or by its name if those are torn."""
    return capture.recognises(head) or (bool(head) and path.suffix == capture.SUFFIX)


def rank_claim(path: Path) -> RankClaim:
    """Return the lowest rank at the top of the file, otherwise the rank in its name."""
    with path.open("rb") as file:
        ranks = {frame.rank for frame in capture.FrameReader().feed(file.read(_HEAD)) if is_rank(frame.rank)}
    if ranks:
        return RankClaim(min(ranks), "recorded")
    named = _OF_RANK.fullmatch(path.name)
    return RankClaim(int(named[1]), "file name") if named else RankClaim(None, "assigned")


def ingest(job: ReadTask) -> list[RankRows]:
    stream = ByteStream(job.path, job.on_read)
    reader = capture.FrameReader()
    ranks: dict[int, RankCapture] = {}
    for frame in _frames(stream, reader):
        refuse_large_job(job.path, frame.rank, None)
        if frame.rank not in ranks:
            refuse_many_ranks(job.path, len(ranks) + 1)
            ranks[frame.rank] = RankCapture(frame.rank, job.parts, _first_attempt(job.path))
        ranks[frame.rank].take(frame)
    if not ranks:
        raise BrokenSource(f"{job.path} has no whole frame: its writer was killed at once, or it is not a capture.")
    ranks[min(ranks)].stats.add("torn_frames", reader.damaged)
    for rank in ranks.values():
        rank.finish()
    return [_build_ingested(rank, stream.digest) for _, rank in sorted(ranks.items())]


def _frames(stream: ByteStream, reader: capture.FrameReader) -> Iterator[capture.Frame]:
    for block in stream.blocks():
        yield from reader.feed(block)
    yield from reader.finish()


def _first_attempt(path: Path) -> int:
    """Return the number of the first session of a rank.

    Sessions of a rank are numbered from 0 until all files are compared. A rank that moves to another host is in the
    files of both, so files of hosts count from numbers of their own.
    """
    return 0 if _OF_RANK.fullmatch(path.name) else (zlib.crc32(path.name.encode()) & 0xFFFFF) << 10


def _build_ingested(rank: RankCapture, digest: str) -> RankRows:
    told = rank.session
    found = RankRows(rank=rank.rank, rank_source="recorded", digest=digest, rows=rank.rows)
    if told is not None:
        found.host, found.world_size, found.backend = told.host, told.world_size, told.backend
        found.device = None if told.device == "cpu" else told.device_name
    return found
