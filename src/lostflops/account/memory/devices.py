"""Devices that a question about memory covers: accelerators if any recorded memory, unless one is named."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lostflops.account.memory.peak import Peak
from lostflops.core.errors import UsageError


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
