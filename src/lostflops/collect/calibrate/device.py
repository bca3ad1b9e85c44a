"""Performance of one device: matrix products, memory, launches, copies. All ranks measure; rank 0's result is kept."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import torch

from lostflops.collect.calibrate.job import CalibrationJob
from lostflops.collect.calibrate.timing import time_action

Action = Callable[[], object]
Tables = dict[str, list[dict[str, Any]]]

TABLES: Final = ("matmuls", "memory", "launches", "copies")
_CPU_DTYPES: Final = ("float32", "bfloat16")
_DEVICE_DTYPES: Final = ("bfloat16", "float16", "float32")
_CPU_SHAPES: Final = (
    (128, 128, 128),
    (16, 2048, 2048),
    (512, 512, 512),
    (1024, 1024, 1024),
    (512, 4096, 1024),
    (2048, 2048, 2048),
)
_DEVICE_SHAPES: Final = (
    (512, 512, 512),
    (16, 8192, 8192),
    (1024, 1024, 1024),
    (2048, 2048, 2048),
    (4096, 4096, 4096),
    (4096, 16384, 4096),
    (8192, 8192, 8192),
)
_CPU_BYTES, _DEVICE_BYTES = 64 << 20, 256 << 20
_COPIED: Final = (1 << 20, 64 << 20)
_MOST_OVER: Final = 3
"""A matrix product is left out if it would take more than this many times its share of the time."""


@dataclass(frozen=True, slots=True)
class Probe:
    """A measurement that becomes a row of a table."""

    table: str
    row: dict[str, Any]
    make: Callable[[], Action]
    kind: str = ""
    work: int = 0
    """Number with which the time grows, among probes of one `kind`; 0 if the probe is always measured."""


def roofline(job: CalibrationJob, seconds: float, said: Callable[[str], None]) -> Tables:
    """Measure the device; return rows by table.

    The first matrix product of a dtype is small and always measured, larger ones while there is time. Every rank comes
    to every barrier, whether it measures or not.
    """
    until = time.monotonic() + seconds
    tables: Tables = {name: [] for name in TABLES}
    found = list(probes(job.device))
    share = seconds / len(found)
    rates: dict[str, float] = {}
    for probe in found:
        said(probe.table)
        job.barrier()
        rate = rates.get(probe.kind)
        if rate is not None and (time.monotonic() > until or 5 * probe.work / rate > _MOST_OVER * share * 1e9):
            continue
        ns = time_action(probe.make(), job.synchronize, share)
        if probe.work:
            rates[probe.kind] = max(probe.work / min(ns), rate or 0)
        tables[probe.table].append({**probe.row, "ns": ns})
    return tables


def probes(device: Any) -> Iterator[Probe]:
    is_cpu = device.type == "cpu"
    yield Probe("launches", {"kind": "small op"}, lambda: torch.zeros(1, device=device).neg_)
    yield from memory_probes(device, _CPU_BYTES if is_cpu else _DEVICE_BYTES)
    if not is_cpu:
        yield from _copies(device)
    for shape in _CPU_SHAPES if is_cpu else _DEVICE_SHAPES:
        for dtype in _CPU_DTYPES if is_cpu else _DEVICE_DTYPES:
            yield product_probe(device, dtype, shape)


def product_probe(device: Any, dtype: str, shape: tuple[int, int, int]) -> Probe:
    m, n, k = shape

    def make() -> Action:
        # Not zeros: a device draws less power for them, and runs faster than it ever would.
        left = torch.randn(m, k, device=device).to(getattr(torch, dtype))
        right = torch.randn(k, n, device=device).to(getattr(torch, dtype))
        out = torch.empty(m, n, device=device, dtype=left.dtype)
        return lambda: torch.mm(left, right, out=out)

    return Probe("matmuls", {"dtype": dtype, "m": m, "n": n, "k": k}, make, dtype, 2 * m * n * k)


def memory_probes(device: Any, size: int) -> Iterator[Probe]:
    def vectors(count: int) -> list[Any]:
        return [torch.ones(size // 4, device=device) for _ in range(count)]

    def copy() -> Action:
        source, target = vectors(2)
        return lambda: target.copy_(source)

    def add() -> Action:
        left, right, target = vectors(3)
        return lambda: torch.add(left, right, out=target)

    yield Probe("memory", {"kind": "copy", "bytes": 2 * size}, copy)
    yield Probe("memory", {"kind": "add", "bytes": 3 * size}, add)


def _copies(device: Any) -> Iterator[Probe]:
    for size in _COPIED:
        for is_pinned in (True, False):
            for direction in ("h2d", "d2h"):
                row = {"direction": direction, "pinned": is_pinned, "bytes": size}
                yield Probe("copies", row, _copy(device, direction, is_pinned, size))


def _copy(device: Any, direction: str, is_pinned: bool, size: int) -> Callable[[], Action]:
    def make() -> Action:
        here = torch.ones(size // 4, pin_memory=is_pinned)
        there = torch.ones(size // 4, device=device)
        source, target = (here, there) if direction == "h2d" else (there, here)
        return lambda: target.copy_(source, non_blocking=is_pinned)

    return make
