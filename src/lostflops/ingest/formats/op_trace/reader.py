"""Op traces: one Parquet file with the ops of many ranks, as Megatron's timers see them; no kernels, no host.

Columns are those of the artifact of "Understanding Stragglers in Large Model Training Using What-if Analysis" (OSDI
2025). Times are seconds from the start of their step. Ranks begin a step when they ended the previous one, to 0.2 ms in
recorded files. So a step is placed as early as possible without overlap of two steps on any rank: no time is added that
was not recorded.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import duckdb
import numpy as np

from lostflops.core.errors import BrokenSource
from lostflops.core.limits import LARGEST_WORLD
from lostflops.ingest.common.byte_stream import ByteStream
from lostflops.ingest.common.columns import NULL
from lostflops.ingest.common.reader import RankClaim, RankRows, ReadTask
from lostflops.ingest.common.refusals import refuse_many_ranks
from lostflops.ingest.formats.op_trace.rank import Ns, OpRank, OpTypes, Rows
from lostflops.ingest.formats.op_trace.roles import RoleLayout, StagePlace
from lostflops.store.connections import connect
from lostflops.store.parquet import scan

NAME: Final = "op_trace"
IS_TIMELINE: Final = True
BASE_TIME: Final = 946_684_800_000_000_000
"""2000-01-01 UTC, when the first step is placed."""
_MAGIC: Final = b"PAR1"
_COLUMNS: Final = frozenset({"dp_rank", "stage", "rank", "step", "optype", "start_ts", "duration", "mc", "mb_id"})
_ROWS_AT_ONCE: Final = 1_000_000
_LONGEST: Final = 100_000
"""Seconds that no step lasts; many steps must fit into 64 bits of nanoseconds."""
_DAMAGE: Final = (duckdb.Error, RuntimeError, UnicodeDecodeError)
"""DuckDB raises the last two for texts that are not UTF-8."""
_OPS: Final = """
    create temp view ops as
    with typed as (
        select try_cast(rank as integer) as rank, try_cast(dp_rank as integer) as dp_rank,
               try_cast(stage as integer) as stage, try_cast(step as integer) as step, optype::varchar as optype,
               try_cast(start_ts as double) as seconds, try_cast(duration as double) as lasting,
               try_cast(mb_id as integer) as microbatch, try_cast(mc as integer) as chunk
        from {file}
    )
    select rank, dp_rank, stage, step, optype, microbatch, chunk,
           try_cast(round(seconds * 1e9) as bigint) as start, try_cast(round(lasting * 1e9) as bigint) as dur,
           coalesce(rank between 0 and {last} and dp_rank between 0 and {last} and stage between 0 and {last}
                    and step >= 0 and optype <> ''
                    and abs(seconds) < {longest} and lasting between 0 and {longest}, false) as is_read
    from typed"""

_TYPES: Final = """
    create temp table types as
    select optype, row_number() over (order by optype) - 1 as code
    from (select distinct optype from ops where is_read)"""


def recognises(head: bytes, path: Path) -> bool:
    """Return whether it is a Parquet file with our columns.

    Also accept a file with a schema that cannot be read, so that reading reports what is wrong.
    """
    if not head.startswith(_MAGIC):
        return False
    try:
        with _connection() as connection:
            columns = connection.sql(f"select * from {scan([path])}").columns
    except _DAMAGE:
        return True
    return set(columns) >= _COLUMNS


def rank_claim(path: Path) -> RankClaim:
    try:
        with _connection() as connection:
            query = f"select min(rank) from {scan([path])} where rank between 0 and {LARGEST_WORLD - 1}"
            rank = connection.execute(query).fetchall()[0][0]
    except _DAMAGE:  # reading the file will say what is wrong with it
        return RankClaim(None, "assigned")
    return RankClaim(rank, "recorded") if isinstance(rank, int) else RankClaim(None, "assigned")


def ingest(job: ReadTask) -> list[RankRows]:
    stream = ByteStream(job.path, job.on_read)
    stream.drain()
    with _connection() as connection:
        return list(_write(job, connection, stream.digest))


def _write(job: ReadTask, connection: duckdb.DuckDBPyConnection, digest: str) -> Iterator[RankRows]:
    with _damage_told(job.path):
        connection.execute(_OPS.format(file=scan([job.path]), longest=_LONGEST, last=LARGEST_WORLD - 1))
        layout, sizes = _layout(job.path, connection)
        connection.execute(_TYPES)
        types = OpTypes([name for (name,) in connection.execute("select optype from types order by code").fetchall()])
        steps, zeros = _zeros(connection)
        losses = _losses(connection, layout)
    for batch in _batches(sizes):
        with _damage_told(job.path):
            read = _read_ops(connection, batch)
        for rank, ops in read.items():
            ops["start"] += zeros[np.searchsorted(steps, ops["step"])]
            part = OpRank(job.parts, types, layout, rank)
            part.write(ops, losses[rank])
            yield RankRows(
                rank=rank,
                rank_source="recorded",
                digest=digest,
                rows=part.rows,
                world_size=len(sizes),
                base_time=BASE_TIME,
            )


@contextmanager
def _damage_told(path: Path) -> Iterator[None]:
    """Raise BrokenSource if the file cannot be read; use it around reads only, as writes fail for other reasons."""
    try:
        yield
    except _DAMAGE as error:
        what = str(error).partition("\n")[0]
        raise BrokenSource(f"{path} is not a complete Parquet file: {what}. Copy or write it again.") from None


def _layout(path: Path, connection: duckdb.DuckDBPyConnection) -> tuple[RoleLayout, dict[int, int]]:
    """Return the place of each rank, and how many ops it has.

    Every column is read, so that damage shows before a row is written.
    """
    found = connection.execute(
        """select rank, min(dp_rank), min(stage), max(dp_rank), max(stage), count(*), max(microbatch), max(chunk)
           from ops where is_read group by rank order by rank"""
    ).fetchall()
    if not found:
        raise BrokenSource(f"{path} has no op with rank, step, type and time.")
    for rank, *least_and_most in found:
        if least_and_most[:2] != least_and_most[2:4]:
            raise BrokenSource(f"{path}: rank {rank} has several places (dp_rank, stage). Write one file per job.")
    refuse_many_ranks(path, len(found))
    layout = RoleLayout({rank: StagePlace(dp_rank, stage) for rank, dp_rank, stage, *_ in found})
    return layout, {row[0]: row[5] for row in found}


def _zeros(connection: duckdb.DuckDBPyConnection) -> tuple[Ns, Ns]:
    """Return the steps, and the time zero of each: the same on all ranks, and the earliest without overlap."""
    edges = connection.execute(
        """select step, rank, min(start) as first, max(start + dur) as last
           from ops where is_read group by step, rank order by step"""
    ).fetchnumpy()
    steps, begins = np.unique(np.asarray(edges["step"], np.int64), return_index=True)
    zeros = np.full(steps.size, BASE_TIME, np.int64)
    codes = np.unique(edges["rank"], return_inverse=True)[1]
    ended = np.full(codes.size, NULL // 2, np.int64)
    for i, (begin, end) in enumerate(zip(begins, [*begins[1:], edges["step"].size], strict=True)):
        ranks, first, last = (column[begin:end] for column in (codes, edges["first"], edges["last"]))
        if i:
            zeros[i] = max(int(zeros[i - 1]), int((ended[ranks] - first).max()))
        ended[ranks] = zeros[i] + last
    return steps, zeros


def _losses(connection: duckdb.DuckDBPyConnection, layout: RoleLayout) -> defaultdict[int, Counter[str]]:
    """Return counts of what was left out, by rank; ops without a rank count for the first rank."""
    losses: defaultdict[int, Counter[str]] = defaultdict(Counter)
    first, last = min(layout.places), max(layout.places)
    for rank, count in connection.execute("select rank, count(*) from ops where not is_read group by rank").fetchall():
        losses[rank if rank in layout.places else first]["unreadable_ops"] += count
    losses[first]["ranks_left_out"] = last + 1 - len(layout.places)
    return losses


def _batches(sizes: dict[int, int]) -> Iterator[list[int]]:
    """Yield ranks to read together, so that neither memory nor the number of queries grows with the file."""
    batch: list[int] = []
    room = _ROWS_AT_ONCE
    for rank, rows in sizes.items():
        if batch and rows > room:
            yield batch
            batch, room = [], _ROWS_AT_ONCE
        batch.append(rank)
        room -= rows
    yield batch


def _read_ops(connection: duckdb.DuckDBPyConnection, ranks: Sequence[int]) -> dict[int, Rows]:
    """Return the ops of ranks that follow each other in the file's list of ranks."""
    columns = connection.execute(
        f"""select rank, step, code as optype, start, dur,
                   if(microbatch >= 0, microbatch, {NULL}) as microbatch, if(chunk >= 0, chunk, {NULL}) as chunk
            from ops join types using (optype) where is_read and rank between {ranks[0]} and {ranks[-1]}
            order by rank, step, start, code, microbatch""",
    ).fetchnumpy()
    rows = {name: np.array(values, np.int64) for name, values in columns.items()}
    owner = rows.pop("rank")
    edges = np.searchsorted(owner, ranks), np.searchsorted(owner, ranks, side="right")
    return {
        rank: {name: values[first:last].copy() for name, values in rows.items()}
        for rank, first, last in zip(ranks, *edges, strict=True)
    }


@contextmanager
def _connection() -> Iterator[duckdb.DuckDBPyConnection]:
    connection = connect(threads=1)
    try:
        yield connection
    finally:
        connection.close()
