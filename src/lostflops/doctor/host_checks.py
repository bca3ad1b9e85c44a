"""Checks of the machine: disk, clocks, cores, limits, and other profilers."""

from __future__ import annotations

import re
from typing import Final

from lostflops.core.units import format_bytes, format_ns
from lostflops.doctor.check import DoctorCheck
from lostflops.doctor.machine import Machine

_NETWORK: Final = ("nfs", "nfs4", "cifs", "smb3", "lustre", "gpfs", "beegfs", "ceph", "9p", "afs", "glusterfs")
_MEMORY: Final = ("tmpfs", "ramfs")
_LEAST_FREE: Final = 50_000_000
_LITTLE_FREE: Final = 2_000_000_000
_SLOWEST_WRITE_NS: Final = 1_000_000_000
_FAST_CLOCKS: Final = ("tsc", "kvm-clock", "arch_sys_counter", "hyperv_clocksource_tsc_page", "xen")
_COARSEST_NS: Final = 1_000
_FEWEST_FILES: Final = 1_024
_PROFILERS: Final = {
    "CUDA_INJECTION64_PATH": "a CUDA tool is injected",
    "NSYS_PROFILING_SESSION_ID": "Nsight Systems is recording",
    "KINETO_USE_DAEMON": "a dynolog daemon may start Kineto",
    "HSA_TOOLS_LIB": "a ROCm tool is loaded",
    "ROCP_TOOL_LIB": "a ROCm profiler is loaded",
}


def host_checks(machine: Machine) -> list[DoctorCheck]:
    checks = [folder(machine), space(machine), file_system(machine), clock(machine), check_time_server(machine)]
    checks += [cores(machine), limits(machine), other_profilers(machine)]
    return checks if machine.nvidia_params is None else [*checks, counters(machine.nvidia_params)]


def folder(machine: Machine) -> DoctorCheck:
    disk = machine.disk
    if disk.write_error:
        return DoctorCheck(
            name="folder",
            state="no",
            finding=f"{disk.folder}: {disk.write_error}",
            consequence="the folder is not writable",
            remedy="choose a folder that you can write to",
            is_needed=True,
        )
    return DoctorCheck(name="folder", state="ok", finding=f"{disk.folder} is writable")


def space(machine: Machine) -> DoctorCheck:
    free = machine.disk.free_bytes
    if free is None:
        return DoctorCheck(
            name="space", state="limited", finding="unknown", consequence="the disk may fill up during the run"
        )
    finding = f"{format_bytes(free)} free"
    if free < _LEAST_FREE:
        return DoctorCheck(
            name="space",
            state="no",
            finding=finding,
            consequence="too little disk space, records would be lost",
            remedy="free some space, or choose another disk",
            is_needed=True,
        )
    if free < _LITTLE_FREE:
        return DoctorCheck(
            name="space",
            state="limited",
            finding=finding,
            consequence="deep windows of many ranks may not fit",
            remedy="free some space, or choose another disk",
        )
    return DoctorCheck(name="space", state="ok", finding=finding)


def file_system(machine: Machine) -> DoctorCheck:
    disk = machine.disk
    kind = disk.file_system or "unknown file system"
    took = disk.write_ns
    finding = kind if took is None else f"{kind}; {format_bytes(disk.written_bytes)} written in {format_ns(took)}"
    if kind in _MEMORY:
        return DoctorCheck(
            name="file system",
            state="limited",
            finding=finding,
            consequence="the run uses memory that the job needs, and is lost when the machine restarts",
            remedy="choose a folder on a disk",
        )
    if took is not None and took > _SLOWEST_WRITE_NS:
        return DoctorCheck(
            name="file system",
            state="limited",
            finding=finding,
            consequence="writes are slow, so the collector may drop records",
            remedy="choose a faster disk, and copy the run afterwards",
        )
    if kind in _NETWORK or kind.startswith("fuse."):
        finding += "; a network file system: lostflops watch may lag a few seconds"
    return DoctorCheck(name="file system", state="ok", finding=finding)


