"""What the machine allows: disk, clocks, cores, limits, and what else listens in."""

from __future__ import annotations

import re
from typing import Final

from lostflops.doctor.check import Check
from lostflops.doctor.machine import Machine
from lostflops.units import format_bytes, format_ns

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


def host_checks(machine: Machine) -> list[Check]:
    checks = [folder(machine), space(machine), file_system(machine), clock(machine), synchronised(machine)]
    checks += [cores(machine), limits(machine), other_profilers(machine)]
    return checks if machine.nvidia_params is None else [*checks, counters(machine.nvidia_params)]


def folder(machine: Machine) -> Check:
    disk = machine.disk
    if disk.write_error:
        return Check(
            "folder",
            "no",
            f"{disk.folder}: {disk.write_error}",
            "the folder is not writable",
            "choose a folder that you can write to",
            is_needed=True,
        )
    return Check("folder", "ok", f"{disk.folder} is writable")


def space(machine: Machine) -> Check:
    free = machine.disk.free_bytes
    if free is None:
        return Check("space", "limited", "unknown", "the disk may fill up during the run")
    finding = f"{format_bytes(free)} free"
    if free < _LEAST_FREE:
        return Check(
            "space",
            "no",
            finding,
            "too little disk space, records would be lost",
            "free some space, or choose another disk",
            is_needed=True,
        )
    if free < _LITTLE_FREE:
        return Check(
            "space",
            "limited",
            finding,
            "deep windows of many ranks may not fit",
            "free some space, or choose another disk",
        )
    return Check("space", "ok", finding)


def file_system(machine: Machine) -> Check:
    disk = machine.disk
    kind = disk.file_system or "unknown file system"
    took = disk.write_ns
    finding = kind if took is None else f"{kind}; {format_bytes(disk.written_bytes)} written in {format_ns(took)}"
    if kind in _MEMORY:
        return Check(
            "file system",
            "limited",
            finding,
            "the run uses memory that the job needs, and is lost when the machine restarts",
            "choose a folder on a disk",
        )
    if took is not None and took > _SLOWEST_WRITE_NS:
        return Check(
            "file system",
            "limited",
            finding,
            "writes are slow, so the collector may drop records",
            "choose a faster disk, and copy the run afterwards",
        )
    if kind in _NETWORK or kind.startswith("fuse."):
        finding += "; a network file system: lostflops watch may lag a few seconds"
    return Check("file system", "ok", finding)


def clock(machine: Machine) -> Check:
    source, step = machine.clocksource, machine.clock_step_ns
    finding = f"clocksource {source or 'unknown'}" + ("" if step is None else f", resolution {format_ns(step)}")
    if step is not None and step > _COARSEST_NS:
        return Check("clock", "limited", finding, f"times below {format_ns(step)} are rounded", "check the clocksource")
    if source is not None and source not in _FAST_CLOCKS:
        return Check(
            "clock",
            "limited",
            finding,
            "reading this clock is slow, which adds to the collector's overhead",
            "boot with clocksource=tsc if it is stable",
        )
    return Check("clock", "ok", finding)


def synchronised(machine: Machine) -> Check:
    consequence = "times of different hosts can be compared only through the job's collectives"
    if machine.is_synchronised is None:
        return Check("time server", "limited", "unknown", consequence)
    if not machine.is_synchronised:
        return Check(
            "time server",
            "limited",
            "the kernel says that its clock is not synchronised",
            consequence,
            "run chrony or ntpd (not needed for a single host)",
        )
    error = machine.clock_error_us
    return Check(
        "time server",
        "ok",
        "the kernel's clock is synchronised" + ("" if error is None else f", within {format_ns(1000 * error)}"),
    )


def cores(machine: Machine) -> Check:
    load = machine.load
    finding = f"{machine.cores} cores" + ("" if load is None else f", load {load:.1f}")
    if load is not None and load > machine.cores:
        return Check(
            "cores",
            "limited",
            finding,
            "other processes use the cores: steps measured now are slower than normal",
            "measure when the machine is idle",
        )
    return Check("cores", "ok", finding)


def limits(machine: Machine) -> Check:
    files, size = machine.open_files, machine.file_size
    finding = f"open files: {'unlimited' if files is None else f'{files:,}'}"
    if size is not None:
        return Check(
            "limits",
            "limited",
            f"{finding}, files of at most {format_bytes(size)}",
            "a capture stops growing at that size, and later records are dropped",
            "ulimit -f unlimited",
        )
    if files is not None and files < _FEWEST_FILES:
        return Check("limits", "limited", finding, "a job with many workers runs out of open files", "ulimit -n 4096")
    return Check("limits", "ok", finding)


def other_profilers(machine: Machine) -> Check:
    found = [
        f"{why} ({name})" for name, why in _PROFILERS.items() if machine.environment.get(name, "0") not in ("", "0")
    ]
    if not found:
        return Check("other profilers", "ok", "none")
    return Check(
        "other profilers",
        "limited",
        "; ".join(found),
        "only one tool at a time gets device events: deep windows may have no kernels",
        "start the job without it, or record with --steps none",
    )


def counters(params: str) -> Check:
    """Report who may read hardware counters. The collector reads none, but other tools do."""
    found = re.search(r"^RmProfilingAdminOnly:\s*(\d)", params, re.MULTILINE)
    if found is None:
        return Check("counters", "ok", "unknown who may read NVIDIA hardware counters; Lostflops does not need them")
    who = "administrators only" if found[1] == "1" else "everybody"
    return Check("counters", "ok", f"NVIDIA hardware counters are for {who}; Lostflops does not need them")
