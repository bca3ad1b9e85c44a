"""Where the collector touches torch: optimizers, backward passes, loaders, gradient scalers, outermost modules.

Each hook does nothing while a graph is being traced, and their code is marked so that dynamo does not trace it itself.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch.optim import optimizer as optimizers

from lostflops.collect.batches import batch_size
from lostflops.collect.module_hook import ModuleHook, lifted
from lostflops.collect.steps import BACKWARD, DATA, FORWARD
from lostflops.collect.untraced import untraced

if TYPE_CHECKING:
    from lostflops.collect.recorder import Recorder


def install(recorder: Recorder) -> Callable[[], None]:
    """Returns what takes the hooks away again."""
    watched = _Optimizers(recorder)
    untraced(_Optimizers.begins, _Optimizers.ended, _Optimizers.open, _Optimizers.close, with_callees=True)
    untraced(type(recorder).enter, type(recorder).leave, type(recorder).guarded, with_callees=True)
    untraced(type(recorder).training, type(recorder).updates, with_callees=True)
    scripting = torch.jit._recursive  # noqa: SLF001 - torch.jit.script looks at its caller, so it cannot be wrapped itself
    iterator = torch.utils.data.dataloader._BaseDataLoaderIter  # noqa: SLF001 - all loaders' iterators share it
    removals = [
        optimizers.register_optimizer_step_pre_hook(watched.begins).remove,
        optimizers.register_optimizer_step_post_hook(watched.ended).remove,
        _wrap(torch.autograd, "backward", lambda original: _backward(recorder, original)),
        _wrap(torch.amp.GradScaler, "step", lambda original: _scaled_step(watched, original)),
        _wrap(torch.utils.data.DataLoader, "__iter__", lambda original: _loading(recorder, original)),
        _wrap(iterator, "__next__", lambda original: _next_batch(recorder, original)),
        _wrap(scripting, "create_script_module", _scripting),
        recorder.captures.watch(torch.cuda.graphs.graph),
    ]

    def remove() -> None:
        for removal in removals:
            removal()

    return remove


def watch_modules(recorder: Recorder, roots: list[Any]) -> None:
    """Have calls of the outermost modules count as forward."""

    def begins(_: Any) -> None:
        if not torch.compiler.is_compiling():
            recorder.enter(FORWARD)

    def ended(_: Any) -> None:
        if not torch.compiler.is_compiling():
            recorder.leave()

    untraced(begins, ended, ModuleHook.__call__, with_callees=True)
    for root in roots:
        root.register_forward_pre_hook(ModuleHook(begins))
        root.register_forward_hook(ModuleHook(ended), always_call=True)


class _Optimizers:
    """Steps of optimizers, the outermost of nested ones; one whose step raised is open until it steps again."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._open: list[tuple[str, int]] = []
        self._updated = False

    def begins(self, optimizer: Any, *_: Any) -> None:
        if not torch.compiler.is_compiling():
            self.open("step", optimizer)

    def ended(self, optimizer: Any, *_: Any) -> None:
        if not torch.compiler.is_compiling():
            self.close("step", optimizer)

    def open(self, kind: str, optimizer: Any) -> None:
        recorder = self._recorder
        recorder.training()
        recorder.updates(optimizer)
        recorder.guarded(lambda now: self._begins(kind, optimizer, now))

    def close(self, kind: str, optimizer: Any) -> None:
        self._recorder.guarded(lambda now: self._ended(kind, optimizer, now))

    def _begins(self, kind: str, optimizer: Any, now: int) -> None:
        key, clock = (kind, id(optimizer)), self._recorder.clock
        if key in self._open:
            for _ in self._open[self._open.index(key) :]:
                clock.leave(now)
            del self._open[self._open.index(key) :]
        self._updated = self._updated or kind == "step"
        if not self._open:
            self._updated = kind == "step"
        self._open.append(key)
        clock.optimizer_begins(key[1], now)

    def _ended(self, kind: str, optimizer: Any, now: int) -> None:
        key = (kind, id(optimizer))
        if key not in self._open:
            return
        del self._open[self._open.index(key) :]
        self._recorder.clock.optimizer_ended(key[1], now, skipped=not self._updated)


def _backward(recorder: Recorder, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def backward(*arguments: Any, **named: Any) -> Any:
        if torch.compiler.is_compiling():
            return original(*arguments, **named)
        recorder.training()
        recorder.enter(BACKWARD)
        try:
            return original(*arguments, **named)
        finally:
            recorder.leave()

    return backward


def _scaled_step(watched: _Optimizers, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def step(self: Any, optimizer: Any, *arguments: Any, **named: Any) -> Any:
        if torch.compiler.is_compiling():
            return original(self, optimizer, *arguments, **named)
        watched.open("scaler", optimizer)
        try:
            return original(self, optimizer, *arguments, **named)
        finally:
            watched.close("scaler", optimizer)

    return step


def _scripting(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def create_script_module(module: Any, *arguments: Any, **named: Any) -> Any:
        with lifted(module):
            return original(module, *arguments, **named)

    return create_script_module


def _loading(recorder: Recorder, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def __iter__(self: Any) -> Any:  # noqa: N807 - it takes the place of one
        recorder.enter(DATA)
        try:
            return original(self)
        finally:
            recorder.leave()

    return __iter__


def _next_batch(recorder: Recorder, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def __next__(self: Any) -> Any:  # noqa: N807 - it takes the place of one
        recorder.enter(DATA)
        try:
            batch = original(self)
        finally:
            recorder.leave()
        recorder.guarded(lambda _: recorder.clock.batch(*batch_size(batch)))
        return batch

    return __next__


def _wrap(owner: Any, name: str, around: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Callable[[], None]:
    """Returns what puts the original back, unless somebody else has wrapped ours meanwhile."""
    original = getattr(owner, name)
    wrapped = around(original)
    untraced(wrapped)
    setattr(owner, name, wrapped)

    def restore() -> None:
        if getattr(owner, name) is wrapped:
            setattr(owner, name, original)

    return restore