def clock(machine: Machine) -> DoctorCheck:
    source, step = machine.clocksource, machine.clock_step_ns
    finding = f"clocksource {source or 'unknown'}" + ("" if step is None else f", resolution {format_ns(step)}")
    if step is not None and step > _COARSEST_NS:
        return DoctorCheck(
            name="clock",
            state="limited",
            finding=finding,
            consequence=f"times below {format_ns(step)} are rounded",
            remedy="check the clocksource",
        )
    if source is not None and source not in _FAST_CLOCKS:
        return DoctorCheck(
            name="clock",
            state="limited",
            finding=finding,
            consequence="reading this clock is slow, which adds to the collector's overhead",
            remedy="boot with clocksource=tsc if it is stable",
        )
    return DoctorCheck(name="clock", state="ok", finding=finding)


def check_time_server(machine: Machine) -> DoctorCheck:
    consequence = "times of different hosts can be compared only through the job's collectives"
    if machine.is_synchronised is None:
        return DoctorCheck(name="time server", state="limited", finding="unknown", consequence=consequence)
    if not machine.is_synchronised:
        return DoctorCheck(
            name="time server",
            state="limited",
            finding="the kernel says that its clock is not synchronised",
            consequence=consequence,
            remedy="run chrony or ntpd (not needed for a single host)",
        )
    error = machine.clock_error_us
    return DoctorCheck(
        name="time server",
        state="ok",
        finding="the kernel's clock is synchronised" + ("" if error is None else f", within {format_ns(1000 * error)}"),
    )


def cores(machine: Machine) -> DoctorCheck:
    load = machine.load
    finding = f"{machine.cores} cores" + ("" if load is None else f", load {load:.1f}")
    if load is not None and load > machine.cores:
        return DoctorCheck(
            name="cores",
            state="limited",
            finding=finding,
            consequence="other processes use the cores: steps measured now are slower than normal",
            remedy="measure when the machine is idle",
        )
    return DoctorCheck(name="cores", state="ok", finding=finding)


def limits(machine: Machine) -> DoctorCheck:
    files, size = machine.open_files, machine.file_size
    finding = f"open files: {'unlimited' if files is None else f'{files:,}'}"
    if size is not None:
        return DoctorCheck(
            name="limits",
            state="limited",
            finding=f"{finding}, files of at most {format_bytes(size)}",
            consequence="a capture stops growing at that size, and later records are dropped",
            remedy="ulimit -f unlimited",
        )
    if files is not None and files < _FEWEST_FILES:
        return DoctorCheck(
            name="limits",
            state="limited",
            finding=finding,
            consequence="a job with many workers runs out of open files",
            remedy="ulimit -n 4096",
        )
    return DoctorCheck(name="limits", state="ok", finding=finding)


def other_profilers(machine: Machine) -> DoctorCheck:
    found = [
        f"{why} ({name})" for name, why in _PROFILERS.items() if machine.environment.get(name, "0") not in ("", "0")
    ]
    if not found:
        return DoctorCheck(name="other profilers", state="ok", finding="none")
    return DoctorCheck(
        name="other profilers",
        state="limited",
        finding="; ".join(found),
        consequence="only one tool at a time gets device events: deep windows may have no kernels",
        remedy="start the job without it, or record with --steps none",
    )


def counters(params: str) -> DoctorCheck:
    """Report who may read hardware counters. The collector reads none, but other tools do."""
    found = re.search(r"^RmProfilingAdminOnly:\s*(\d)", params, re.MULTILINE)
    if found is None:
        return DoctorCheck(
            name="counters",
            state="ok",
            finding="unknown who may read NVIDIA hardware counters; Lostflops does not need them",
        )
    who = "administrators only" if found[1] == "1" else "everybody"
    return DoctorCheck(
        name="counters", state="ok", finding=f"NVIDIA hardware counters are for {who}; Lostflops does not need them"
    )
