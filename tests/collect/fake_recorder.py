"""A recorder as windows see it, whose records are a list."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from lostflops.collect.settings import Settings


class FakeRecorder:
    is_thinned = False
    session, host = "session", "host"

    def __init__(self, folder: Path, roots: list[Any] | None = None, rank: int = 0, **settings: Any) -> None:
        self.settings = Settings(folder=folder, **settings)
        self.rank, self.world_size, self.local_rank = rank, 1, 0
        self.records: list[dict[str, Any]] = []
        self._roots = roots or []

    def put(self, record: dict[str, Any]) -> None:
        self.records.append(record)

    def wall(self, monotonic: int | None = None) -> int:
        return time.time_ns() if monotonic is None else time.time_ns() - time.monotonic_ns() + monotonic

    def roots(self) -> list[Any]:
        return self._roots

    def optimizers(self) -> list[Any]:
        return []

    def note(self, what: str, reason: str, count: int = 1) -> None:
        self.put({"kind": "note", "what": what, "reason": reason, "count": count})

    def states(self, window: int | None = None) -> list[str]:
        found = [record for record in self.records if record["kind"] == "window"]
        return [record["state"] for record in found if window in (None, record["window"])]

    def reasons(self) -> list[str]:
        return [record["reason"] for record in self.records if record.get("reason")]
