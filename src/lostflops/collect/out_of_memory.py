"""Last state of a program that ran out of memory: what was requested, where, and what was allocated.

An error that ends a program is still known when its last handlers run, and with it the frames it passed through, so
tensors that these held can still be counted. Nothing is watched until then.
"""

from __future__ import annotations

import gc
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Final

import torch

from lostflops.collect import tensor_owners
from lostflops.collect.model_facts import plain_name
from lostflops.collect.steps import BACKWARD, DATA, FORWARD, OPTIMIZER, PHASES
from lostflops.collect.storages import without_overrides

_SIZE: Final = r"([\d.]+) (bytes|[KMGTPE]iB)"
_SAYS: Final = (
    re.compile(r"DefaultCPUAllocator: (?:can't allocate|not enough) memory: you tried to allocate ([\d.]+) (bytes)"),
    re.compile(rf"(?:CUDA|HIP|XPU) out of memory\. Tried to allocate {_SIZE}"),
    re.compile(r"CUDA error: out of memory"),
    re.compile(rf"Unable to allocate {_SIZE} for an array"),
)
_FIGURES: Final = {
    "capacity": re.compile(rf"has a total capacity of {_SIZE}"),
    "free": re.compile(rf"of which {_SIZE} is free"),
    "allocated_then": re.compile(rf"{_SIZE} is allocated by PyTorch"),
    "unused_then": re.compile(rf"{_SIZE} is reserved by PyTorch but unallocated"),
}
"""Parts of the messages of torch and numpy; nothing else of a message is kept, because it may contain anything."""
_UNITS: Final = {"bytes": 1} | {f"{letter}iB": 1 << 10 * (place + 1) for place, letter in enumerate("KMGTPE")}
_PLACES: Final = (
    (OPTIMIZER, re.compile(r"torch/optim/")),
    (BACKWARD, re.compile(r"torch/autograd/(__init__|graph)\.py$")),
    (DATA, re.compile(r"torch/utils/data/")),
    (FORWARD, re.compile(r"torch/nn/modules/module\.py$")),
)
_LONGEST_CHAIN: Final = 10
_MOST_SHAPES: Final = 5


def ending(error: BaseException) -> BaseException | None:
    """Return the out-of-memory error among those that end this program; None if no error is one."""
    return next((one for one in _chain(error) if _is_of_memory(one)), None)


def last_state(error: BaseException, step: int, *, is_after_forward: bool) -> dict[str, Any]:
    """Return all that is kept of an out-of-memory error, as the value of a fact of the job."""
    frames = [frame for frame, _ in _frames(error)]
    modules, optimizers, tensors = _objects()
    with without_overrides():
        held = _sum_held_bytes(modules, optimizers, tensors)
    said = _parse_message(error)
    phase = _phase(frames)
    if phase is None and is_after_forward:
        phase = FORWARD
    return {
        "error": type(error).__name__,
        **said,
        "step": step,
        "phase": None if phase is None else PHASES[phase],
        "module": _module(frames, modules),
        "line": _line(error),
        "owners": held.owners,
        "shapes": held.shapes(),
        **_totals(said["device"]),
    }


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and the errors that it was raised from."""
    found: BaseException | None = error
    for _ in range(_LONGEST_CHAIN):
        if found is None:
            return
        yield found
        found = found.__cause__ or (None if found.__suppress_context__ else found.__context__)


def _is_of_memory(error: BaseException) -> bool:
    if isinstance(error, (MemoryError, getattr(torch, "OutOfMemoryError", torch.cuda.OutOfMemoryError))):
        return True
    return isinstance(error, RuntimeError) and any(says.search(str(error)) for says in _SAYS)


def _parse_message(error: BaseException) -> dict[str, Any]:
    """Return what the message says: bytes asked for, on which device, and what the allocator had then."""
    text = str(error)
    found = next(filter(None, (says.search(text) for says in _SAYS)), None)
    if found is None:
        return {"message": None, "asked": None, "device": None}
    is_device = "out of memory" in found[0]
    index = re.search(r"\. GPU (\d+) has", text)
    kind = "xpu" if found[0].startswith("XPU") else "cuda"
    figures = {name: _bytes(figure) for name, says in _FIGURES.items() if (figure := says.search(text))}
    return {
        "message": found[0],
        "asked": _bytes(found) if found.groups() else None,
        "device": "cpu" if not is_device else f"{kind}:{index[1]}" if index else kind,
        **(figures if is_device else {}),
    }


def _bytes(found: re.Match[str]) -> int:
    number, unit = found.groups()
    return int(number) if unit == "bytes" else round(float(number) * _UNITS[unit])


def _frames(error: BaseException) -> Iterator[tuple[FrameType, int]]:
    """Yield the frames of an error from the outermost on, each with the line that it was at."""
    trace = error.__traceback__
    while trace is not None:
        yield trace.tb_frame, trace.tb_lineno
        trace = trace.tb_next


def _phase(frames: Iterable[FrameType]) -> int | None:
    """Return the outermost phase that a frame belongs to, None if unknown.

    A pass inside an optimizer's step, which is its closure's, counts as what it is.
    """
    phases = [
        phase for frame in frames for phase, path in _PLACES if path.search(frame.f_code.co_filename.replace("\\", "/"))
    ]
    return next((phase for phase in phases if phase != OPTIMIZER), OPTIMIZER if phases else None)


def _module(frames: list[FrameType], modules: list[torch.nn.Module]) -> str | None:
    """Return the qualified name of the innermost module that was called; None if no module was."""
    called = [frame.f_locals.get("self") for frame in frames if frame.f_code.co_name == "_call_impl"]
    if not called or not isinstance(called[-1], torch.nn.Module):
        return None
    inside = {id(child) for module in modules for child in module.__dict__.get("_modules", {}).values()}
    for top in modules:
        if id(top) not in inside:
            for name, module in top.named_modules():
                if module is called[-1]:
                    return plain_name(name) or type(module).__name__
    return type(called[-1]).__name__


def _line(error: BaseException) -> str | None:
    """Return the innermost line that is not torch's or ours, as `file.py:12`; None if there is no such line."""
    own = (str(Path(torch.__file__).parent), str(Path(__file__).parent))
    lines = [
        f"{Path(frame.f_code.co_filename).name}:{line}"
        for frame, line in _frames(error)
        if not frame.f_code.co_filename.startswith((*own, "<"))
    ]
    return lines[-1] if lines else None


