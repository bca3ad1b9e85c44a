"""A training job's memory, counted in the job itself and by other means than lostflops.

Bytes of parameters, gradients and optimizer state follow from shapes alone. Saved tensors are what autograd hands to
`saved_tensors_hooks`. The peak is that of torch's allocator, whose calls of the C library are counted one by one by a
library that is preloaded (`alive.c`), with what the job did at the time.
"""

# ruff: noqa: SLF001 - autograd and storages tell some of it by private names only
from __future__ import annotations

import ctypes
import json
import math
import os
from pathlib import Path
from typing import Any, Final

import torch
from torch import nn
from torch.distributed.tensor import DTensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

FIRST, COUNT = 4, 2
"""Steps that are looked at: those of the window that lostflops records."""
STATES: Final = {"AdamW": 2, "SGD": 1}
_STEP_BYTES: Final = 4
"""AdamW counts steps of each parameter in a float."""


class Watch:
    """Told by the job what it does next; this one does nothing with it."""

    def step(self, number: int) -> None:
        pass

    def forward(self, *batch: torch.Tensor) -> None:
        pass

    def backward(self) -> None:
        pass

    def update(self) -> None:
        pass

    def write(self, folder: Path, rank: int) -> None:
        pass


class Truth(Watch):
    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer, how: str) -> None:
        self._model, self._optimizer, self._how = model, optimizer, how
        self._places = Places(model)
        self._allocator = Allocator(self._places)
        self._saved: dict[int, StorageWeakRef] = {}
        self._hooks: Any = None
        self._apart: set[int] = set()
        self._is_on, self._number = False, 0
        self._saved_bytes: list[int] = []

    def step(self, number: int) -> None:
        if number == FIRST:
            self._allocator.start()
        if number == FIRST + COUNT:
            self._allocator.stop()
        self._number, self._is_on = number, FIRST <= number < FIRST + COUNT
        self._turn("data")

    def _turn(self, phase: str) -> None:
        if self._is_on:
            self._allocator.turn(self._number, phase)

    def forward(self, *batch: torch.Tensor) -> None:
        self._turn("forward")
        held = [*self._model.parameters(), *self._model.buffers(), *batch]
        self._apart = {storage._cdata for tensor in held for storage in storages_of(tensor)}
        if self._is_on:
            self._saved = {}
            self._hooks = torch.autograd.graph.saved_tensors_hooks(self._pack, lambda tensor: tensor)
            self._hooks.__enter__()

    def _pack(self, tensor: torch.Tensor) -> torch.Tensor:
        """Parameters are asked for now, as FSDP's modules have whole ones while they are called."""
        self._apart |= {storage._cdata for one in self._model.parameters() for storage in storages_of(one)}
        for storage in storages_of(tensor):
            if storage._cdata not in self._saved:
                self._saved[storage._cdata] = StorageWeakRef(storage)
        return tensor

    def backward(self) -> None:
        if self._is_on:
            self._hooks.__exit__(None, None, None)
            alive = {key: bytes_of(one) for key, one in self._saved.items() if key not in self._apart}
            self._saved_bytes.append(sum(alive.values()))
            self._saved = {}
        self._turn("backward")

    def update(self) -> None:
        self._turn("optimizer")

    def write(self, folder: Path, rank: int) -> None:
        (folder / f"{rank}.json").write_text(json.dumps(self.told()))

    def told(self) -> dict[str, Any]:
        """Of this rank."""
        parameters, elements, count = _sharded(self._model) if self._how == "fsdp2" else _whole(self._model)
        kind = type(self._optimizer).__name__
        state = STATES[kind] * elements + (_STEP_BYTES * count if kind == "AdamW" else 0)
        return {
            "parameters": parameters,
            "gradients": parameters,
            "optimizer_state": state,
            "saved": self._saved_bytes,
            "generator_states": _generator_states(self._model),
            **self._allocator.told(),
        }


def _whole(model: nn.Module) -> tuple[int, int, int]:
    sizes = [math.prod(one.shape) * one.dtype.itemsize for one in model.parameters()]
    return sum(sizes), sum(sizes), len(sizes)


