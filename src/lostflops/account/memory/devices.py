"""Devices that a question about memory covers: accelerators if any recorded memory, unless one is named."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from lostflops.account.memory.events import CPU, DEVICE, Device
from lostflops.account.memory.peak import Peak
from lostflops.core.errors import UsageError

if TYPE_CHECKING:
    from lostflops.store.run import Run

_RECORDED: Final = f"""
    select rank, kind, index, count(*) from (select *, {DEVICE} from memory where {{chosen}})
    where bytes <> 0 and time is not null and kind is not null group by all order by all"""


def kind_of(device: str) -> str:
    """Return the kind of a device.

    >>> kind_of("cuda:0"), kind_of("cpu")
    ('cuda', 'cpu')
    """
    return device.partition(":")[0]


def kinds(devices: Iterable[str]) -> list[str]:
    """Return the kinds of these devices, accelerators first.

    >>> kinds(["cpu", "cuda:1", "cuda:0"])
    ['cuda', 'cpu']
    """
    return sorted({kind_of(device) for device in devices}, key=lambda kind: (kind == "cpu", kind))


def in_question(peaks: Sequence[Peak], device: str | None = None) -> list[Peak]:
    """Return peaks of one device such as `cuda:0`, or of a kind such as `cpu`; raise `UsageError` if there is none."""
    found = {one.device for one in peaks}
    if device is not None and device not in {*found, *kinds(found)}:
        raise UsageError(f"no memory of {device!r} was recorded; there is {', '.join(sorted({*found, *kinds(found)}))}")
    meant = device or next(iter(kinds(found)), "")
    return [one for one in peaks if meant in (one.device, kind_of(one.device))]


def computing_devices(run: Run, ranks: Sequence[int]) -> dict[int, Device]:
    """Return the device that each rank computes on; ranks that recorded no memory of it are left out.

    That is the accelerator of the rank if memory of it was recorded, else the accelerator with most allocations. A rank
    that ran nothing on an accelerator computes on the CPU.
    """
    chosen = f"rank in ({', '.join(map(str, ranks))})"
    recorded: dict[int, list[tuple[int, int, int]]] = {}
    for rank, *device in run.rows(_RECORDED.format(chosen=chosen)):
        recorded.setdefault(rank, []).append(tuple(device))
    if not recorded:
        return {}
    own = dict(run.rows(f"select rank, max(device_index) from ranks where {chosen} group by rank"))
    streams = {rank for (rank,) in run.rows(f"select distinct rank from lanes where {chosen} and kind = 'stream'")}
    found = {rank: _choose_device(rows, own.get(rank), rank in streams) for rank, rows in recorded.items()}
    return {rank: device for rank, device in found.items() if device is not None}


def _choose_device(rows: Sequence[tuple[int, int, int]], own: int | None, has_streams: bool) -> Device | None:
    """Return the device of a rank; `rows` are the kind, index and number of events of each that recorded memory."""
    alike = [row for row in rows if (row[0] != CPU) == has_streams]
    return max(alike, key=lambda row: (row[1] == own, row[2]))[:2] if alike else None
