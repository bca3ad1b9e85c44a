"""Logs that NCCL writes with `NCCL_DEBUG=INFO`: of one process, or of many whose output was merged.

A line is `host:pid:tid [device] NCCL INFO ...`, whatever a launcher writes before it. A process's rank is its rank in
the largest communicator, which has all ranks of the job. Lines may be mixed with any other output.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from lostflops.core.errors import BrokenSource
from lostflops.core.limits import MOST_RANKS
from lostflops.ingest.common.byte_stream import ByteStream
from lostflops.ingest.common.rank_names import rank_in_name
from lostflops.ingest.common.reader import RankClaim, RankRows, ReadTask
from lostflops.ingest.formats.nccl_log.processes import NcclCommunicator, NcclProcess
from lostflops.store.parquet import ColumnData, ConstantColumn
from lostflops.store.tables import NCCL_CHOICES, NCCL_COMMS, NCCL_LINKS, STATS, TableSchema

NAME: Final = "nccl_log"
IS_TIMELINE: Final = False
LOGS: Final = frozenset({".log", ".txt", ".out", ".err"})
"""How files are named that are searched for lines of NCCL, also if other output comes first."""
_SEARCHED: Final = 1 << 20
"""Bytes of a log in which NCCL's first line is looked for: programs print before they communicate."""
_LONGEST_LINE: Final = 64 << 10
_MARK: Final = b" NCCL INFO "
_PREFIX: Final = re.compile(r"([\w.-]{1,255}):(\d{1,9}):(\d{1,9}) \[-?\d{1,6}\]$")
_LINE: Final = re.compile(rb"[\w.-]:\d{1,9}:\d{1,9} \[-?\d{1,6}\] NCCL INFO ")
_VERSION: Final = re.compile(r"(?:NCCL|RCCL) version ?:? ?(\d{1,3}\.\d{1,3}\.\d{1,3})")
_NO_COMMUNICATOR: Final = (
    "has no communicator. NCCL writes `comm ... Init COMPLETE` at its start, unless NCCL_DEBUG_SUBSYS leaves out INIT."
)
_OBSERVATIONS: Final = {
    "nccl_lines_unreadable": ("dropped", "lines of a form that no known version of NCCL writes"),
    "nccl_links_ambiguous": ("dropped", "connections that fit several communicators of their process, or none"),
    "nccl_choices_ambiguous": ("dropped", "choices of algorithms whose communicator, and so whose size, is unknown"),
    "nccl_facts_dropped": ("dropped", "communicators, connections or choices beyond what a process is allowed"),
    "nccl_processes_replaced": ("note", "earlier processes of this rank on the same device: the last one counts"),
    "nccl_log_damaged": ("missing", "the log cannot be decompressed to its end"),
}


def recognises(head: bytes, path: Path) -> bool:
    """Return whether a line of NCCL is in the head or, in a file that is named as a log, soon after."""
    if _LINE.search(head):
        return True
    if path.suffix not in LOGS or b"\0" in head:
        return False
    seen, tail = 0, b""
    for block in ByteStream(path).blocks():
        if _LINE.search(tail + block):
            return True
        seen, tail = seen + len(block), block[-_LONGEST_LINE:]
        if seen > _SEARCHED:
            break
    return False


def rank_claim(path: Path) -> RankClaim:
    """Return the lowest rank, and how many ranks from it on the log may have."""
    try:
        ranks = _ranks(_read(ByteStream(path)), path)[0]
    except BrokenSource:  # reading the file will say what is wrong with it
        return RankClaim(None, "assigned")
    source = "file name" if len(ranks) == 1 and rank_in_name(path.name) is not None else "recorded"
    return RankClaim(min(ranks), source, max(ranks) - min(ranks) + 1)


def ingest(job: ReadTask) -> list[RankRows]:
    stream = ByteStream(job.path, job.on_read)
    processes = _read(stream)
    ranks, replaced = _ranks(processes, job.path)
    rows = []
    for rank, process in sorted(ranks.items()):
        process.losses["nccl_processes_replaced"] += replaced[rank]
        process.losses["nccl_log_damaged"] += stream.problem is not None
        counts: Counter[str] = Counter()
        for table, columns in _tables(process).items():
            counts[table.name] = max(
                (len(column) for column in columns.values() if isinstance(column, list)), default=0
            )
            job.parts.put(table, rank, counts[table.name], columns)
        rows.append(
            RankRows(
                rank=rank,
                rank_source=job.claim.source if len(ranks) == 1 else "recorded",
                digest=stream.digest,
                rows=counts,
                backend="nccl",
            )
        )
    return rows


