"""Sums of each kernel of a rank in its window: number of runs, time, and idle time before its launches."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lostflops.account.facts.kernel_classes import CLASSES, op_class
from lostflops.account.ledger.partition import Partition
from lostflops.account.ledger.record import Codes, Ns, Record
from lostflops.account.ledger.shares import by_event

Key = tuple[str, str]
"""Class and name."""


@dataclass(slots=True)
class KernelSum:
    """Sums over all runs of one kernel."""

    count: int = 0
    ns: int = 0
    """Time on the device; kernels that run at once count in full."""
    gap_ns: int = 0
    """Part of `idle.host` that it ended."""
    occupied_ns: int = 0
    """Time with a recorded occupancy above 0; the profiler writes 0 if it has no estimate."""
    occupancy: float = 0.0
    """Sum of occupancy x time over `occupied_ns`."""

    def add(self, other: KernelSum) -> None:
        self.count += other.count
        self.ns += other.ns
        self.gap_ns += other.gap_ns
        self.occupied_ns += other.occupied_ns
        self.occupancy += other.occupancy

    @property
    def mean_occupancy(self) -> float | None:
        """The mean where it was recorded; None if that is less than half of the time, which says little of the rest."""
        is_known = self.occupied_ns > 0 and 2 * self.occupied_ns >= self.ns
        return self.occupancy / self.occupied_ns / 100 if is_known else None


KernelSums = dict[Key, KernelSum]


def add_kernels(total: KernelSums, sums: KernelSums) -> None:
    for key, found in sums.items():
        total.setdefault(key, KernelSum()).add(found)


def kernel_sums(record: Record, made: Partition, classes: Codes) -> KernelSums:
    return _on_device(record, made, classes) if record.on_device else _on_thread(record, made)


def _on_device(record: Record, made: Partition, classes: Codes) -> KernelSums:
    device, inside = record.device, made.window.inside
    assert made.gaps is not None
    gap = np.zeros(device.start.size, np.int64)
    known = made.gaps.ender >= 0
    np.add.at(gap, made.gaps.ender[known], made.lines["idle.host"].within(made.gaps.start, made.gaps.stop)[known])
    rows = np.flatnonzero((classes >= 0) & (inside.within(device.start, device.start + 1) > 0))
    ns = inside.within(device.start[rows], device.stop[rows])
    # One number for both: sorting columns is many times as slow.
    names = len(record.names)
    keys, which = np.unique(classes[rows] * names + device.name[rows], return_inverse=True)
    occupied = np.where(device.occupancy[rows] > 0, ns, 0)
    count, total, lost, held = (_sum_by_key(which, values, keys.size) for values in (None, ns, gap[rows], occupied))
    weighted = np.bincount(which, np.where(occupied > 0, device.occupancy[rows] * ns, 0.0), keys.size)
    return {
        (CLASSES[key // names], record.names[key % names]): KernelSum(*row)
        for key, row in zip(
            keys.tolist(),
            zip(count.tolist(), total.tolist(), lost.tolist(), held.tolist(), weighted.tolist(), strict=True),
            strict=True,
        )
    }


def _sum_by_key(which: Codes, values: Ns | None, size: int) -> Ns:
    sums = np.zeros(size, np.int64)
    np.add.at(sums, which, 1 if values is None else values)
    return sums


def _on_thread(record: Record, made: Partition) -> KernelSums:
    """Sum the outermost ops that compute, on a CPU rank."""
    host, inside = record.host, made.window.inside
    rows = host.computing(record.training_lane)
    ns = by_event(host.start[rows], host.stop[rows], made.lines["compute"])
    rows, ns = rows[ns > 0], ns[ns > 0]
    started = inside.within(host.start[rows], host.start[rows] + 1) > 0
    found: KernelSums = {}
    for code, share, counts in zip(host.name[rows].tolist(), ns.tolist(), started.tolist(), strict=True):
        name = record.names[code]
        found.setdefault((op_class(name), name), KernelSum()).add(KernelSum(int(counts), share))
    return found