def _objects() -> tuple[list[torch.nn.Module], list[torch.optim.Optimizer], list[torch.Tensor]]:
    """Return all modules, optimizers and tensors that Python's garbage collector knows."""
    modules, optimizers, tensors = [], [], []
    for found in gc.get_objects():
        kind = type(found)
        if issubclass(kind, torch.Tensor):
            tensors.append(found)
        elif issubclass(kind, torch.nn.Module) and "_parameters" in found.__dict__:
            modules.append(found)
        elif issubclass(kind, torch.optim.Optimizer):
            optimizers.append(found)
    return modules, optimizers, tensors


@dataclass(slots=True)
class _HeldBytes:
    """Bytes of storages, each counted once, for the first owner that claims it."""

    owners: dict[str, int]
    seen: set[tuple[str, int]]
    unowned: dict[tuple[str, tuple[int, ...]], tuple[int, int]]

    def take(self, owner: str, tensors: Iterable[Any]) -> None:
        for tensor in tensors:
            local = getattr(tensor, "_local_tensor", tensor)
            if not _is_plain(local):
                continue
            storage = local.untyped_storage()
            key, size = (str(storage.device), storage.data_ptr()), storage.nbytes()
            if not size or key in self.seen:
                continue
            self.seen.add(key)
            self.owners[owner] = self.owners.get(owner, 0) + size
            if owner == "others":
                place = (str(local.dtype).removeprefix("torch."), tuple(local.shape))
                held, count = self.unowned.get(place, (0, 0))
                self.unowned[place] = (held + size, count + 1)

    def shapes(self) -> list[dict[str, Any]]:
        """Return dtype, shape, bytes and count of the tensors that hold most of the bytes without an owner."""
        most = sorted(self.unowned.items(), key=lambda item: -item[1][0])[:_MOST_SHAPES]
        return [
            {"dtype": dtype, "shape": list(shape), "bytes": held, "count": count}
            for (dtype, shape), (held, count) in most
        ]


def _sum_held_bytes(
    modules: list[torch.nn.Module], optimizers: list[torch.optim.Optimizer], tensors: list[torch.Tensor]
) -> _HeldBytes:
    held = _HeldBytes({}, set(), {})
    parameters = [p for module in modules for p in module._parameters.values() if p is not None]  # noqa: SLF001
    parameters += [p for optimizer in optimizers for p in tensor_owners.parameters_of(optimizer)]
    held.take("parameters", parameters)
    held.take("gradients", (p.grad for p in parameters if p.is_leaf and p.grad is not None))
    held.take("optimizer_state", (one for each in optimizers for _, _, one in tensor_owners.of_optimizer(each, {})))
    buffers = (b for module in modules for b in module.__dict__.get("_buffers", {}).values())
    held.take("buffers", (b for b in buffers if b is not None))
    held.take("others", tensors)
    return held


def _is_plain(tensor: Any) -> bool:
    """Return whether a tensor has strided memory of its own: not fake, and not of a class with code of the program."""
    plain = (torch.Tensor, torch.nn.Parameter, getattr(torch.nn, "Buffer", torch.Tensor))
    return type(tensor) in plain and tensor.layout is torch.strided and tensor.device.type != "meta"


def _totals(device: str | None) -> dict[str, int]:
    """Return the totals of the device's allocator if a device ran out of memory, else those of the process."""
    if device is not None and device.startswith("cuda") and torch.cuda.is_initialized():
        found = torch.cuda.memory_stats(device)
        names = {"allocated": "allocated_bytes", "reserved": "reserved_bytes", "split": "inactive_split_bytes"}
        return {ours: found[f"{theirs}.all.current"] for ours, theirs in names.items()} | {
            "retries": found.get("num_alloc_retries", 0)
        }
    page = os.sysconf("SC_PAGE_SIZE")
    resident = int(Path("/proc/self/statm").read_text().split()[1]) * page
    return {"process": resident, "host": os.sysconf("SC_PHYS_PAGES") * page}
