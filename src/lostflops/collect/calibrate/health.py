"""Measure every rank for a few seconds before a job: matrix products, memory, links, collectives, clocks, versions.

All ranks work at the same time, as they do in a job. A collective is as slow as its slowest member on all of them, so
links are measured in pairs: each rank with up to three others in turn, and its best pair counts. A rank whose own link
is slow is slow in all pairs; its partners are not.
"""

from __future__ import annotations

import gc
import platform
import re
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

import torch
import torch.distributed as dist

from lostflops._version import __version__
from lostflops.collect.calibrate.collectives import GroupPlace, call_of
from lostflops.collect.calibrate.device import Action, Probe, memory_probes, product_probe
from lostflops.collect.calibrate.job import CalibrationJob, choose_device, join, read_launcher
from lostflops.collect.calibrate.levels import COLLECTIVES, by_host, levels
from lostflops.collect.calibrate.machine import place
from lostflops.collect.calibrate.measure import MeasuredCase, Measurer, process_groups
from lostflops.collect.calibrate.meeting_point import MeetingPoint
from lostflops.collect.calibrate.progress import CalibrationProgress
from lostflops.collect.calibrate.result_file import device_name, nccl_version
from lostflops.collect.calibrate.timing import batches
from lostflops.core.errors import LostflopsError

_START_SHARE: Final = 0.4
_MATMUL_SHARE, _MEMORY_SHARE, _COLLECTIVES_SHARE = 0.1, 0.05, 0.2
_BATCH_NS: Final = 50_000_000
"""A batch is longer than the time for which a scheduler lets a process run undisturbed, so that even the fastest batch
of a rank shows a competitor for its core."""
_FEWEST_BATCHES, _MOST_BATCHES = 5, 200
_LOOKS: Final = 10
"""Single calls, of which the fastest sets the number of calls in a batch: others may have been interrupted."""
_ROUNDS: Final = 3
_FIRST_LOOK: Final = 256 << 10
_TRANSFER_SECONDS: Final = 0.2
"""Duration of a transfer on the slowest pair: short enough for three rounds of a link that is 100 times too slow."""
_LARGEST: Final = {"cpu": 8 << 20}
_LARGEST_ON_DEVICES: Final = 64 << 20
_PINGS: Final = 20
_PRODUCTS: Final = {"cpu": ("float32", (512, 512, 512))}
_PRODUCT_ON_DEVICES: Final = ("bfloat16", (8192, 8192, 8192))
_COPIED: Final = {"cpu": 32 << 20}
_COPIED_ON_DEVICES: Final = 256 << 20
_DRIVERS: Final = (
    (Path("/proc/driver/nvidia/version"), re.compile(r"Kernel Module\s+(?:for \S+\s+)?(\d[\d.]*)")),
    (Path("/sys/module/amdgpu/version"), re.compile(r"(\S+)")),
)


@dataclass(frozen=True, slots=True)
class ClusterHealth:
    rank: int
    ranks: list[dict[str, Any]]
    """What each rank says of itself and measured, by rank; the same on all ranks."""
    collectives: list[dict[str, Any]]
    notes: list[str]


