"""Captures whose truth is known: what collectors of a synthetic job would append."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lostflops.collect.capture import frame_bytes, host_file, rank_file

MS = 1_000_000
SECOND = 1000 * MS
BEGIN = 1_700_000_000 * SECOND


@dataclass
class MadeJob:
    """Ranks that make steps of `step_ms`; rank r enqueues each collective `late_ms[r]` after it could."""

    folder: Path
    world_size: int = 4
    ranks_per_host: int = 8
    step_ms: int = 100
    late_ms: dict[int, int] = field(default_factory=dict)
    attempt: int = 0
    begin: int = BEGIN
    device_name: str | None = None
    one_file_per_host: bool = False
    collectives: int = 2
    records: Counter[int] = field(default_factory=Counter)

    def host(self, rank: int) -> str:
        return f"node{rank // self.ranks_per_host}"

    def path(self, rank: int) -> Path:
        return host_file(self.folder, self.host(rank)) if self.one_file_per_host else rank_file(self.folder, rank)

    def frame(self, rank: int, records: list[dict[str, Any]], dropped: int = 0) -> bytes:
        first = self.records[rank]
        self.records[rank] += len(records)
        return frame_bytes(rank, f"{self.attempt}-{rank}", first, dropped, records)

    def append(self, rank: int, records: list[dict[str, Any]], dropped: int = 0) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        with self.path(rank).open("ab") as file:
            file.write(self.frame(rank, records, dropped))

    def session(self, rank: int, **changes: Any) -> dict[str, Any]:
        record = {
            "kind": "session",
            "version": 1,
            "rank": rank,
            "world_size": self.world_size,
            "local_rank": rank % self.ranks_per_host,
            "local_world_size": self.ranks_per_host,
            "host": self.host(rank),
            "pid": 100 + rank,
            "wall": self.begin + rank,
            "monotonic": 5,
            "restart": self.attempt,
            "device": "cpu",
            "device_name": self.device_name,
        }
        return record | changes

    def step(self, rank: int, number: int, **changes: Any) -> dict[str, Any]:
        start = self.begin + number * self.step_ms * MS
        record = {
            "kind": "step",
            "step": number,
            "start": start,
            "stop": start + (self.step_ms + self.late_ms.get(rank, 0)) * MS,
            "data": self.step_ms * MS // 10,
            "forward": 0,
            "backward": 0,
            "optimizer": 0,
            "microbatches": 1,
            "samples": 8,
            "tokens": None,
            "peak_memory": (rank + 1) * 1_000_000_000,
            "own": 1000,
            "skipped": False,
            "compiled": number == 0,
            "profiled": False,
        }
        return record | changes

    def enqueued(self, rank: int, number: int) -> dict[str, Any]:
        """The collectives of a step, spread over its first half."""
        start = self.begin + number * self.step_ms * MS + self.late_ms.get(rank, 0) * MS
        apart = self.step_ms * MS // 2 // self.collectives
        first = number * self.collectives
        entries = [
            [first + n, "0", first + n, "gloo:all_reduce", False, 64, 64, start + n * apart + rank]
            for n in range(self.collectives)
        ]
        groups = {"0": {"description": "default_pg", "ranks": list(range(self.world_size))}}
        return {"kind": "collectives", "entries": entries, "groups": groups if number == 0 else {}, "lost": 0}

    def start(self, *ranks: int) -> None:
        for rank in ranks or range(self.world_size):
            self.append(rank, [self.session(rank)])

    def run(self, first: int, count: int, ranks: Any = None) -> None:
        """Steps of these ranks, or of all."""
        for rank in range(self.world_size) if ranks is None else ranks:
            for number in range(first, first + count):
                self.append(rank, [self.step(rank, number), self.enqueued(rank, number)])

    def end(self) -> None:
        for rank in range(self.world_size):
            self.append(rank, [{"kind": "end", "wall": self.begin, "reason": "exit"}])
