"""Facts about a machine, as plain values: checks judge them, and tests make them up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Interpreter:
    """The training job's Python, as it describes itself; see `interpreter.py`."""

    python: str
    executable: str
    is_injected: bool
    """Whether a `sitecustomize` on PYTHONPATH ran, as the collector's does."""
    other_sitecustomize: str | None
    """The environment's own `sitecustomize`, if it has one."""
    frameworks: Mapping[str, str] = field(default_factory=dict)
    """Versions of training frameworks by name."""
    torch: Torch | None = None
    torch_error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Torch:
    version: str
    has_distributed: bool
    backends: tuple[str, ...]
    has_flight_recorder: bool
    has_kineto: bool
    activities: tuple[str, ...]
    """Kinds of activity that the profiler supports here, such as CPU, CUDA."""
    accelerator: str | None
    devices: tuple[str, ...]
    """Names of the accelerators."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Disk:
    """The disk on which the run will be."""

    folder: str
    file_system: str | None
    free_bytes: int | None
    write_error: str
    """Why a small file could not be written; empty if it could."""
    write_ns: int | None
    """Time to write and sync that file, in ns."""
    written_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    interpreter: Interpreter | None
    interpreter_error: str
    """Why the interpreter could not be asked; empty if it could."""
    disk: Disk
    environment: Mapping[str, str] = field(default_factory=dict)
    nvidia_params: str | None = None
    """Text of /proc/driver/nvidia/params."""
    clocksource: str | None = None
    clock_step_ns: int | None = None
    """Smallest step that the wall clock was seen to make."""
    is_synchronised: bool | None = None
    """Whether the kernel says that its clock follows a time server; None if it does not say."""
    clock_error_us: int | None = None
    """Largest error of the clock, as the kernel estimates it."""
    cores: int = 1
    load: float | None = None
    open_files: int | None = None
    """Soft limit of open files; None if there is no limit."""
    file_size: int | None = None
