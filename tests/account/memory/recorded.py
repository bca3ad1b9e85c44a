"""Runs made by hand: a thread's ops and annotations, and what was allocated and freed in between."""

from __future__ import annotations

from typing import Any

from lostflops.account.memory.blocks import RankMemory
from lostflops.account.memory.owners import OWNERS
from lostflops.account.memory.read import memories
from memory_run import MemoryRun

Row = dict[str, Any]
US = 1_000


class Recorded:
    """Times are in microseconds. `alloc` and `free` keep the allocator's total, which `base` begins."""

    def __init__(self, device: str = "cpu", base: int = 0) -> None:
        self.events: list[Row] = []
        self.memory: list[Row] = []
        self.holdings: list[Row] = []
        self.steps: list[Row] = []
        self.job: list[Row] = []
        self.total, self.sizes = base, dict[int, int]()
        self.device = (
            {"device_type": 0, "device_index": -1} if device == "cpu" else {"device_type": 1, "device_index": 0}
        )

    def span(self, name: str, start: float, stop: float, kind: str = "op", lane: int = 0, **more: Any) -> None:
        times = {"start": round(start * US), "dur": round((stop - start) * US)}
        self.events.append(
            {"rank": 0, "event": len(self.events), "lane": lane, "kind": kind, "name": name, **times, **more}
        )

    def step(self, number: int, start: float, stop: float) -> None:
        self.span(f"ProfilerStep#{number}", start, stop, "annotation")
        self.steps.append({"rank": 0, "step": number, "lane": 0, "start": round(start * US), "stop": round(stop * US)})

    def backward(self, name: str, start: float, stop: float, lane: int = 0, **more: Any) -> None:
        node = {"lane": lane, "sequence": 1, "forward_thread": 1, **more}
        self.span(f"autograd::engine::evaluate_function: {name}", start, stop, **node)

    def optimizer(self, start: float, stop: float) -> None:
        self.span("Optimizer.step#SGD.step", start, stop, "annotation")

    def alloc(self, time: float, address: int, size: int, *, lane: int = 0, lost: bool = False) -> None:
        self.sizes[address] = size
        self._event(time, address, size, lane, lost)

    def free(self, time: float, address: int, size: int = 0, *, lane: int = 0, lost: bool = False) -> None:
        self._event(time, address, -(size or self.sizes.pop(address)), lane, lost)

    def _event(self, time: float, address: int, change: int, lane: int, lost: bool) -> None:
        self.total += change
        row = {"rank": 0, "time": round(time * US), "lane": lane, "address": address, "bytes": change, **self.device}
        if not lost:
            self.memory.append(
                {**row, "allocated": self.total, "reserved": self.total + 1_000, "step": self._step(time)}
            )

    def _step(self, time: float) -> int | None:
        inside = [row["step"] for row in self.steps if row["start"] <= time * US < row["stop"]]
        return inside[0] if inside else None

    def hold(self, time: float, address: int, size: int, owner: str | None, **more: Any) -> None:
        seen = {"rank": 0, "time": round(time * US), "before": False, "address": address, "bytes": size, "owner": owner}
        if "gone" in more:
            more["gone"] = round(more["gone"] * US)
        self.holdings.append({**seen, **self.device, **more})

    def run(self) -> MemoryRun:
        tables = {name: getattr(self, name) for name in ("events", "memory", "holdings", "steps", "job")}
        return MemoryRun(ranks=[{"rank": 0, "events": len(self.events)}], **tables)

    def read(self) -> RankMemory:
        with self.run() as run:
            (found,) = memories(run)
        found.self_check()
        return found


def owned(found: RankMemory) -> dict[int, str]:
    """Owner of the block at each address, the last one there."""
    return {
        address: str(OWNERS[owner])
        for address, owner in zip(found.blocks.address.tolist(), found.blocks.owner.tolist(), strict=True)
    }