def examine(
    environment: Mapping[str, str], kind: str | None, seconds: float, facts: Mapping[str, Any]
) -> ClusterHealth:
    """Measure on every rank, within `seconds`: after that, rank 0 says which ranks are behind, and all processes end.

    `facts` are added to what this rank says of itself.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        return _examine(environment, kind, seconds, facts)
    finally:
        if collects:
            gc.enable()


def _examine(
    environment: Mapping[str, str], kind: str | None, seconds: float, facts: Mapping[str, Any]
) -> ClusterHealth:
    began = time.monotonic()
    launched = read_launcher(environment)
    if int(launched.get("WORLD_SIZE", "1")) == 1:
        return _measure(join(environment, kind, seconds), seconds, facts, lambda _phase: None)
    point = MeetingPoint(launched, began + seconds)
    problem = ""
    try:
        check_device(environment, kind)
    except LostflopsError as error:
        problem = str(error)
    point.arrive(_START_SHARE * seconds, problem)
    point.guard()
    try:
        point.enter("connect")
        job = join(environment, kind, seconds + 5, point.store)
        health = _measure(job, seconds - (time.monotonic() - began), facts, point.enter)
        job.barrier()
        dist.destroy_process_group()
    except (RuntimeError, OSError) as error:
        what = str(error).strip().splitlines()[0]
        raise LostflopsError(f"the check ended early: {point.describe()}. PyTorch: {what}") from error
    finally:
        point.close()
    return health


def check_device(environment: Mapping[str, str], kind: str | None) -> None:
    """Raise if this rank has no device."""
    choose_device(kind, int(read_launcher(environment).get("LOCAL_RANK", "0")))


def _measure(
    job: CalibrationJob, seconds: float, facts: Mapping[str, Any], enter: Callable[[str], None]
) -> ClusterHealth:
    enter("clocks")
    hosts = by_host(job.gather_objects(place()))
    own: dict[str, Any] = {**_describe(job), **facts, "clock": _clock(job, hosts)}
    for name, make_probe, share in (("matmul", _product, _MATMUL_SHARE), ("memory", _copy, _MEMORY_SHARE)):
        enter(name)
        own[name] = _measure_probe(job, make_probe(job.device), share * seconds)
        enter(f"after {name}")
        job.barrier()
    enter("links")
    own["links"], gbs = _links(job, hosts)
    enter("collectives")
    cases, notes = _collectives(job, hosts, gbs, _COLLECTIVES_SHARE * seconds)
    enter("result")
    ranks = job.gather_objects(own)
    numbers = {rank: number for number, host in enumerate(hosts) for rank in host}
    for rank, row in enumerate(ranks):
        row |= {"rank": rank, "host_number": numbers[rank], "clock": ranks[hosts[numbers[rank]][0]]["clock"]}
    rows = [row for case in cases for row in case.rows()]
    return ClusterHealth(job.rank, ranks, rows, notes)


def _describe(job: CalibrationJob) -> dict[str, Any]:
    return {
        "host": socket.gethostname(),
        "device": device_name(job.device),
        "torch": torch.__version__,
        "nccl": nccl_version() if job.backend == "nccl" else None,
        "driver": _driver(),
        "python": platform.python_version(),
        "lostflops": __version__,
    }


def _driver() -> str | None:
    for path, pattern in _DRIVERS:
        try:
            found = pattern.search(path.read_text(encoding="utf-8"))
        except OSError:
            continue
        if found:
            return found[1]
    return None


def _clock(job: CalibrationJob, hosts: Sequence[tuple[int, ...]]) -> dict[str, int] | None:
    """Return how far this host's clock is ahead of that of rank 0's host, in ns, and the error of that; only the first
    rank of another host knows it."""
    mine: dict[str, int] | None = None
    for first in [ranks[0] for ranks in hosts[1:]]:
        if job.rank == 0:
            for _ in range(_PINGS):
                _receive(job, first)
                _send(job, first, time.time_ns())
        elif job.rank == first:
            mine = min((_ping(job) for _ in range(_PINGS)), key=lambda ping: ping["error"])
    job.barrier()
    return mine


def _ping(job: CalibrationJob) -> dict[str, int]:
    began = time.time_ns()
    _send(job, 0, began)
    theirs = _receive(job, 0)
    ended = time.time_ns()
    return {"offset": (began + ended) // 2 - theirs, "error": (ended - began) // 2}


def _send(job: CalibrationJob, other: int, number: int) -> None:
    dist.send(torch.tensor([number], dtype=torch.int64), other, group=job.control)


def _receive(job: CalibrationJob, other: int) -> int:
    got = torch.zeros(1, dtype=torch.int64)
    dist.recv(got, other, group=job.control)
    return int(got.item())


def _product(device: Any) -> Probe:
    dtype, shape = _PRODUCTS.get(device.type, _PRODUCT_ON_DEVICES)
    return product_probe(device, dtype, shape)


def _copy(device: Any) -> Probe:
    return next(iter(memory_probes(device, _COPIED.get(device.type, _COPIED_ON_DEVICES))))


def _measure_probe(job: CalibrationJob, probe: Probe, seconds: float) -> dict[str, Any]:
    """Return what was measured, with the time of a call in ns for each batch."""
    action = probe.make()
    action()
    job.synchronize()
    once = min(_time(action, job.synchronize, 1) for _ in range(_LOOKS))
    calls = max(_BATCH_NS // max(once, 1), 1)
    until = time.monotonic() + seconds
    ns: list[int] = []
    while len(ns) < _FEWEST_BATCHES or (time.monotonic() < until and len(ns) < _MOST_BATCHES):
        ns.append(_time(action, job.synchronize, calls) // calls)
    return {**probe.row, "ns": ns}


def _time(action: Action, synchronize: Callable[[], None], calls: int) -> int:
    began = time.perf_counter_ns()
    for _ in range(calls):
        action()
    synchronize()
    return time.perf_counter_ns() - began


def _links(job: CalibrationJob, hosts: Sequence[tuple[int, ...]]) -> tuple[dict[str, list[dict[str, Any]]], float]:
    """Return this rank's transfers inside its host and across hosts, and the rate of the slowest pair in GB/s."""
    mine: dict[str, list[dict[str, Any]]] = {}
    slowest = float("inf")
    for level in ("inside", "across"):
        mine[level] = []
        for pairs in rounds(hosts, level):
            row, rate = _exchange(job, pairs)
            slowest = min(slowest, rate)
            mine[level] += [] if row is None else [row]
    return mine, slowest


