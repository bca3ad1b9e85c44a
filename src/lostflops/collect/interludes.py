"""Time that the training thread spends saving checkpoints and evaluating, from step to step."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import torch

from lostflops.collect.module_hook import ModuleHook
from lostflops.collect.tracing_exclusions import skip_tracing

if TYPE_CHECKING:
    from lostflops.collect.recorder import Recorder

_SAVERS: Final = (
    ("torch", "save"),
    ("torch.distributed.checkpoint", "save"),
    ("torch.distributed.checkpoint", "async_save"),
    ("safetensors.torch", "save_file"),
)
"""Functions that write checkpoints; a module that the program does not import is not imported for this."""


class Interludes:
    """Time of saving and evaluating in a step; of nested saves the outermost counts.

    An evaluation lasts from its first forward pass without gradients to its last one in the same step, so that loading
    and metrics in between belong to it.
    """

    def __init__(self) -> None:
        self._wrapped: set[tuple[str, str]] = set()
        self._depth = self._saving = self._began = 0
        self._first = self._last = -1

    @property
    def current(self) -> str | None:
        """What the program does now instead of training; once it has evaluated, until the step ends."""
        if self._depth:
            return "saving"
        return "evaluating" if self._first >= 0 else None

    def save_begins(self, now: int) -> None:
        if not self._depth:
            self._began = now
        self._depth += 1

    def save_ended(self, now: int) -> None:
        if self._depth:
            self._depth -= 1
            if not self._depth:
                self._saving += now - self._began

    def evaluation_begins(self, now: int) -> None:
        if self._first < 0:
            self._first = now

    def evaluation_ended(self, now: int) -> None:
        if self._first >= 0:
            self._last = now

    def take(self) -> dict[str, int]:
        """Return the time of saving and of evaluating since the last call, in ns, by column of table `timings`."""
        found = {"saving": self._saving, "evaluating": max(self._last - self._first, 0)}
        self._saving, self._first, self._last = 0, -1, -1
        return found

    def watch(self, recorder: Recorder) -> None:
        """Wrap the saving functions of modules that were imported since the last call."""
        for module, name in _SAVERS:
            if (module, name) not in self._wrapped and module in sys.modules:
                self._wrapped.add((module, name))
                restore = _wrap(sys.modules[module], name, recorder)
                if restore is not None:
                    recorder.hooks.append(restore)


def watch_inner(recorder: Recorder, modules: list[Any]) -> list[Callable[[], None]]:
    """Count calls without gradients of modules inside DDP as evaluation; return functions that remove the hooks.

    Programs evaluate `model.module` on one rank, because a call of the wrapper may wait for the others.
    """
    ddp = getattr(torch.nn.parallel, "DistributedDataParallel", None)
    inner = [module.module for module in modules if ddp is not None and isinstance(module, ddp)]

    def begins(_: Any) -> None:
        if not torch.is_grad_enabled() and not torch.compiler.is_compiling():
            recorder.evaluates()

    def on_end(_: Any) -> None:
        if not torch.is_grad_enabled() and not torch.compiler.is_compiling():
            recorder.on_evaluation_end()

    skip_tracing(begins, on_end, ModuleHook.__call__, with_callees=True)
    handles = [module.register_forward_pre_hook(ModuleHook(begins)) for module in inner]
    handles += [module.register_forward_hook(ModuleHook(on_end), always_call=True) for module in inner]
    return [handle.remove for handle in handles]


def _wrap(owner: Any, name: str, recorder: Recorder) -> Callable[[], None] | None:
    """Wrap a saving function; return a function that puts the original back, None if there is no such function."""
    original = getattr(owner, name, None)
    if not callable(original):
        return None

    @functools.wraps(original)
    def save(*arguments: Any, **named: Any) -> Any:
        recorder.run_guarded(recorder.interludes.save_begins)
        try:
            return original(*arguments, **named)
        finally:
            recorder.run_guarded(recorder.interludes.save_ended)

    skip_tracing(save)
    # Where it is defined too: pickle looks functions up there, and a program may send torch.save to a process.
    home = sys.modules.get(getattr(original, "__module__", None) or "", owner)
    places = [place for place in (owner, home) if getattr(place, name, None) is original]
    for place in places:
        setattr(place, name, save)

    def restore() -> None:
        for place in places:
            if getattr(place, name) is save:
                setattr(place, name, original)

    return restore
