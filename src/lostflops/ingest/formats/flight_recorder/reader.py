"""Dumps of c10d's Flight Recorder, pickled or as JSON, to tables `flight` and `groups`."""

from collections import Counter
from pathlib import Path
from typing import Final

from lostflops.core.errors import BrokenSource
from lostflops.core.limits import LARGEST_DUMP
from lostflops.ingest.common.byte_stream import ByteStream
from lostflops.ingest.common.reader import RankClaim, RankRows, ReadTask
from lostflops.ingest.common.refusals import refuse_large_job
from lostflops.ingest.formats.flight_recorder import dump as flight_dump
from lostflops.store.parquet import ColumnData, ConstantColumn
from lostflops.store.tables import FLIGHT, GROUPS, STATS, TableSchema

NAME: Final = "flight_recorder"
IS_TIMELINE: Final = False


def recognises(head: bytes, _path: Path) -> bool:
    return flight_dump.recognises(head)


def rank_claim(path: Path) -> RankClaim:
    """Return the rank in the file's name; dumps do not record it, so the content is not read."""
    rank, source = flight_dump.rank_claim(path, {})
    return RankClaim(rank, source or "assigned")


def ingest(job: ReadTask) -> list[RankRows]:
    stream = ByteStream(job.path, job.on_read)
    data = b""
    for block in stream.blocks():
        data += block
        if len(data) > LARGEST_DUMP:
            raise BrokenSource(
                f"{job.path} is larger than {LARGEST_DUMP >> 20} MB. Dump again with a smaller TORCH_FR_BUFFER_SIZE."
            )
    recorded, source = flight_dump.rank_claim(job.path, flight_dump.load(data, job.path))
    rank, rank_source = (recorded, source) if recorded is not None else job.claim[:2]
    assert rank is not None
    refuse_large_job(job.path, rank, None)
    dump = flight_dump.parse_dump(data, job.path, rank)
    stats = list(dump.stats)
    if rank_source == "assigned":
        stats.append(
            ("rank_assigned", "guessed", 1, "neither the dump nor its file name has the rank: it was assigned")
        )
    stat_columns: dict[str, ColumnData] = {"format": ConstantColumn(NAME)}
    stat_columns |= {name: [row[i] for row in stats] for i, name in enumerate(("what", "effect", "count", "reason"))}
    tables: tuple[tuple[TableSchema, dict[str, ColumnData]], ...] = (
        (FLIGHT, {name: dump.columns[name] for name in FLIGHT.column_names() if name != "rank"}),
        (GROUPS, {name: [getattr(row, name) for row in dump.groups] for name in flight_dump.GroupRow._fields}),
        (STATS, stat_columns),
    )
    rows: Counter[str] = Counter()
    for table, columns in tables:
        rows[table.name] = max(len(column) for column in columns.values() if isinstance(column, list))
        job.parts.put(table, rank, rows[table.name], columns)
    return [
        RankRows(
            rank=rank,
            rank_source=rank_source,
            digest=stream.digest,
            rows=rows,
            world_size=dump.world_size,
            backend=dump.backend,
        )
    ]
