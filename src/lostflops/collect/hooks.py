"""Hooks of the collector in torch: optimizers, backward passes, loaders, gradient scalers, outermost modules.

Each hook does nothing while a graph is being traced, and its code is marked so that dynamo does not trace it.
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import torch
from torch.optim import optimizer as optimizers

from lostflops.collect import current
from lostflops.collect.graph_captures import GRAPHS
from lostflops.collect.interludes import Interludes
from lostflops.collect.module_hook import ModuleHook, suspend_hooks
from lostflops.collect.steps import DATA, FORWARD
from lostflops.collect.tracing_exclusions import skip_tracing

if TYPE_CHECKING:
    from lostflops.collect.recorder import Recorder

_ENDS: Final = ("_exit", "execv", "execve")
"""Functions of `os` that end a program without its exit functions; the other forms of exec call these."""


def install(recorder: Recorder) -> None:
    watched = _Optimizers(recorder)
    skip_tracing(_Optimizers.begins, _Optimizers.on_end, _Optimizers.open, _Optimizers.close, with_callees=True)
    skip_tracing(type(recorder).enter, type(recorder).leave, type(recorder).run_guarded, with_callees=True)
    skip_tracing(type(recorder).training, type(recorder).updates, type(recorder).handed_over, with_callees=True)
    skip_tracing(
        type(recorder).passes_backward, type(recorder).evaluates, type(recorder).on_evaluation_end, with_callees=True
    )
    recorder.interludes = Interludes()
    recorder.interludes.watch(recorder)
    hooks = recorder.hooks
    hooks.append(optimizers.register_optimizer_step_pre_hook(watched.begins).remove)
    hooks.append(optimizers.register_optimizer_step_post_hook(watched.on_end).remove)
    hooks.append(_wrap(torch.autograd, "backward", lambda original: _backward(recorder, original)))
    for name in _ENDS:
        hooks.append(_wrap(os, name, lambda original: _flush_before(recorder, original)))
        hooks.append(functools.partial(os.supports_fd.discard, getattr(os, name)))
    for what, watch in _further_places(recorder, watched).items():
        try:
            hooks.append(watch())
        except (AttributeError, TypeError):
            recorder.unseen.append(what)


def _further_places(recorder: Recorder, watched: _Optimizers) -> dict[str, Callable[[], Callable[[], None]]]:
    """Return, by name, functions that watch what this version of torch may lack; most of it is not public."""
    data, jit = torch.utils.data, torch.jit
    return {
        "gradient scalers": lambda: _wrap(torch.amp.GradScaler, "step", lambda step: _scaled_step(watched, step)),
        "loaders": lambda: _wrap(data.DataLoader, "__iter__", lambda original: _loading(recorder, original)),
        # All loaders' iterators share it.
        "batches": lambda: _wrap(
            data.dataloader._BaseDataLoaderIter,  # noqa: SLF001
            "__next__",
            lambda original: _next_batch(recorder, original),
        ),
        # torch.jit.script looks at its caller, so it cannot be wrapped itself.
        "scripting": lambda: _wrap(jit._recursive, "create_script_module", _scripting),  # noqa: SLF001
        "process groups": lambda: _wrap(torch.distributed, "init_process_group", lambda made: _setup(recorder, made)),
        "communication hooks": lambda: _wrap(torch.distributed, "_register_comm_hook", _registration),
        GRAPHS: lambda: recorder.captures.watch(torch.cuda.graphs.CUDAGraph),
    }


def watch_modules(recorder: Recorder, modules: list[Any]) -> list[Callable[[], None]]:
    """Count calls of these modules as forward, of nested ones the outermost; return functions that remove the hooks."""

    def begins(_: Any, inputs: Any) -> None:
        if not torch.compiler.is_compiling():
            if recorder.holdings is not None:
                recorder.run_guarded(lambda _: recorder.holdings.goes_in(inputs))
            if not torch.is_grad_enabled():
                recorder.evaluates()
            recorder.enter(FORWARD)

    def on_end(_: Any) -> None:
        if not torch.compiler.is_compiling():
            recorder.leave()
            if not torch.is_grad_enabled():
                recorder.on_evaluation_end()

    skip_tracing(begins, on_end, ModuleHook.__call__, with_callees=True)
    handles = [module.register_forward_pre_hook(ModuleHook(begins, with_inputs=True)) for module in modules]
    handles += [module.register_forward_hook(ModuleHook(on_end), always_call=True) for module in modules]
    return [handle.remove for handle in handles]


class _Optimizers:
    """The steps of optimizers; of nested ones the outermost counts.

    If a step raised, its optimizer stays open until it steps again, or until another steps after it is gone.
    """

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._open: list[tuple[str, int]] = []
        self._updated = False

    def begins(self, optimizer: Any, *_: Any) -> None:
        if not torch.compiler.is_compiling():
            self.open("step", optimizer)

    def on_end(self, optimizer: Any, *_: Any) -> None:
        if not torch.compiler.is_compiling():
            self.close("step", optimizer)

    def open(self, kind: str, optimizer: Any) -> None:
        recorder = self._recorder
        recorder.training()
        recorder.updates(optimizer)
        recorder.run_guarded(lambda now: self._begins(kind, optimizer, now))

    def close(self, kind: str, optimizer: Any) -> None:
        self._recorder.run_guarded(lambda now: self._ended(kind, optimizer, now))

    def _begins(self, kind: str, optimizer: Any, now: int) -> None:
        key, clock = (kind, id(optimizer)), self._recorder.clock
        for left in [one for one in self._open if one == key or not self._recorder.is_updating(one[1])][:1]:
            self._leave_from(left, now)
        self._updated = self._updated or kind == "step"
        if not self._open:
            self._updated = kind == "step"
        self._open.append(key)
        clock.optimizer_begins(key[1], now)

    def _ended(self, kind: str, optimizer: Any, now: int) -> None:
        key = (kind, id(optimizer))
        if key not in self._open:
            return
        if self._open[-1] != key:
            self._leave_from(self._open[self._open.index(key) + 1], now)
        self._open.pop()
        self._recorder.clock.optimizer_ended(key[1], now, skipped=not self._updated)

    def _leave_from(self, key: tuple[str, int], now: int) -> None:
        """Leave a step that raised, and those inside it."""
        at = self._open.index(key)
        for _ in self._open[at:]:
            self._recorder.clock.leave(now)
        del self._open[at:]


def _backward(recorder: Recorder, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def backward(*arguments: Any, **named: Any) -> Any:
        if torch.compiler.is_compiling():
            return original(*arguments, **named)
        recorder.training()
        recorder.passes_backward()
        try:
            return original(*arguments, **named)
        finally:
            recorder.leave()

    return backward


def _flush_before(recorder: Recorder, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def end(*arguments: Any, **named: Any) -> Any:
        with suppress(Exception):
            recorder.flush()
        return original(*arguments, **named)

    end.__module__ = "os"  # where it can be found, so that it can be pickled
    if original in os.supports_fd:
        os.supports_fd.add(end)
    return end


def _setup(recorder: Recorder, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def init_process_group(*arguments: Any, **named: Any) -> Any:
        began = time.monotonic_ns()
        try:
            return original(*arguments, **named)
        finally:
            recorder.group_setup += time.monotonic_ns() - began

    init_process_group.__module__ = "torch.distributed"  # where it can be found, so that it can be pickled
    return init_process_group


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


def _registration(original: Callable[..., Any]) -> Callable[..., Any]:
    """Time every hook that DDP passes to its reducer; DDP itself keeps the program's own."""

    @functools.wraps(original)
    def register(reducer: Any, state: Any, comm_hook: Any, *arguments: Any) -> Any:
        return original(reducer, state, _timed_hook(comm_hook), *arguments)

    return register


def _timed_hook(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a hook; its time counts for whatever recorder there is when it runs, on any thread."""

    @functools.wraps(original)
    def comm_hook(*arguments: Any) -> Any:
        recorder = current.recorder
        if recorder is None or torch.compiler.is_compiling():
            return original(*arguments)
        began = time.monotonic_ns()
        try:
            return original(*arguments)
        finally:
            recorder.spent_in_comm_hook(time.monotonic_ns() - began)

    skip_tracing(comm_hook)
    return comm_hook


def _scripting(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def create_script_module(module: Any, *arguments: Any, **named: Any) -> Any:
        with suspend_hooks(module):
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
        recorder.handed_over(batch)
        return batch

    return __next__


def _wrap(owner: Any, name: str, around: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Callable[[], None]:
    """Wrap a function; return a function that puts the original back, unless other code has wrapped ours meanwhile."""
    original = getattr(owner, name)
    wrapped = around(original)
    skip_tracing(wrapped)
    setattr(owner, name, wrapped)

    def restore() -> None:
        if getattr(owner, name) is wrapped:
            setattr(owner, name, original)

    return restore
