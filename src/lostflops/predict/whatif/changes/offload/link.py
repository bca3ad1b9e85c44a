"""Rate of the link between a device and the memory of its host, by the name of the device.

Datasheets give rates of both directions together; these are per direction. A copy from pinned memory reaches about 0.85
of it (25 of 31.5 GB/s on PCIe 4.0, 54 of 63 GB/s on PCIe 5.0). Nothing in a run says which slot a device is in, or
whether devices share it, so the slowest rate that counts is half of the usual one.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from lostflops.account.facts.devices import find_device

_PCIE_3, _PCIE_4, _PCIE_5 = 15.75, 31.5, 63.0
_REACHED: Final = 0.85
_SHARED: Final = 0.5
_LINKS: Final = (
    (re.compile(r"V100"), "PCIe 3.0 x16", _PCIE_3),
    (re.compile(r"A100|A10G?$|A40|L4$|L40S|RTX|MI2\d\d"), "PCIe 4.0 x16", _PCIE_4),
    (re.compile(r"H100|H200|H800|H20$|^B[23]00|MI3\d\d"), "PCIe 5.0 x16", _PCIE_5),
    # 900 GB/s in both directions together, between one Grace and the two devices of a superchip.
    (re.compile(r"GB[23]00"), "NVLink-C2C, shared by two devices", 225.0),
)


class HostLink(NamedTuple):
    """Rates of copies in one direction, in bytes per ns (GB/s)."""

    rate: float
    slowest: float
    fastest: float
    said: str
    """Where the rate comes from, in words."""


def host_link(device: str | None) -> HostLink:
    """Return the link of a device.

    >>> link = host_link("NVIDIA H100 80GB HBM3")
    >>> round(link.rate, 1), round(link.slowest, 1), link.fastest
    (53.5, 26.8, 63.0)
    >>> host_link("a device").said
    'PCIe 4.0 x16 is assumed: the link of the device is unknown'
    """
    known = find_device(device or "")
    for pattern, name, peak in _LINKS:
        if known is not None and pattern.search(known.name):
            return HostLink(_REACHED * peak, _SHARED * _REACHED * peak, peak, f"{name} of {known.name}")
    return HostLink(
        _REACHED * _PCIE_4,
        _SHARED * _REACHED * _PCIE_3,
        _PCIE_5,
        "PCIe 4.0 x16 is assumed: the link of the device is unknown",
    )
