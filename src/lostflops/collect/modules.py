"""Names of modules in a trace: while a window is open, each call of a module's forward is a range.

Ranges begin and end in forward hooks, per thread: a checkpoint calls forwards again inside the backward pass, on a
thread of the autograd engine. There are no backward hooks, which would change the graph. A compiled region is one
module: nothing below it is touched, so that nothing is compiled again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any, Final

import torch

from lostflops.collect.module_hook import ModuleHook
from lostflops.collect.tracing_exclusions import skip_tracing

PREFIX: Final = "lostflops.module: "
ROOT: Final = "(root)"
_INNER: Final = ("module", "_fsdp_wrapped_module")
"""Names under which a wrapper holds the module it wraps; both have one range, the wrapper's call."""
_CHECKPOINTED: Final = "_checkpoint_wrapped_module"
_Range = Any


class ModuleRanges:
    """Ranges around calls of modules, attached at a window's start and detached at its end, both between two steps."""

    def __init__(self, roots: list[torch.nn.Module]) -> None:
        self._names: dict[int, tuple[torch.nn.Module, str]] = {}
        for module, name in (found for root in roots for found in _walk_modules(root, "")):
            self._names.setdefault(id(module), (module, PREFIX + name))
        self._local = threading.local()
        self._handles: list[Any] = []
        self._compiled: list[tuple[Any, Callable[..., Any]]] = []

    def attach(self) -> None:
        begins, ends = ModuleHook(self._begins), ModuleHook(self._ends)
        skip_tracing(ModuleHook.__call__, ModuleRanges._begins, ModuleRanges._ends, with_callees=True)
        for module, name in self._names.values():
            if _is_compiled_in_place(module):
                self._wrap(module, name)
            else:
                self._handles.append(module.register_forward_pre_hook(begins, prepend=True))
                self._handles.append(module.register_forward_hook(ends, always_call=True))

    def detach(self) -> None:
        for handle in self._handles:
            handle.remove()
        for module, original in self._compiled:
            module._compiled_call_impl = original  # noqa: SLF001 - what module.compile() sets
        self._handles, self._compiled = [], []
        for _, left in reversed(self._open()):
            left.__exit__(None, None, None)
        self._open().clear()

    def _open(self) -> list[tuple[int, _Range]]:
        try:
            found: list[tuple[int, _Range]] = self._local.open
        except AttributeError:
            found = self._local.open = []
        return found

    def _begins(self, module: torch.nn.Module) -> None:
        if torch.compiler.is_compiling() or id(module) not in self._names:
            return
        entered = _range(self._names[id(module)][1])
        entered.__enter__()
        self._open().append((id(module), entered))

    def _ends(self, module: torch.nn.Module) -> None:
        if torch.compiler.is_compiling():
            return
        stack, key = self._open(), id(module)
        if not any(held == key for held, _ in stack):
            return
        held = 0
        while held != key:
            held, entered = stack.pop()
            entered.__exit__(None, None, None)

    def _wrap(self, module: Any, name: str) -> None:
        original = module._compiled_call_impl  # noqa: SLF001

        def compiled_call(*arguments: Any, **named: Any) -> Any:
            if torch.compiler.is_compiling():
                return original(*arguments, **named)
            with _range(name):
                return original(*arguments, **named)

        skip_tracing(compiled_call)
        module._compiled_call_impl = compiled_call  # noqa: SLF001
        self._compiled.append((module, original))


def _range(name: str) -> _Range:
    """Return a range that costs a tenth of `record_function`, if torch has it; in the trace it is an op."""
    fast = getattr(torch._C._profiler, "_RecordFunctionFast", None)  # noqa: SLF001
    return fast(name) if fast is not None else torch.autograd.profiler.record_function(name)


def _walk_modules(module: torch.nn.Module, name: str) -> Iterator[tuple[torch.nn.Module, str]]:
    """Yield a module and all below it that can be distinguished from outside, with names that leave out wrappers."""
    if isinstance(module, torch.jit.ScriptModule):
        return
    checkpointed = module._modules.get(_CHECKPOINTED)  # noqa: SLF001 - the recomputation calls the inner one
    if checkpointed is not None:
        yield from _walk_modules(checkpointed, name)
        return
    yield module, name or ROOT
    if _is_compiled(module):
        return
    inner = _unwrap_module(module)
    for key, child in (inner if inner is not None else module).named_children():
        yield from _walk_modules(child, f"{name}.{key}" if name else key)


def _unwrap_module(module: torch.nn.Module) -> torch.nn.Module | None:
    """Return the module inside a wrapper, or inside several; None if it is not a wrapper.

    A compiled module inside is not opened: an empty module is returned in its place.
    """
    if type(module).__name__ not in ("DistributedDataParallel", "FullyShardedDataParallel", "DataParallel"):
        return None
    inner = next((module._modules[key] for key in _INNER if module._modules.get(key) is not None), None)  # noqa: SLF001
    if inner is None or _is_compiled(inner):
        return torch.nn.Module()
    return _unwrap_module(inner) or inner


def _is_compiled(module: torch.nn.Module) -> bool:
    return type(module).__name__ == "OptimizedModule" or _is_compiled_in_place(module)


def _is_compiled_in_place(module: torch.nn.Module) -> bool:
    return getattr(module, "_compiled_call_impl", None) is not None
