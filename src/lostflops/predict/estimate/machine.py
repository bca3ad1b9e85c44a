"""The machine that an estimate is for, from the name of a device, a topology and a calibration."""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import Final

from lostflops.account.facts.devices import Device, find_device
from lostflops.core.errors import UsageError
from lostflops.predict.costs.calibration import Calibration, read_calibration
from lostflops.predict.costs.collective_times import CollectiveTimes
from lostflops.predict.costs.roofline import roofline
from lostflops.predict.costs.topology import TOPOLOGIES, NetworkTopology, read_topology
from lostflops.predict.estimate.estimate import PlannedMachine
from lostflops.predict.estimate.rates import (
    LAUNCH_NS,
    MeasuredRates,
    PartlyMeasuredRates,
    PublishedRates,
    Rates,
    capacity,
    device_named,
)

_DTYPES: Final = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32", "fp8": "float8_e4m3fn"}


def machine(
    dtype: str, *, device: str | None, topology: str | None, calibration: Path | None, memory: int | None
) -> PlannedMachine:
    """Return the machine. A calibration gives rates and times if it has them; a device and a topology, named or the
    usual one of that device, give the rest. `memory` in bytes replaces what is known of the device."""
    measured = None if calibration is None else read_calibration(calibration)
    named = _device(device, topology, measured)
    _check_same(named, measured)
    joined = read_topology(topology) if topology else _usual(named)
    rates = _rates(dtype, named, measured)
    has_times = joined is not None or (measured is not None and measured.collectives)
    return PlannedMachine(
        name=named.name if named else _name_device(measured),
        rates=rates,
        times=CollectiveTimes.of(calibration=measured, topology=joined) if has_times else None,
        per_host=_per_host(joined, measured),
        capacity=memory or capacity(named),
    )


def _device(device: str | None, topology: str | None, measured: Calibration | None) -> Device | None:
    if device:
        return device_named(device)
    if topology and (name := read_topology(topology).device):
        return device_named(name)
    return find_device(measured.device_name) if measured and measured.device_name else None


def _check_same(named: Device | None, measured: Calibration | None) -> None:
    """Raise `UsageError` if the calibration is of another device: its rates are not those of this one."""
    if named is None or measured is None:
        return
    known = find_device(measured.device_name) if measured.device_name else None
    if measured.device == "cpu" or (known is not None and known != named):
        raise UsageError(
            f"the calibration was measured on "
            f"{known.name if known else _name_device(measured)}, not on {named.name}: leave "
            "out --calibration, or leave out --device and --topology"
        )


def _name_device(measured: Calibration | None) -> str:
    if measured is None:
        return "an unnamed device"
    return measured.device_name or measured.device or "the calibrated device"


def _usual(device: Device | None) -> NetworkTopology | None:
    """Return the first known machine that is built of that device, or None."""
    for topology in TOPOLOGIES.values():
        if device and topology.device and find_device(topology.device) == device:
            return topology
    return None


def _per_host(joined: NetworkTopology | None, measured: Calibration | None) -> int:
    if joined:
        return joined.gpus_per_host
    if measured and measured.hosts:
        return max(1, *(len(host.ranks) for host in measured.hosts))
    return 8


def _rates(dtype: str, device: Device | None, measured: Calibration | None) -> Rates | None:
    published = PublishedRates(device, dtype) if device else None
    if measured is None:
        return published
    products = [
        (one.m, one.n, one.k, 2e9 * one.m * one.n * one.k / median(one.ns))
        for one in measured.matmuls
        if one.dtype == _DTYPES[dtype] and one.ns
    ]
    if products and (bandwidths := _bandwidths(measured)):
        return MeasuredRates(
            source=_source(measured),
            products=products,
            bandwidths=bandwidths,
            launch_ns=_launch_ns(measured),
            peak=published.peak if published else None,
        )
    if published is None:
        if measured.matmuls and measured.memory:
            raise UsageError(f"the calibration has no matmuls in {_DTYPES[dtype]}: give --dtype or --device")
        return None
    return _partly(published, measured) if not products else published


def _partly(published: PublishedRates, measured: Calibration) -> Rates:
    bandwidths = _bandwidths(measured)
    found = {"memory": bandwidths, "launches": roofline(measured).launch_ns}
    if not any(found.values()):
        return published
    parts = " and ".join(name for name, is_there in found.items() if is_there)
    return PartlyMeasuredRates(published, f"{parts}: {_source(measured)}", bandwidths, _launch_ns(measured))


def _source(measured: Calibration) -> str:
    return f"calibration of {measured.date or 'an unknown date'}"


def _bandwidths(measured: Calibration) -> list[float]:
    """Return bytes per second of the largest size."""
    timed = [one for one in measured.memory if one.ns]
    largest = max((one.bytes for one in timed), default=0)
    return [one.bytes / median(one.ns) * 1e9 for one in timed if one.bytes == largest]


def _launch_ns(measured: Calibration) -> float:
    return roofline(measured).launch_ns or LAUNCH_NS
