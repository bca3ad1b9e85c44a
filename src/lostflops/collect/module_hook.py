"""A hook on a module that leaves no trace of itself in copies and saved files of the module."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any


class ModuleHook:
    """A hook that calls `function(module)` or `function(module, inputs)`, and does not change the module's call.

    Hooks are part of a module: they are copied and pickled with it. A copy of this one does nothing, and a pickle of it
    holds a function of the standard library that does nothing, so that the file loads where Lostflops is not installed.
    """

    def __init__(self, function: Callable[..., None], *, with_inputs: bool = False) -> None:
        self._function, self._with_inputs = function, with_inputs

    def __call__(self, module: Any, *called_with: Any) -> None:
        self._function(module, *called_with[: int(self._with_inputs)])

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, (nullcontext(), "__exit__")

    def __deepcopy__(self, _: Any) -> Any:
        return nullcontext().__exit__


@contextmanager
def suspend_hooks(module: Any) -> Iterator[None]:
    """Remove our hooks from a module and all below it, for code that would compile them as part of the module."""
    held = [
        (hooks, dict(hooks))
        for part in module.modules()
        for hooks in (part._forward_pre_hooks, part._forward_hooks)  # noqa: SLF001 - nothing public lists them
        if any(isinstance(hook, ModuleHook) for hook in hooks.values())
    ]
    for hooks, all_of_them in held:
        for key in [key for key, hook in all_of_them.items() if isinstance(hook, ModuleHook)]:
            del hooks[key]
    try:
        yield
    finally:
        for hooks, all_of_them in held:
            hooks.clear()
            hooks.update(all_of_them)