def _read(stream: ByteStream) -> dict[tuple[str, int], NcclProcess]:
    """Return what each process said, by host and process id."""
    processes: dict[tuple[str, int], NcclProcess] = {}
    version = None
    for line in _lines(stream):
        before, _, said = line.rpartition(_MARK)
        text = said.decode("utf-8", "replace").rstrip()
        prefix = _PREFIX.search(before[-300:].decode("utf-8", "replace")) if before else None
        if (found := _VERSION.search(text)) is not None:
            version = found[1]
        if prefix is None:
            continue
        key = prefix[1], int(prefix[2])
        if key not in processes:
            if len(processes) >= MOST_RANKS:
                raise BrokenSource(f"{stream.path} has more than {MOST_RANKS:,} processes.")
            processes[key] = NcclProcess(host=key[0], pid=key[1])
        if found is not None:
            processes[key].version = found[1]
        processes[key].take(int(prefix[3]), text)
    for process in processes.values():
        process.version = process.version or version  # older versions write it once, without saying which process
    return {key: process for key, process in processes.items() if process.communicators}


def _lines(stream: ByteStream) -> Iterator[bytes]:
    """Yield the lines that are about NCCL; longer ones than any that it writes are left out."""
    rest = b""
    for block in stream.blocks():
        *whole, rest = (rest + block).split(b"\n")
        for line in whole:
            if b"NCCL" in line and len(line) <= _LONGEST_LINE:
                yield line
        rest = rest[-_LONGEST_LINE - 1 :]
    if b"NCCL" in rest and len(rest) <= _LONGEST_LINE:
        yield rest


def _ranks(processes: dict[tuple[str, int], NcclProcess], path: Path) -> tuple[dict[int, NcclProcess], Counter[int]]:
    """Return the process of each rank, and how many earlier ones it replaced; raise if ranks are unknown."""
    if not processes:
        raise BrokenSource(f"{path} {_NO_COMMUNICATOR}")
    named = rank_in_name(path.name)
    if len(processes) == 1 and named is not None:
        return {named: next(iter(processes.values()))}, Counter()
    ranks: dict[int, NcclProcess] = {}
    replaced: Counter[int] = Counter()
    for process in processes.values():
        world = process.world
        assert world is not None
        other = ranks.get(world.rank)
        if other is not None and _device(other) != _device(process):
            raise BrokenSource(
                f"{path} has no communicator of all ranks, or several jobs: {other.host}:{other.pid} and "
                f"{process.host}:{process.pid} are both rank {world.rank} on different devices. "
                "Give the log of one job, or a log for each rank with the rank in its name."
            )
        replaced[world.rank] += other is not None
        ranks[world.rank] = process
    return ranks, replaced


def _device(process: NcclProcess) -> tuple[str, str]:
    world = process.world
    assert world is not None
    return process.host, world.bus


def _tables(process: NcclProcess) -> dict[TableSchema, dict[str, ColumnData]]:
    communicators = _newest(process.communicators)
    comms: dict[str, ColumnData] = {
        "comm": [one.name for one in communicators],
        "comm_rank": [one.rank for one in communicators],
        "size": [one.size for one in communicators],
        "host": ConstantColumn(process.host),
        "process": ConstantColumn(process.pid),
        "device_index": [one.device for one in communicators],
        "bus": [one.bus for one in communicators],
        "is_complete": [one.is_complete for one in communicators],
        "channels": [one.channels for one in communicators],
        "nvls_channels": [one.nvls_channels for one in communicators],
        "rings": [one.rings for one in communicators],
    }
    settings = " ".join(f"{name}={value}" for name, value in sorted(process.settings.items())) or None
    said = {"settings": settings, "version": process.version, "network": process.network, "adapters": process.adapters}
    comms |= {name: [value] * len(communicators) for name, value in said.items()}
    links = [(one.name, *link, count) for one in communicators for link, count in one.links.items()]
    choices = [
        (one.communicator, one.op, one.size, one.algorithm, one.protocol, one.channels, count)
        for one, count in process.count_choices().items()
    ]
    observed = [(what, *_OBSERVATIONS[what], count) for what, count in sorted(process.losses.items()) if count]
    return {
        NCCL_COMMS: comms,
        NCCL_LINKS: _columns(("comm", "sender", "receiver", "transport", "channels"), links),
        NCCL_CHOICES: _columns(("comm", "op", "bytes", "algorithm", "protocol", "channels", "count"), choices),
        STATS: _columns(("what", "effect", "reason", "count"), observed) | {"format": ConstantColumn(NAME)},
    }


def _newest(communicators: list[NcclCommunicator]) -> list[NcclCommunicator]:
    return list({one.name: one for one in communicators}.values())


def _columns(names: tuple[str, ...], rows: Sequence[tuple[object, ...]]) -> dict[str, ColumnData]:
    return {name: [row[number] for row in rows] for number, name in enumerate(names)}