def _exchange(job: CalibrationJob, pairs: Sequence[tuple[int, int]]) -> tuple[dict[str, Any] | None, float]:
    """Return this rank's transfers with its partner, and the rate of the slowest pair in GB/s."""
    pair = next((pair for pair in pairs if job.rank in pair), None)
    _, rate = _transfers(job, pairs, pair, _FIRST_LOOK, 1)
    size = _size(job, rate)
    elapsed, rate = _transfers(job, pairs, pair, size, 3)
    if pair is None:
        return None, rate
    peer = pair[1 - pair.index(job.rank)]
    ns = [max(both) // 2 for both in zip(elapsed[job.rank], elapsed[peer], strict=True)]
    return {"peer": peer, "bytes": size, "ns": ns}, rate


def _transfers(
    job: CalibrationJob, pairs: Sequence[tuple[int, int]], pair: tuple[int, int] | None, size: int, count: int
) -> tuple[list[list[int]], float]:
    """Send there and back; return the time of both by rank and batch, and the rate of the slowest pair in GB/s."""
    own = None if pair is None else GroupPlace(job.rank, pair, dist.group.WORLD, job.device)
    elapsed = batches(job, None if own is None else call_of("send_recv", size, own), 2, count)
    longest = max(median(elapsed[rank]) for both in pairs for rank in both)
    return elapsed, 2 * size / max(longest, 1)


def _size(job: CalibrationJob, gbs: float) -> int:
    """Return a size in bytes that takes about `_TRANSFER_SECONDS`, if that is not too small or too large."""
    most = _LARGEST.get(job.device.type, _LARGEST_ON_DEVICES)
    return min(max(int(gbs * 1e9 * _TRANSFER_SECONDS) >> 10 << 10, _FIRST_LOOK), most)


def rounds(hosts: Sequence[tuple[int, ...]], level: str) -> Iterator[list[tuple[int, int]]]:
    """Yield the pairs of ranks that exchange at the same time, each time with other partners.

    >>> list(rounds([(0, 1, 2)], "inside"))
    [[(0, 1)], [(0, 2)], [(1, 2)]]
    >>> list(rounds([(0, 1), (2, 3)], "inside")), list(rounds([(0, 1), (2, 3)], "across"))
    ([[(0, 1), (2, 3)]], [[(0, 2), (1, 3)]])
    """
    width = max(map(len, hosts)) if level == "inside" else len(hosts)
    for pairs in _tournament(width):
        if level == "inside":
            found = [(ranks[a], ranks[b]) for ranks in hosts for a, b in pairs if b < len(ranks)]
        else:
            found = [both for a, b in pairs for both in zip(hosts[a], hosts[b], strict=False)]
        if found:
            yield found


def _tournament(count: int) -> Iterator[list[tuple[int, int]]]:
    """Yield the first rounds of a tournament, in which each player meets another one in each round; with an odd number
    one of them rests."""
    players: list[int | None] = [None, *range(count)] if count % 2 else list(range(count))
    for _ in range(min(_ROUNDS, len(players) - 1)):
        half = len(players) // 2
        met = zip(players[:half], reversed(players[half:]), strict=True)
        yield sorted((min(a, b), max(a, b)) for a, b in met if a is not None and b is not None)
        players = [players[0], players[-1], *players[1:-1]]


def _collectives(
    job: CalibrationJob, hosts: Sequence[tuple[int, ...]], gbs: float, seconds: float
) -> tuple[list[MeasuredCase], list[str]]:
    found = [level for level in levels(hosts) if level.ops == COLLECTIVES]
    cases = [MeasuredCase(op, level) for level in found for op in level.ops]
    if not cases:
        return [], []
    measurer = Measurer(job, cases, process_groups(job, found))
    measurer.run([_size(job, gbs / len(COLLECTIVES))], CalibrationProgress(False, seconds), seconds)
    return cases, measurer.notes
