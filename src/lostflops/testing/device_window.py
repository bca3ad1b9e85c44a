"""Device totals of one written trace, on its own clock: from the first to the last device event.

Compute comes before communication, communication before copies, copies before idle. Lost records are not included.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from .declaration import Clock
from .records import DeviceEvent, RankRecord


@dataclass(frozen=True, slots=True)
class DeviceWindow:
    """Device totals of one trace."""

    kernels: int
    """Number of kernels, including communication kernels."""
    copies: int
    """Number of memcpy and memset events."""
    comm_kernels: int
    window_ns: int
    busy_ns: int
    compute_ns: int
    comm_ns: int
    hidden_comm_ns: int
    exposed_comm_ns: int
    exposed_copy_ns: int
    idle_ns: int


def device_window(record: RankRecord, clock: Clock) -> DeviceWindow:
    events = [event for event in record.device_events if not event.lost]
    compute = [event for event in events if event.role == "compute"]
    comm = [event for event in events if event.role == "comm"]
    copies = [event for event in events if event.role == "copy"]
    window = max(clock.read(e.stop) for e in events) - min(clock.read(e.start) for e in events) if events else 0
    compute_ns, comm_ns = _measure_union(compute, clock), _measure_union(comm, clock)
    kernel_ns, busy_ns = _measure_union([*compute, *comm], clock), _measure_union(events, clock)
    return DeviceWindow(
        kernels=len(compute) + len(comm),
        copies=len(copies),
        comm_kernels=len(comm),
        window_ns=window,
        busy_ns=busy_ns,
        compute_ns=compute_ns,
        comm_ns=comm_ns,
        hidden_comm_ns=compute_ns + comm_ns - kernel_ns,
        exposed_comm_ns=kernel_ns - compute_ns,
        exposed_copy_ns=busy_ns - kernel_ns,
        idle_ns=window - busy_ns,
    )


def _measure_union(events: Iterable[DeviceEvent], clock: Clock) -> int:
    """Return the nanoseconds in the union of the events."""
    total, reached = 0, None
    for event in sorted(events, key=lambda event: event.start):
        start, stop = clock.read(event.start), clock.read(event.stop)
        if reached is None or start > reached:
            reached = start
        if stop > reached:
            total += stop - reached
            reached = stop
    return total
