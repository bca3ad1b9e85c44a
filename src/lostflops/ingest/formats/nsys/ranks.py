"""Ranks of an Nsight Systems export, with their host, device and clock.

A rank is a process on a device. A process that works on several devices is a rank on each, with the same threads. Its
work on a device with under 1% of the time of its busiest device, as a stray context has, goes with the busiest.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from typing import Final, NamedTuple

from lostflops.ingest.common.columns import NULL
from lostflops.ingest.formats.nsys.file import NsysFile

DEVICE_TABLES: Final = tuple(f"CUPTI_ACTIVITY_KIND_{kind}" for kind in ("KERNEL", "GRAPH_TRACE", "MEMCPY", "MEMSET"))
_LEAST_SHARE: Final = 0.01
_VARIABLE: Final = re.compile(r'(\w+)="?(\d{1,9})"?')
_RANK_VARIABLES: Final = (("RANK", "WORLD_SIZE"), ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"))
_SECOND_MILLENNIUM: Final = 1_000_000_000_000_000_000
"""Unix time in 2001: later stamps were made absolute by the export (`--ts-normalize`)."""
_LAST_TIME: Final = 1 << 61
_SOME_DEVICE: Final = "NVIDIA GPU"
"""Used if the file names no device, or several that may be the rank's: without a name it would be a CPU rank."""


class ProcessDevice(NamedTuple):
    """A process and one of its devices."""

    process: int
    """`globalPid`, as in the file."""
    device: int
    """Number of the device, as the process counts it."""


class ProcessDevices:
    """The ranks of a file in order, and the rank of each pair of process and device, or of process and context."""

    def __init__(self, file: NsysFile) -> None:
        took, devices = _device_time(file)
        self._owner: dict[ProcessDevice, ProcessDevice] = {}
        for process, by_device in took.items():
            busiest = max(by_device, key=lambda device: (by_device[device], -device))
            for device, ns in by_device.items():
                is_own = ns >= _LEAST_SHARE * by_device[busiest]
                self._owner[ProcessDevice(process, device)] = ProcessDevice(process, device if is_own else busiest)
        # Launchers number devices by local rank; with one visible device each, processes are started in order.
        self.ordered = sorted(set(self._owner.values()), key=lambda place: (place.device, place.process))
        self._number = {place: number for number, place in enumerate(self.ordered)}
        self._devices = devices
        self._of_process: dict[int, list[int]] = {}
        for place, number in self._number.items():
            self._of_process.setdefault(place.process, []).append(number)

    def of_device(self, process: int, device: int) -> int:
        """Return the number of the rank, or -1."""
        owner = self._owner.get(ProcessDevice(process, device))
        return -1 if owner is None else self._number[owner]

    def of_context(self, process: int, context: int) -> int:
        """Return the number of the rank of a context; for a context without work, the process's first rank."""
        device = self._devices.get((process, context))
        own = self.of_process(process)
        return self.of_device(process, device) if device is not None else (own[0] if own else -1)

    def of_process(self, process: int) -> list[int]:
        return self._of_process.get(process, [])


def _device_time(file: NsysFile) -> tuple[dict[int, Counter[int]], dict[tuple[int, int], int]]:
    """Return the time of each process by device, and the device of each context."""
    took: defaultdict[int, Counter[int]] = defaultdict(Counter)
    devices: dict[tuple[int, int], int] = {}
    for table in DEVICE_TABLES:
        if not file.holds(table, ("start", "end", "deviceId", "globalPid")):
            continue
        context = file.integer(table, "contextId")
        for process, device, own, ns in file.rows(
            f'select globalPid, deviceId, {context}, total(max("end" - start, 0)) from {table} '
            "where typeof(globalPid) = 'integer' and typeof(deviceId) = 'integer' group by 1, 2, 3"
        ):
            if isinstance(process, int) and isinstance(device, int) and isinstance(own, int):
                took[process][device] += int(min(float(str(ns)), 1e18))
                if own != NULL:
                    devices[process, own] = device
    return took, devices


def recorded_rank(file: NsysFile) -> tuple[int, int] | None:
    """Return rank and number of ranks from the environment in which the profiler was started, or None."""
    found: dict[str, int] = {}
    if {"name", "value"} <= file.columns("META_DATA_CAPTURE"):
        query = "select value from META_DATA_CAPTURE where name = 'PROCESS_0:ENVIRONMENT_VARIABLE'"
        for (value,) in file.rows(query):
            variable = _VARIABLE.fullmatch(value) if isinstance(value, str) else None
            if variable:
                found[variable[1]] = int(variable[2])
    for rank, size in _RANK_VARIABLES:
        if rank in found and size in found and found[rank] < found[size]:
            return found[rank], found[size]
    return None


def host_name(file: NsysFile) -> str | None:
    if not {"name", "value"} <= file.columns("TARGET_INFO_SYSTEM_ENV"):
        return None
    found = {value for (value,) in file.rows("select value from TARGET_INFO_SYSTEM_ENV where name = 'Hostname'")}
    return _sole_text(found)


def device_name(file: NsysFile, place: ProcessDevice) -> str:
    """Return the name of the process's device; a process may number devices differently than the file does."""
    return _told_name(file, place) or _SOME_DEVICE


def _told_name(file: NsysFile, place: ProcessDevice) -> str | None:
    if not {"id", "name"} <= file.columns("TARGET_INFO_GPU"):
        return None
    names: dict[object, object] = {row[0]: row[1] for row in file.rows("select id, name from TARGET_INFO_GPU")}
    if {"gpuId", "cudaId", "pid"} <= file.columns("TARGET_INFO_CUDA_DEVICE"):
        pid = place.process >> 24 & 0xFFFFFF
        query = f"select gpuId from TARGET_INFO_CUDA_DEVICE where cudaId = {place.device} and pid = {pid}"
        return _sole_text({names.get(number) for (number,) in file.rows(query)})
    return _sole_text(set(names.values()))


def base_time(file: NsysFile, first: int) -> int:
    """Return the Unix time that the file's stamps count from; `first` is one of the stamps."""
    if first > _SECOND_MILLENNIUM or "utcEpochNs" not in file.columns("TARGET_INFO_SESSION_START_TIME"):
        return 0
    table = "TARGET_INFO_SESSION_START_TIME"
    stamps = ", ".join(file.integer(table, name) for name in ("utcEpochNs", "systemClockNs"))
    for began, clock in file.rows(f"select {stamps} from {table}"):
        if isinstance(began, int) and isinstance(clock, int) and 0 <= began < _LAST_TIME:
            # Later versions stamp by the machine's own clock, earlier ones from the start of the session.
            base = began - (clock if 0 <= clock < _LAST_TIME else 0)
            return max(base, 0)
    return 0


def _sole_text(values: set[object]) -> str | None:
    """Return the only value, if it is a text with a word in it, otherwise None."""
    value = values.pop() if len(values) == 1 else None
    return value if isinstance(value, str) and re.search(r"\w", value) else None
