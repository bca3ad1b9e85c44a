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
    "NSYS_PROFILING_SESSION_ID": "Nsight Systems records",
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
            "records have no place to go",
            "choose a folder that you may write to",
            is_needed=True,
        )
    return Check("folder", "ok", f"{disk.folder} can be written to")


def space(machine: Machine) -> Check:
    free = machine.disk.free_bytes
    if free is None:
        return Check("space", "limited", "cannot tell", "the run may end where the disk does")
    finding = f"{format_bytes(free)} free"
    if free < _LEAST_FREE:
        return Check("space", "no", finding, "records would be lost", "make room, or choose another disk", True)
    if free < _LITTLE_FREE:
        return Check(
            "space", "limited", finding, "deep windows of many ranks may not fit", "make room, or choose another disk"
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
            "the run takes the job's memory and is gone with the machine",
            "choose a folder on a disk",
        )
    if took is not None and took > _SLOWEST_WRITE_NS:
        return Check(
            "file system",
            "limited",
            finding,
            "a collector whose writes take long drops records",
            "choose a faster disk, and copy the run afterwards",
        )
    if kind in _NETWORK or kind.startswith("fuse."):
        finding += "; a network's: what lostflops watch sees may be some seconds old"
    return Check("file system", "ok", finding)


def clock(machine: Machine) -> Check:
    source, step = machine.clocksource, machine.clock_step_ns
    finding = f"clocksource {source or 'unknown'}" + ("" if step is None else f", steps of {format_ns(step)}")
    if step is not None and step > _COARSEST_NS:
        return Check(
            "clock", "limited", finding, f"shorter times than {format_ns(step)} are rounded", "check the clocksource"
        )
    if source is not None and source not in _FAST_CLOCKS:
        return Check(
            "clock",
            "limited",
            finding,
            "reading this clock is slow, which the collector's own time will show",
            "boot with the clocksource tsc where it is stable",
        )
    return Check("clock", "ok", finding)


def synchronised(machine: Machine) -> Check:
    consequence = "times of several hosts are compared through the job's collectives only"
    if machine.is_synchronised is None:
        return Check("time server", "limited", "cannot tell", consequence)
    if not machine.is_synchronised:
        return Check(
            "time server",
            "limited",
            "the kernel's clock follows none, as far as the kernel knows",
            consequence,
            "run chrony or ntpd; one host alone needs neither",
        )
    error = machine.clock_error_us
    return Check(
        "time server",
        "ok",
        "the kernel's clock follows one" + ("" if error is None else f", within {format_ns(1000 * error)}"),
    )


def cores(machine: Machine) -> Check:
    load = machine.load
    finding = f"{machine.cores} cores" + ("" if load is None else f", load {load:.1f}")
    if load is not None and load > machine.cores:
        return Check(
            "cores",
            "limited",
            finding,
            "other work takes cores: steps measured now are slower than the job's own",
            "measure when the machine is free",
        )
    return Check("cores", "ok", finding)


def limits(machine: Machine) -> Check:
    files, size = machine.open_files, machine.file_size
    finding = f"open files {'unlimited' if files is None else f'{files:,}'}"
    if size is not None:
        return Check(
            "limits",
            "limited",
            f"{finding}, files of at most {format_bytes(size)}",
            "a capture stops growing there, and its records are dropped",
            "ulimit -f unlimited",
        )
    if files is not None and files < _FEWEST_FILES:
        return Check("limits", "limited", finding, "a job with many workers runs out of files", "ulimit -n 4096")
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
        "one tool at a time gets a device's events: deep windows may hold no kernels",
        "start the job without it, or record with --steps none",
    )


def counters(params: str) -> Check:
    """The collector reads no hardware counters; who wants them from another tool should know."""
    found = re.search(r"^RmProfilingAdminOnly:\s*(\d)", params, re.MULTILINE)
    if found is None:
        return Check("counters", "ok", "the NVIDIA driver does not say who may read hardware counters; none are needed")
    who = "administrators only" if found[1] == "1" else "everybody"
    return Check("counters", "ok", f"NVIDIA hardware counters are for {who}; none are needed")
