"""Ask the training job's interpreter about itself, in a process of its own: `lostflops doctor` never imports torch."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from lostflops.doctor.machine import Interpreter, Torch

TIMEOUT: Final = 120.0
"""Seconds; importing torch from a cold network disk takes long."""
_MARK: Final = "import sys\nsys.lostflops_was_here = True\n"
_SCRIPT: Final = """
import importlib.machinery, importlib.metadata, json, os, platform, sys

ours = os.environ["LOSTFLOPS_DOCTOR"]
elsewhere = [place for place in sys.path if place and os.path.realpath(place) != os.path.realpath(ours)]
spec = importlib.machinery.PathFinder.find_spec("sitecustomize", elsewhere)
facts = {
    "python": platform.python_version(),
    "executable": sys.executable,
    "is_injected": getattr(sys, "lostflops_was_here", False),
    "other_sitecustomize": spec and spec.origin,
    "frameworks": {},
    "torch": None,
    "torch_error": "",
}
for name in ("accelerate", "deepspeed", "lightning", "pytorch-lightning", "torchtitan", "transformers"):
    try:
        facts["frameworks"][name] = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        pass


def torch_facts():
    import torch
    import torch.profiler
    distributed = getattr(torch, "distributed", None)
    has_distributed = bool(distributed and distributed.is_available())
    backends = []
    for name in ("gloo", "nccl", "mpi", "xccl"):
        known = getattr(distributed, f"is_{name}_available", None) if has_distributed else None
        if known and known():
            backends.append(name)
    found = getattr(torch, "accelerator", None)
    kind = found.current_accelerator().type if found and found.is_available() else None
    if not kind and torch.cuda.is_available():
        kind = "cuda"
    devices = []
    if kind is not None:
        module = getattr(torch, kind)
        devices = [module.get_device_name(i) for i in range(module.device_count())] if hasattr(
            module, "get_device_name") else [kind]
    bindings = getattr(torch._C, "_distributed_c10d", None)
    return {
        "version": torch.__version__,
        "has_distributed": has_distributed,
        "backends": backends,
        "has_flight_recorder": any(hasattr(bindings, name) for name in ("_dump_fr_trace", "_dump_nccl_trace")),
        "has_kineto": bool(torch.profiler.kineto_available()),
        "activities": sorted(activity.name for activity in torch.profiler.supported_activities()),
        "accelerator": kind,
        "devices": devices,
    }


try:
    facts["torch"] = torch_facts()
except BaseException as error:
    facts["torch_error"] = f"{type(error).__name__}: {error}"
print("\\n" + json.dumps(facts))
"""


def ask(python: str, environment: Mapping[str, str], timeout: float = TIMEOUT) -> tuple[Interpreter | None, str]:
    """Return what the interpreter is, or else the reason why that is unknown."""
    with tempfile.TemporaryDirectory(prefix="lostflops-doctor-") as folder:
        Path(folder, "sitecustomize.py").write_text(_MARK, encoding="utf-8")
        known = {name: value for name, value in environment.items() if name != "LOSTFLOPS_COLLECT"}
        path = os.pathsep.join(filter(None, (folder, environment.get("PYTHONPATH"))))
        try:
            done = subprocess.run(
                [python, "-c", _SCRIPT],
                env={**known, "PYTHONPATH": path, "LOSTFLOPS_DOCTOR": folder},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=timeout,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return None, f"{python} did not answer within {timeout:g} s"
        except OSError as error:
            return None, f"{python} cannot be started: {error.strerror or error}"
    return parse_facts(done.stdout, done.returncode, done.stderr)


def parse_facts(out: bytes, code: int, err: bytes) -> tuple[Interpreter | None, str]:
    """Read the facts from the last line of the output, or else return why that fails; earlier lines do not matter."""
    try:
        facts: dict[str, Any] = json.loads(out.splitlines()[-1])
        torch = facts.pop("torch")
        interpreter = Interpreter(**facts, torch=torch and Torch(**{key: _plain(torch[key]) for key in torch}))
    except (IndexError, KeyError, TypeError, ValueError):
        last = err.decode(errors="replace").strip().splitlines()[-1:] or ["it printed nothing"]
        return None, f"Python ended with exit code {code}: {last[0]}"
    return interpreter, ""


def _plain(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
