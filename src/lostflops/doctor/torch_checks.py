"""What the job's Python and its torch allow."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from lostflops.doctor.check import Check
from lostflops.doctor.machine import Interpreter, Machine, Torch

_RING: Final = ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")
_OLDEST_PYTHON: Final = (3, 11)


def torch_checks(machine: Machine) -> list[Check]:
    found = machine.interpreter
    if found is None:
        return [_no_interpreter(machine.interpreter_error)]
    checks = [python(found, machine.environment), injection(found), frameworks(found), torch(found)]
    if found.torch is None:
        return checks
    has_nvidia = machine.nvidia_params is not None
    return [
        *checks,
        distributed(found.torch),
        flight_recorder(found.torch, machine.environment),
        accelerator(found.torch, has_nvidia),
        profiler(found.torch),
    ]


def _no_interpreter(error: str) -> Check:
    return Check(
        "python",
        "no",
        error,
        "the collector runs inside the job's Python, and this Python cannot be queried",
        "give the job's interpreter with --python",
        is_needed=True,
    )


def python(found: Interpreter, environment: Mapping[str, str]) -> Check:
    finding = f"Python {found.python}, {found.executable}"
    version = tuple(int(part) for part in re.findall(r"\d+", found.python)[:2])
    if version < _OLDEST_PYTHON:
        return Check(
            "python", "no", finding, "the collector needs Python 3.11 or newer", "use a newer Python", is_needed=True
        )
    active = environment.get("VIRTUAL_ENV") or environment.get("CONDA_PREFIX")
    if active and not Path(found.executable).is_relative_to(active):
        return Check(
            "python",
            "limited",
            f"{finding}; the shell's environment is {active}",
            "these checks are for this Python, but the job may use another",
            "give the job's interpreter with --python",
        )
    return Check("python", "ok", finding)


def injection(found: Interpreter) -> Check:
    if not found.is_injected:
        return Check(
            "injection",
            "limited",
            "a sitecustomize on PYTHONPATH does not run in this Python",
            "lostflops run cannot record the job",
            "start Python without -I, -E and -S, or call lostflops.record() in the script",
        )
    other = found.other_sitecustomize
    return Check(
        "injection",
        "ok",
        "a sitecustomize on PYTHONPATH runs" + (f"; so does the existing one, {other}" if other else ""),
    )


def frameworks(found: Interpreter) -> Check:
    named = ", ".join(f"{name} {version}" for name, version in sorted(found.frameworks.items()))
    return Check("frameworks", "ok", named or "no known framework")


def torch(found: Interpreter) -> Check:
    if found.torch is None:
        return Check(
            "torch",
            "no",
            found.torch_error,
            "PyTorch cannot be imported",
            "install torch there, or give the job's interpreter with --python",
            is_needed=True,
        )
    return Check("torch", "ok", f"torch {found.torch.version}")


def distributed(torch: Torch) -> Check:
    if not torch.has_distributed:
        return Check(
            "distributed",
            "no",
            "torch is built without torch.distributed",
            "only one process and no collectives are recorded",
        )
    named = ", ".join(torch.backends) or "none"
    if torch.accelerator == "cuda" and "nccl" not in torch.backends:
        return Check(
            "distributed",
            "limited",
            f"backends: {named}",
            "GPU collectives run without NCCL, through the host",
            "install a torch that is built with NCCL",
        )
    return Check("distributed", "ok", f"backends: {named}")


def flight_recorder(torch: Torch, environment: Mapping[str, str]) -> Check:
    consequence = (
        "collectives are not seen while the job runs: late ranks and ranks that block a hung job are not named"
    )
    if not torch.has_flight_recorder:
        return Check(
            "flight recorder", "no", f"torch {torch.version} cannot dump its buffer", consequence, "use a newer torch"
        )
    name = next((name for name in _RING if name in environment), None)
    if name is None:
        return Check("flight recorder", "ok", "torch can dump its buffer, which has the default size")
    value = environment[name].strip()
    if not value.isdigit() or int(value) == 0:
        return Check(
            "flight recorder",
            "no",
            f"{name}={value} turns the recorder off",
            consequence,
            f"unset {name}, or set it to 2000",
        )
    return Check("flight recorder", "ok", f"buffer of {int(value):,} entries ({name})")


def accelerator(torch: Torch, has_nvidia: bool) -> Check:
    if torch.accelerator:
        names = ", ".join(sorted(set(torch.devices)))
        return Check("accelerator", "ok", f"{len(torch.devices)} x {torch.accelerator}: {names}")
    if has_nvidia:
        return Check(
            "accelerator",
            "limited",
            "an NVIDIA driver is loaded, but torch sees no device",
            "only host time is measured",
            "check CUDA_VISIBLE_DEVICES and that torch is built for CUDA",
        )
    return Check("accelerator", "no", "none", "only host time is measured, no kernel time")


def profiler(torch: Torch) -> Check:
    if not torch.has_kineto:
        return Check(
            "profiler",
            "no",
            "torch is built without Kineto",
            "no deep windows, only steps and collectives",
            "use a torch with Kineto, such as the official builds",
        )
    named = ", ".join(torch.activities)
    if torch.accelerator and not {torch.accelerator.upper()} & set(torch.activities):
        return Check(
            "profiler",
            "limited",
            f"activities: {named}, but not {torch.accelerator}",
            "deep windows have host ops but no device kernels",
            "use a torch with CUPTI (NVIDIA) or ROCtracer (AMD)",
        )
    return Check("profiler", "ok", f"Kineto; activities: {named}")