def _sharded(model: nn.Module) -> tuple[int, int, int]:
    """The first dimension is cut into as many equal parts as there are ranks; what the last ranks lack is padded,
    though not in the optimizer's state."""
    padded = own = count = 0
    for one in model.parameters():
        assert isinstance(one, DTensor)
        ranks, rank = one.device_mesh.size(), one.device_mesh.get_local_rank()
        rows, row = one.shape[0], math.prod(one.shape[1:]) * one.dtype.itemsize
        chunk = -(-rows // ranks)
        padded += chunk * row
        own += max(0, min(chunk, rows - chunk * rank)) * row
        count += 1
    return padded, own, count


def _generator_states(model: Any) -> int:
    """Each checkpoint keeps the state of the random generator beside its saved tensors."""
    return len(model.blocks) * torch.get_rng_state().nbytes if model.is_checkpointed else 0


class Places:
    """Which module runs: by its calls in forward, by the number of the autograd node in backward."""

    def __init__(self, model: nn.Module) -> None:
        self.phase = "data"
        self._stack: list[tuple[str, int]] = []
        self._ranges: list[tuple[int, int, str]] = []
        for name, module in model.named_modules():
            module.register_forward_pre_hook(self._enters(name))
            module.register_forward_hook(self._leaves, always_call=True)

    def _enters(self, name: str) -> Any:
        return lambda *_: self._stack.append((name, torch._C._autograd._get_sequence_nr()))

    def _leaves(self, *_: Any) -> None:
        name, first = self._stack.pop()
        self._ranges.append((first, torch._C._autograd._get_sequence_nr(), name))

    def module(self) -> str:
        if self._stack:
            return self._stack[-1][0]
        node = torch._C._current_autograd_node()
        if node is None:
            return ""
        number = node._sequence_nr()
        around = [(stop - first, name) for first, stop, name in self._ranges if first <= number < stop]
        return min(around)[1] if around else ""


class Counted(Watch):
    """The most that the allocator holds in the steps that are looked at: `alive.c` looks at every allocation."""

    def __init__(self) -> None:
        self.library: Any = ctypes.CDLL(os.environ["LD_PRELOAD"])
        self.library.alive_most.restype = ctypes.c_long

    def step(self, number: int) -> None:
        if number in (FIRST, FIRST + COUNT):
            self.library.alive_watch(int(number == FIRST))

    def write(self, folder: Path, rank: int) -> None:
        (folder / f"{rank}.txt").write_text(str(self.told()))

    def told(self) -> int:
        return int(self.library.alive_most(0))


class Allocator(TorchDispatchMode):
    """The same, told before every op where it is."""

    def __init__(self, places: Places) -> None:
        super().__init__()
        self._places = places
        self._numbers: dict[tuple[int, str, str, str], int] = {}
        self._step = 0
        self._counts = Counted().library

    def start(self) -> None:
        self._counts.alive_watch(1)
        self.__enter__()

    def stop(self) -> None:
        self._counts.alive_watch(0)
        self.__exit__(None, None, None)

    def turn(self, step: int, phase: str) -> None:
        self._step, self._places.phase = step, phase
        self._is_in("")

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self._is_in(str(func))
        return func(*args, **(kwargs or {}))

    def _is_in(self, op: str) -> None:
        place = (self._step, self._places.phase, self._places.module(), op)
        self._counts.alive_at(self._numbers.setdefault(place, len(self._numbers)))

    def told(self) -> dict[str, Any]:
        """The peak, where it was, and the most in each phase."""
        most = {place: self._counts.alive_most(number) for place, number in self._numbers.items()}
        (at,) = (place for place, number in self._numbers.items() if number == self._counts.alive_place())
        phases = dict.fromkeys(place[1] for place in most)
        by_phase = {name: max(held for place, held in most.items() if place[1] == name) for name in phases}
        return {"peak": most[at], **dict(zip(("step", "phase", "module", "op"), at, strict=True)), "by_phase": by_phase}


def storages_of(tensor: torch.Tensor) -> list[Any]:
    tensor = tensor._local_tensor if isinstance(tensor, DTensor) else tensor
    if tensor.device.type != "cpu":
        return []
    try:
        return [tensor.untyped_storage()]
    except (RuntimeError, NotImplementedError):
        return []


def bytes_of(reference: StorageWeakRef) -> int:
    storage = torch.UntypedStorage._new_with_weak_ptr(reference.cdata)
    return 0 if storage is None else int(storage.nbytes())
