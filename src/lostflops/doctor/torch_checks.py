"""Checks of the job's Python and its torch."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from lostflops.doctor.check import DoctorCheck
from lostflops.doctor.machine import Interpreter, Machine, Torch

_RING: Final = ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")
_OLDEST_PYTHON: Final = (3, 11)


def torch_checks(machine: Machine) -> list[DoctorCheck]:
    found = machine.interpreter
    if found is None:
        return [_no_interpreter(machine.interpreter_error)]
    checks = [python(found, machine.environment), injection(found), frameworks(found), torch(found)]
    if found.torch is None:
        return checks
    has_nvidia = machine.nvidia_params is not None
    return [
        *checks,
        check_distributed(found.torch),
        flight_recorder(found.torch, machine.environment),
        accelerator(found.torch, has_nvidia),
        profiler(found.torch),
    ]


def _no_interpreter(error: str) -> DoctorCheck:
    return DoctorCheck(
        name="python",
        state="no",
        finding=error,
        consequence="the collector runs inside the job's Python, and this Python cannot be queried",
        remedy="give the job's interpreter with --python",
        is_needed=True,
    )


def python(found: Interpreter, environment: Mapping[str, str]) -> DoctorCheck:
    finding = f"Python {found.python}, {found.executable}"
    version = tuple(int(part) for part in re.findall(r"\d+", found.python)[:2])
    if version < _OLDEST_PYTHON:
        return DoctorCheck(
            name="python",
            state="no",
            finding=finding,
            consequence="the collector needs Python 3.11 or newer",
            remedy="use a newer Python",
            is_needed=True,
        )
    active = environment.get("VIRTUAL_ENV") or environment.get("CONDA_PREFIX")
    if active and not Path(found.executable).is_relative_to(active):
        return DoctorCheck(
            name="python",
            state="limited",
            finding=f"{finding}; the shell's environment is {active}",
            consequence="these checks are for this Python, but the job may use another",
            remedy="give the job's interpreter with --python",
        )
    return DoctorCheck(name="python", state="ok", finding=finding)


def injection(found: Interpreter) -> DoctorCheck:
    if not found.is_injected:
        return DoctorCheck(
            name="injection",
            state="limited",
            finding="a sitecustomize on PYTHONPATH does not run in this Python",
            consequence="lostflops run cannot record the job",
            remedy="start Python without -I, -E and -S, or call lostflops.record() in the script",
        )
    other = found.other_sitecustomize
    return DoctorCheck(
        name="injection",
        state="ok",
        finding="a sitecustomize on PYTHONPATH runs" + (f"; so does the existing one, {other}" if other else ""),
    )


def frameworks(found: Interpreter) -> DoctorCheck:
    named = ", ".join(f"{name} {version}" for name, version in sorted(found.frameworks.items()))
    return DoctorCheck(name="frameworks", state="ok", finding=named or "no known framework")


def torch(found: Interpreter) -> DoctorCheck:
    if found.torch is None:
        return DoctorCheck(
            name="torch",
            state="no",
            finding=found.torch_error,
            consequence="PyTorch cannot be imported",
            remedy="install torch there, or give the job's interpreter with --python",
            is_needed=True,
        )
    return DoctorCheck(name="torch", state="ok", finding=f"torch {found.torch.version}")


def check_distributed(torch: Torch) -> DoctorCheck:
    if not torch.has_distributed:
        return DoctorCheck(
            name="distributed",
            state="no",
            finding="torch is built without torch.distributed",
            consequence="only one process and no collectives are recorded",
        )
    named = ", ".join(torch.backends) or "none"
    if torch.accelerator == "cuda" and "nccl" not in torch.backends:
        return DoctorCheck(
            name="distributed",
            state="limited",
            finding=f"backends: {named}",
            consequence="GPU collectives run without NCCL, through the host",
            remedy="install a torch that is built with NCCL",
        )
    return DoctorCheck(name="distributed", state="ok", finding=f"backends: {named}")


def flight_recorder(torch: Torch, environment: Mapping[str, str]) -> DoctorCheck:
    consequence = (
        "collectives are not seen while the job runs: late ranks and ranks that block a hung job are not named"
    )
    if not torch.has_flight_recorder:
        return DoctorCheck(
            name="flight recorder",
            state="no",
            finding=f"torch {torch.version} cannot dump its buffer",
            consequence=consequence,
            remedy="use a newer torch",
        )
    name = next((name for name in _RING if name in environment), None)
    if name is None:
        return DoctorCheck(
            name="flight recorder", state="ok", finding="torch can dump its buffer, which has the default size"
        )
    value = environment[name].strip()
    if not value.isdigit() or int(value) == 0:
        return DoctorCheck(
            name="flight recorder",
            state="no",
            finding=f"{name}={value} turns the recorder off",
            consequence=consequence,
            remedy=f"unset {name}, or set it to 2000",
        )
    return DoctorCheck(name="flight recorder", state="ok", finding=f"buffer of {int(value):,} entries ({name})")


def accelerator(torch: Torch, has_nvidia: bool) -> DoctorCheck:
    if torch.accelerator:
        names = ", ".join(sorted(set(torch.devices)))
        return DoctorCheck(
            name="accelerator", state="ok", finding=f"{len(torch.devices)} x {torch.accelerator}: {names}"
        )
    if has_nvidia:
        return DoctorCheck(
            name="accelerator",
            state="limited",
            finding="an NVIDIA driver is loaded, but torch sees no device",
            consequence="only host time is measured",
            remedy="check CUDA_VISIBLE_DEVICES and that torch is built for CUDA",
        )
    return DoctorCheck(
        name="accelerator", state="no", finding="none", consequence="only host time is measured, no kernel time"
    )


def profiler(torch: Torch) -> DoctorCheck:
    if not torch.has_kineto:
        return DoctorCheck(
            name="profiler",
            state="no",
            finding="torch is built without Kineto",
            consequence="no deep windows, only steps and collectives",
            remedy="use a torch with Kineto, such as the official builds",
        )
    named = ", ".join(torch.activities)
    if torch.accelerator and not {torch.accelerator.upper()} & set(torch.activities):
        return DoctorCheck(
            name="profiler",
            state="limited",
            finding=f"activities: {named}, but not {torch.accelerator}",
            consequence="deep windows have host ops but no device kernels",
            remedy="use a torch with CUPTI (NVIDIA) or ROCtracer (AMD)",
        )
    return DoctorCheck(name="profiler", state="ok", finding=f"Kineto; activities: {named}")
