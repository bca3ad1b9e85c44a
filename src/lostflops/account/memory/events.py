"""Allocations and frees of each device of one rank, in the order in which they happened."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from lostflops.account.ledger.batches import BatchVocabulary
from lostflops.account.memory.blocks import Codes, Flags, Ns

if TYPE_CHECKING:
    from lostflops.store.run import Run

CPU: Final = 0
_HIP: Final = 6
_KINDS: Final = {0: "cpu", 1: "cuda", 9: "xla", 12: "xpu", 13: "mps", 15: "hpu", 19: "mtia", 20: "privateuseone"}
NOWHERE: Final = -1
"""Value of a lane, a step, an address or a total that is unknown."""

_LINE: Final = "coalesce(line, '')"
_LINE_KEY: Final = f"hash({_LINE})"

Device = tuple[int, int]
"""PyTorch's number of the kind of device, and the index; ROCm counts as CUDA, as it does in PyTorch."""


@dataclass(frozen=True, slots=True)
class MemoryEvents:
    """Allocations and frees of one device, in order."""

    time: Ns
    lane: Codes
    step: Codes
    address: Codes
    change: Codes
    """Bytes; positive for an allocation."""
    total: Codes
    """Bytes allocated after it, as the allocator says."""
    reserved: Codes
    """Bytes reserved after it, as the allocator says."""
    line: Codes
    """Code of the source line that allocated; 0 if that is not recorded."""

    def __len__(self) -> int:
        return int(self.time.size)

    def rows(self, chosen: Codes | Flags) -> MemoryEvents:
        return MemoryEvents(*(getattr(self, name)[chosen] for name in MemoryEvents.__slots__))


def device_name(device: Device) -> str:
    """Return the name of a device; unknown kinds are named by their number.

    >>> device_name((0, -1)), device_name((1, 2)), device_name((99, 0))
    ('cpu', 'cuda:2', 'device type 99:0')
    """
    kind, index = device
    name = _KINDS.get(kind, f"device type {kind}")
    return name if index < 0 else f"{name}:{index}"


DEVICE: Final = (
    f"case device_type when {_HIP} then 1 else device_type end as kind, "
    "case device_type when 0 then -1 else coalesce(device_index, 0) end as index"
)
"""Columns of a query, so that `memory` and `holdings` name devices alike."""


def events_of(run: Run, rank: int) -> tuple[dict[Device, MemoryEvents], tuple[str, ...]]:
    """Read events by device, and source lines.

    Events at the same time keep the order of the trace, which is that of the rows.
    """
    lines = BatchVocabulary(run, _LINE_KEY, _LINE, f"memory where rank = {rank}")
    optional = ("lane", "step", "address", "allocated", "reserved")
    known = ", ".join(f"coalesce({name}, {NOWHERE}) as {name}" for name in optional)
    columns = run.columns(
        f"select {DEVICE}, time, bytes, {known}, {_LINE_KEY} as line from memory "
        f"where rank = {rank} and bytes <> 0 and time is not null and device_type is not null"
    )
    columns["line"] = lines.codes(np.asarray(columns["line"]))
    found = {name: np.asarray(values).astype(np.int64, copy=False) for name, values in columns.items()}
    order = np.argsort(found["time"], kind="stable")
    names = ("time", "lane", "step", "address", "bytes", "allocated", "reserved", "line")
    events = MemoryEvents(*(found[name][order] for name in names))
    kind, index = found["kind"][order], found["index"][order]
    devices = sorted(set(zip(kind.tolist(), index.tolist(), strict=True)))
    texts = tuple(line for (line,) in lines.values)
    return {device: events.rows((kind == device[0]) & (index == device[1])) for device in devices}, texts


def with_frees(events: MemoryEvents, time: Ns, address: Codes, size: Codes, before: Codes) -> MemoryEvents:
    """Insert frees that were not recorded, each ahead of event `before`."""
    added = np.full(time.size, NOWHERE, np.int64)
    more = MemoryEvents(time, added, added, address, -size, added, added, np.zeros(time.size, np.int64))
    place = np.concatenate((np.arange(len(events)), before - 0.5))
    order = np.lexsort((np.concatenate((events.time, time)), place))
    pairs = ((getattr(events, name), getattr(more, name)) for name in MemoryEvents.__slots__)
    return MemoryEvents(*(np.concatenate(pair)[order] for pair in pairs))
