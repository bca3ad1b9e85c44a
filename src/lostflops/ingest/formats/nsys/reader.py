"""Nsight Systems reports, exported to SQLite (`nsys export --type sqlite`), plain or gzipped."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from lostflops.core.errors import BrokenSource
from lostflops.ingest.common.byte_stream import ByteStream
from lostflops.ingest.common.columns import whole_or_none
from lostflops.ingest.common.rank_names import rank_in_name
from lostflops.ingest.common.reader import RankClaim, RankRows, ReadTask
from lostflops.ingest.common.refusals import refuse_many_ranks
from lostflops.ingest.formats.nsys.device import DeviceRows
from lostflops.ingest.formats.nsys.file import MAGIC, NsysFile, is_plain, open_export
from lostflops.ingest.formats.nsys.host import HostRows
from lostflops.ingest.formats.nsys.rank import NsysRank
from lostflops.ingest.formats.nsys.ranks import (
    DEVICE_TABLES,
    ProcessDevices,
    base_time,
    device_name,
    host_name,
    recorded_rank,
)
from lostflops.ingest.timeline.observations import NSYS_OBSERVATIONS
from lostflops.ingest.timeline.rank_part import RankPart

NAME: Final = "nsys"
IS_TIMELINE: Final = True
_TABLES: Final = frozenset(
    {*DEVICE_TABLES, "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS", "TARGET_INFO_SESSION_START_TIME"}
)
"""Each of these tables is a sign of Nsight Systems; other programs write SQLite too."""


def recognises(head: bytes, path: Path) -> bool:
    """Return whether it is an SQLite file with tables of Nsight Systems.

    Also accept a file that cannot be read, so that reading reports why, and a gzipped one, which would have to be
    unpacked to find out.
    """
    if not head.startswith(MAGIC):
        return False
    if not is_plain(path):
        return True
    try:
        with open_export(path) as file:
            return not _TABLES.isdisjoint(file.tables)
    except BrokenSource:
        return True


def rank_claim(path: Path) -> RankClaim:
    """Return the rank of a file that has one; the ranks of a file with several are assigned, one after the other."""
    try:
        with open_export(path) as file:
            return _claim(file, path, len(ProcessDevices(file).ordered))
    except BrokenSource:  # reading the file will say what is wrong with it
        return RankClaim(None, "assigned")


def _claim(file: NsysFile, path: Path, count: int) -> RankClaim:
    if count > 1:
        return RankClaim(None, "assigned", count)
    recorded = recorded_rank(file)
    if recorded is not None:
        return RankClaim(recorded[0], "recorded")
    named = rank_in_name(path.name)
    return RankClaim(named, "file name") if named is not None else RankClaim(None, "assigned")


def ingest(job: ReadTask) -> list[RankRows]:
    stream = ByteStream(job.path, job.on_read)
    with open_export(job.path, stream, job.spool_folder) as file:
        places = ProcessDevices(file)
        if not places.ordered:
            raise BrokenSource(
                f"{job.path} has no device events. Record with nsys profile --trace=cuda,nvtx, and export everything."
            )
        refuse_many_ranks(job.path, len(places.ordered))
        ranks = [NsysRank(place, job.vocabulary, job.spool_folder) for place in places.ordered]
        try:
            DeviceRows(file, places, ranks, job.vocabulary).add()
            HostRows(file, places, ranks, job.vocabulary).add()
            stream.drain()
            return _write_ranks(job, file, ranks, stream.digest)
        finally:
            for rank in ranks:
                rank.recording.close()


def _write_ranks(job: ReadTask, file: NsysFile, ranks: Sequence[NsysRank], digest: str) -> list[RankRows]:
    assert job.claim.rank is not None
    base, host = base_time(file, min(rank.first for rank in ranks)), host_name(file)
    recorded = recorded_rank(file) if len(ranks) == 1 else None
    told: list[RankRows] = []
    for number, found in enumerate(ranks, start=job.claim.rank):
        found.recording.base_time = base
        if job.claim.source == "assigned":
            found.recording.losses["rank_assigned"] = 1
        part = RankPart(job.parts, number, NAME, NSYS_OBSERVATIONS)
        part.write(found.recording)
        told.append(
            RankRows(
                rank=number,
                rank_source=job.claim.source,
                digest=digest,
                rows=part.rows,
                host=host,
                device=device_name(file, found.place),
                device_index=whole_or_none(found.place.device, bits=32),
                world_size=recorded[1] if recorded else None,
                base_time=base,
            )
        )
    return told
