"""Snapshots of the CUDA caching allocator, to tables `allocator_blocks` and `memory`; the pickle is not executed."""

from collections import Counter
from pathlib import Path
from typing import Any, Final

from lostflops.core.errors import BrokenSource
from lostflops.ingest.common import safe_pickle
from lostflops.ingest.common.byte_stream import ByteStream
from lostflops.ingest.common.columns import Texts
from lostflops.ingest.common.rank_names import rank_in_name
from lostflops.ingest.common.reader import RankClaim, RankRows, ReadTask
from lostflops.ingest.common.vocabulary import Vocabulary
from lostflops.ingest.formats.allocator.dump import (
    LIMITS,
    MALFORMED,
    MOST_TEXT,
    REASONS,
    StackTable,
    read_blocks,
    segments_of,
)
from lostflops.ingest.formats.allocator.trace import History, live_blocks, read_history
from lostflops.store.parquet import ColumnData, ConstantColumn, TextColumn
from lostflops.store.tables import ALLOCATOR_BLOCKS, MEMORY, STATS, TableSchema

NAME: Final = "allocator_snapshot"
IS_TIMELINE: Final = False
_CUDA: Final = 1
_NEAR: Final = 128
"""The name of the first key is within this many bytes."""


def recognises(head: bytes, _path: Path) -> bool:
    if head[:1] != b"\x80":
        return False
    is_whole = b"segments" in head[:_NEAR] and (b"total_size" in head or b"device_traces" in head)
    return is_whole or (b"total_size" in head[:_NEAR] and b"segment_type" in head and b"blocks" in head)


def rank_claim(path: Path) -> RankClaim:
    """Return the rank in the file's name; snapshots do not record it."""
    rank = rank_in_name(path.name)
    return RankClaim(rank, "assigned" if rank is None else "file name")


def ingest(job: ReadTask) -> list[RankRows]:
    stream = ByteStream(job.path, job.on_read)
    document = safe_pickle.loads(_read_all(stream), job.path.name, LIMITS)
    rank, rank_source = job.claim[:2]
    assert rank is not None
    stacks = StackTable(MOST_TEXT - sum(map(len, filter(None, job.vocabulary.details.texts()))))
    blocks, wrong = read_blocks(segments_of(document, job.path.name), stacks, job.path.name)
    traces = document.get("device_traces") if type(document) is dict else None
    histories = {
        device: read_history(entries, live_blocks(blocks, device), stacks)
        for device, entries in enumerate(traces if type(traces) is list else ())
        if type(entries) is list and entries
    }
    stats = _stats(wrong, histories)
    if stacks.dropped:
        stats.append(
            ("snapshot_stacks_dropped", "dropped", stacks.dropped, "stacks after the first 8 MB of different ones")
        )
    if rank_source == "assigned":
        stats.append(("rank_assigned", "guessed", 1, "the file name has no rank: it was assigned"))
    rows: Counter[str] = Counter()

    def put(table: TableSchema, count: int, columns: dict[str, ColumnData]) -> None:
        rows[table.name] += count
        job.parts.put(table, rank, count, columns)

    put(ALLOCATOR_BLOCKS, len(blocks["bytes"]), _block_columns(blocks, job.vocabulary))
    for device, history in histories.items():
        put(MEMORY, history.time.size, _memory_columns(device, history, job.vocabulary.sources))
    stat_columns: dict[str, ColumnData] = {"format": ConstantColumn(NAME)}
    stat_columns |= {name: [row[i] for row in stats] for i, name in enumerate(("what", "effect", "count", "reason"))}
    put(STATS, len(stats), stat_columns)
    return [RankRows(rank=rank, rank_source=rank_source, digest=stream.digest, rows=rows)]


def _read_all(stream: ByteStream) -> bytes:
    blocks, size = [], 0
    for block in stream.blocks():
        blocks.append(block)
        size += len(block)
        if size > LIMITS.input_bytes:
            raise BrokenSource(f"{stream.path.name} is larger than {LIMITS.input_bytes >> 20} MB. {LIMITS.smaller}")
    if stream.problem is not None:
        raise BrokenSource(f"{stream.path.name}: {stream.problem}. Copy the file again.")
    return b"".join(blocks)


def _block_columns(blocks: dict[str, list[Any]], vocabulary: Vocabulary) -> dict[str, ColumnData]:
    columns: dict[str, ColumnData] = {"device_type": ConstantColumn(_CUDA), **blocks}
    columns |= {name: _encode_texts(blocks[name], vocabulary.sources) for name in ("pool", "state", "line")}
    return columns | {"stack": _encode_texts(blocks["stack"], vocabulary.details)}


def _memory_columns(device: int, history: History, texts: Texts) -> dict[str, ColumnData]:
    columns: dict[str, ColumnData] = {"device_type": ConstantColumn(_CUDA), "device_index": ConstantColumn(device)}
    columns |= {name: getattr(history, name) for name in ("time", "address", "bytes", "allocated", "reserved")}
    return columns | {"line": _encode_texts(history.line, texts)}


def _encode_texts(values: list[str | None], texts: Texts) -> TextColumn:
    return TextColumn(texts.codes((value or "" for value in values), len(values)), texts.texts())


def _stats(wrong: Counter[str], histories: dict[int, History]) -> list[tuple[str, str, int, str]]:
    told = wrong + Counter({MALFORMED: sum(history.malformed for history in histories.values())})
    stats = [(what, REASONS[what][0], count, REASONS[what][1]) for what, count in sorted(told.items())]
    for device, history in histories.items():
        where = f"on device {device}"
        if history.without_time:
            reason = f"entries {where} without a time, as written before PyTorch 2.1: its history is not read"
            stats.append(("snapshot_entries_without_time", "dropped", history.without_time, reason))
        if history.contradictions:
            reason = f"addresses {where} where the end of the history differs from the snapshot: totals are unknown"
            stats.append(("snapshot_history_ends_early", "missing", history.contradictions, reason))
        if history.out_of_memory:
            reason = f"{where} the allocator ran out of memory: {'; '.join(history.out_of_memory[-3:])}"
            stats.append(("out_of_memory", "note", len(history.out_of_memory), reason))
    return stats
