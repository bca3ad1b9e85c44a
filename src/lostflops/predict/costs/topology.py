"""Links between the devices of a cluster: a named machine, or a small file that describes one.

Bandwidths are GB/s per direction as in datasheets; how much of that a library reaches is not known here.
"""

from __future__ import annotations

import json
import tomllib
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final, Literal

from lostflops.account.facts.devices import find_device
from lostflops.core.errors import UsageError

Link = Literal["nvlink", "pci"]
Cpu = Literal["intel", "amd"]


@dataclass(frozen=True, slots=True)
class NetworkTopology:
    """Hosts that are all alike, and the links in and between them."""

    name: str
    device: str | None
    gpus_per_host: int
    """Devices that reach each other at `scaleup_gbs`: those of a host, or of an NVLink domain of several hosts, such as
    the 72 of an NVL72 rack, which collectives use like one host."""
    scaleup_gbs: float
    """Rate at which one device sends to its peers in the host or domain."""
    nics_per_host: int
    """Number of network adapters; 0 for a single host. With one for each device, each device has its own rail."""
    nic_gbs: float
    """Rate at which one network adapter sends."""
    link: Link
    source: str
    cpu: Cpu | None = None
    nvls: bool = False
    """Whether the switch between the devices reduces (NVLink SHARP)."""


SLOWEST_NVLINK_GBS: Final = 100
"""A device with less than this to its peers is assumed to reach them over PCIe, unless its file says otherwise."""


def _machine(
    name: str, device: str, nics: tuple[int, float], source: str, cpu: Cpu | None = None, *, gpus: int = 8
) -> NetworkTopology:
    """Return devices that are joined by NVSwitch, as in all of the machines below."""
    known = find_device(device)
    assert known is not None, device
    assert known.scaleup_gbs is not None, device
    reduces = not known.name.startswith("A100")
    return NetworkTopology(name, device, gpus, known.scaleup_gbs, *nics, "nvlink", source, cpu, reduces)


TOPOLOGIES: Final = {
    topology.name: topology
    for topology in (
        _machine("dgx-a100", "A100-SXM4-80GB", (8, 25), "NVIDIA DGX A100 datasheet (8x 200 Gb/s HDR)", "amd"),
        _machine("dgx-h100", "H100 80GB HBM3", (8, 50), "NVIDIA DGX H100 datasheet (8x 400 Gb/s NDR)", "intel"),
        _machine("dgx-h200", "H200", (8, 50), "NVIDIA DGX H200 datasheet (8x 400 Gb/s NDR)", "intel"),
        _machine("dgx-b200", "B200", (8, 50), "NVIDIA DGX B200 datasheet (8x 400 Gb/s NDR)", "intel"),
        _machine("dgx-b300", "B300", (8, 100), "NVIDIA DGX B300 datasheet (8x 800 Gb/s ConnectX-8)", "intel"),
        _machine(
            "gb200-nvl72",
            "GB200",
            (72, 50),
            "NVIDIA GB200 NVL72 datasheet (one NVLink domain) and DGX GB200 SuperPOD reference architecture "
            "(4x 400 Gb/s NDR for each tray of 4 GPUs)",
            gpus=72,
        ),
        _machine(
            "gb300-nvl72",
            "GB300",
            (72, 100),
            "NVIDIA GB300 NVL72 datasheet (one NVLink domain, 72x 800 Gb/s ConnectX-8)",
            gpus=72,
        ),
        _machine("p4d.24xlarge", "A100-SXM4-40GB", (4, 12.5), "AWS EC2 P4 instances (400 Gb/s EFA)", "intel"),
        _machine("p5.48xlarge", "H100 80GB HBM3", (32, 12.5), "AWS EC2 P5 instances (3200 Gb/s EFA)", "amd"),
    )
}

_EXAMPLE: Final = 'device = "NVIDIA H100 80GB HBM3", gpus_per_host = 8, nics_per_host = 8, nic_gbs = 50'
_TYPES: Final[dict[str, type | tuple[type, ...]]] = {
    "name": str,
    "device": str,
    "gpus_per_host": int,
    "scaleup_gbs": (int, float),
    "nics_per_host": int,
    "nic_gbs": (int, float),
    "link": str,
    "source": str,
    "cpu": str,
    "nvls": bool,
}
_LARGEST: Final = 1_000_000
"""Devices, adapters or GB/s of a host: more than any has."""
_CHOICES: Final = {"link": ("nvlink", "pci"), "cpu": ("intel", "amd")}


