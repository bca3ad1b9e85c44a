"""Captures made by hand: records as dicts, written as the collector does."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from lostflops.collect import capture

Record = dict[str, Any]
MS = 1_000_000
BASE = 1_700_000_000_000_000_000
"""Wall time that the times of these captures count from."""


def session(
    rank: int, world_size: int = 2, *, wall: int = 0, restart: int = 0, host: str = "node0", **more: Any
) -> Record:
    facts = {"torch": "2.13.0", "python": "3.11.9", "lostflops": "0", "script": "train.py"}
    places = {"local_rank": rank, "local_world_size": world_size, "host": host, "pid": 100 + rank}
    device = {"backend": "gloo", "device": "cpu", "device_name": None}
    times = {"wall": BASE + wall, "monotonic": wall}
    return {
        "kind": "session",
        "version": 1,
        "rank": rank,
        "world_size": world_size,
        "restart": restart,
        **facts,
        **places,
        **device,
        **times,
        **more,
    }


def step(number: int, start: int, phases: Sequence[int], **more: Any) -> Record:
    """Phases are data, forward, backward, optimizer and outside; the step lasts as long as they do."""
    data, forward, backward, optimizer, _ = phases
    return {
        "kind": "step",
        "step": number,
        "start": BASE + start,
        "stop": BASE + start + sum(phases),
        "data": data,
        "forward": forward,
        "backward": backward,
        "optimizer": optimizer,
        "microbatches": 1,
        "samples": None,
        "tokens": None,
        "peak_memory": None,
        "own": 0,
        "skipped": False,
        "compiled": False,
        "profiled": False,
        **more,
    }


def collectives(*entries: tuple[int, int], group: str = "0", ranks: Iterable[int] = (0, 1), lost: int = 0) -> Record:
    """Entries are sequence number and time."""
    rows = [[seq, group, seq, "gloo:all_reduce", False, 400, 400, BASE + created] for seq, created in entries]
    groups = {group: {"description": "default_pg", "ranks": list(ranks)}}
    return {"kind": "collectives", "entries": rows, "groups": groups, "lost": lost}


def fact(key: str, value: Any) -> Record:
    return {"kind": "job", "key": key, "value": value}


def end(wall: int) -> Record:
    return {"kind": "end", "wall": BASE + wall, "reason": "exit"}


def frames(rank: int, name: str, *chunks: Sequence[Record], dropped: int = 0) -> bytes:
    """A session's frames, numbered on."""
    whole, first = b"", 0
    for records in chunks:
        whole += capture.frame_bytes(rank, name, first, dropped, list(records))
        first += len(records)
    return whole


def write(folder: Path, rank: int, *sessions: bytes) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = capture.rank_file(folder, rank)
    path.write_bytes(b"".join(sessions))
    return path


def write_window(folder: Path, rank: int, window: int, events: Sequence[Any], world_size: int = 2) -> Path:
    """The trace of a deep window, as the profiler exports it."""
    folder.mkdir(parents=True, exist_ok=True)
    path = capture.trace_file(folder, rank, window)
    info = {"rank": rank, "world_size": world_size, "backend": "gloo"}
    document = {"schemaVersion": 1, "distributedInfo": info, "traceEvents": list(events)}
    path.write_bytes(gzip.compress(json.dumps(document).encode(), mtime=0))
    return path