def read_topology(path_or_name: str | Path) -> NetworkTopology:
    """Return a named topology, or read one from a TOML or JSON file.

    >>> dgx = read_topology("dgx-h100")
    >>> dgx.gpus_per_host, dgx.scaleup_gbs, dgx.nics_per_host, dgx.nic_gbs
    (8, 450, 8, 50)
    """
    named = TOPOLOGIES.get(str(path_or_name).casefold())
    if named is not None:
        return named
    path = Path(path_or_name)
    if not path.is_file():
        raise UsageError(
            f"{path} is neither a file nor a known topology: give one of {', '.join(TOPOLOGIES)}, "
            f"or a TOML or JSON file as in {_EXAMPLE}"
        )
    return parse_topology(_load(path), path.stem, str(path))


def _load(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
        found = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(
            f"{path} cannot be read as a topology ({error}): write TOML or JSON as in {_EXAMPLE}"
        ) from None
    if not isinstance(found, dict):
        raise UsageError(f"{path} is not a topology: write an object of keys as in {_EXAMPLE}")
    return found


def parse_topology(facts: dict[str, Any], name: str, where: str) -> NetworkTopology:
    """Return a topology from its keys; keys that follow from the device may be left out.

    >>> parse_topology({"device": "NVIDIA A100-SXM4-80GB", "gpus_per_host": 4}, "mine", "mine.toml").scaleup_gbs
    300
    """
    for key, value in facts.items():
        _check(key, value, where)
    if "gpus_per_host" not in facts:
        raise UsageError(f"{where} has no gpus_per_host: add the number of devices per host")
    facts = _with_device(facts, where)
    network = ("nics_per_host" in facts, "nic_gbs" in facts)
    if any(network) and not all(network):
        raise UsageError(f"{where} has only one of nics_per_host and nic_gbs: give both, or neither for a single host")
    topology = NetworkTopology(
        name=facts.get("name", name),
        device=facts.get("device"),
        gpus_per_host=facts["gpus_per_host"],
        scaleup_gbs=facts["scaleup_gbs"],
        nics_per_host=facts.get("nics_per_host", 0),
        nic_gbs=facts.get("nic_gbs", 0.0),
        link=facts.get("link", "nvlink" if facts["scaleup_gbs"] >= SLOWEST_NVLINK_GBS else "pci"),
        source=facts.get("source", where),
        cpu=facts.get("cpu"),
        nvls=facts.get("nvls", False),
    )
    if topology.nvls and topology.link != "nvlink":
        raise UsageError(f"{where} has nvls over {topology.link}: only an NVLink switch can reduce; remove nvls")
    return topology


def _check(key: str, value: object, where: str) -> None:
    if key not in _TYPES:
        known = ", ".join(field.name for field in fields(NetworkTopology))
        raise UsageError(f"{where} has an unknown key {key!r}: known keys are {known}")
    if not isinstance(value, _TYPES[key]) or (isinstance(value, bool) and key != "nvls"):
        raise UsageError(f"{where} has {key} = {value!r}: wrong type; write it as in {_EXAMPLE}")
    if isinstance(value, int | float) and key != "nvls" and not 0 < value <= _LARGEST:
        limits = f"it must be above zero and at most {_LARGEST:,}, or left out"
        raise UsageError(f"{where} has {key} = {value!r:.40}: {limits}")
    if key in _CHOICES and value not in _CHOICES[key]:
        raise UsageError(f"{where} has {key} = {value!r}: use one of {', '.join(_CHOICES[key])}")


def _with_device(facts: dict[str, Any], where: str) -> dict[str, Any]:
    if "scaleup_gbs" in facts:
        return facts
    device = find_device(facts.get("device", ""))
    if device is None or device.scaleup_gbs is None:
        named = facts.get("device") or "an unnamed device"
        raise UsageError(
            f"{where} has no scaleup_gbs, and that of {named} is unknown: add GB/s per direction inside a host"
        )
    return {**facts, "scaleup_gbs": device.scaleup_gbs}
