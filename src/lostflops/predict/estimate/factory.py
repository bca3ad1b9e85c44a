"""A model that a Python function builds, counted on meta tensors: shapes without storage, so that any size fits.

The function is named `module:function` or `file.py:function` and returns a module, or a module and the inputs of one
microbatch (a tensor, a tuple or a dict). With inputs, torch's own counter counts a forward and a backward pass, and the
bytes that autograd keeps between them are added up. The function runs in this interpreter, which therefore needs torch.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from lostflops.core.errors import UsageError

if TYPE_CHECKING:
    import torch

_NAMES: Final = {"torch.float32": "fp32", "torch.bfloat16": "bf16", "torch.float16": "fp16"}


@dataclass(frozen=True, slots=True)
class ModelParameter:
    name: str
    shape: tuple[int, ...]
    element_size: int
    trained: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """A module as it was counted on meta tensors."""

    name: str
    parameters: tuple[ModelParameter, ...]
    embedding: int
    dtype: str
    flops: int | None = None
    """FLOPs of a forward and a backward pass over the inputs, with attention over all pairs as plain products."""
    kept: int | None = None
    """Bytes that autograd holds for the backward pass, without parameters."""
    kernels: int = 0
    """Ops of a forward pass."""

    @property
    def elements(self) -> int:
        return sum(prod(one.shape) for one in self.parameters)


def is_factory(text: str) -> bool:
    """Return whether a text names a function, as `module:function` or `file.py:function`.

    >>> is_factory("train.py:model"), is_factory("package.models:small"), is_factory("config.json")
    (True, True, False)
    """
    before, separator, function = text.rpartition(":")
    return bool(separator) and bool(before) and function.isidentifier()


def count(text: str) -> Counted:
    if importlib.util.find_spec("torch") is None:
        raise UsageError(
            f"{text} needs torch, which {sys.executable} does not have: run lostflops where torch is installed"
        )
    import torch  # noqa: PLC0415

    function = _load(text)
    try:
        # Output of the user's function must not mix with ours.
        with torch.device("meta"), redirect_stdout(sys.stderr):
            made = function()
    except (Exception, SystemExit) as error:
        raise UsageError(f"{text} failed ({type(error).__name__}: {error}): it must work on any device") from error
    if isinstance(made, tuple) and len(made) != 2:
        raise UsageError(f"{text} returned {len(made)} values: return a torch.nn.Module, or (module, inputs)")
    module, inputs = made if isinstance(made, tuple) else (made, None)
    if not isinstance(module, torch.nn.Module):
        raise UsageError(f"{text} returned {type(module).__name__}: return a torch.nn.Module, or (module, inputs)")
    module = module.to("meta")
    parameters = tuple(
        ModelParameter(name, tuple(one.shape) or (1,), one.element_size(), one.requires_grad)
        for name, one in module.named_parameters()
    )
    flops, kept, kernels = (None, None, 0) if inputs is None else _passes(module, inputs, text)
    return Counted(
        name=text,
        parameters=parameters,
        embedding=_embedding(module),
        dtype=_dtype(module, text),
        flops=flops,
        kept=kept,
        kernels=kernels,
    )


def _load(text: str) -> Callable[[], Any]:
    where, _, name = text.rpartition(":")
    try:
        with redirect_stdout(sys.stderr):
            module = _module_of_file(Path(where)) if where.endswith(".py") else _module(where)
    except (Exception, SystemExit) as error:
        raise UsageError(f"{where} cannot be imported ({type(error).__name__}: {error})") from error
    function = getattr(module, name, None)
    if not callable(function):
        raise UsageError(f"{where} has no function {name}")
    return function  # type: ignore[no-any-return]


def _module(name: str) -> Any:
    sys.path.insert(0, str(Path.cwd()))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.pop(0)


def _module_of_file(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.parent.resolve()))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.pop(0)
    return module


def _passes(module: torch.nn.Module, inputs: Any, text: str) -> tuple[int, int, int]:
    """Count the FLOPs of both passes with attention as plain products, so that each is counted; the bytes that a
    forward pass keeps with attention that keeps no scores; and its ops."""
    import torch  # noqa: PLC0415
    from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: PLC0415
    from torch.utils.flop_counter import FlopCounterMode  # noqa: PLC0415

    from lostflops.predict.estimate.kept_tensors import Ops, fused_attention, keeping  # noqa: PLC0415

    arguments = _to_meta(inputs if isinstance(inputs, (tuple, dict)) else (inputs,))

    def run() -> list[Any]:
        return _tensors(module(**arguments) if isinstance(arguments, dict) else module(*arguments))

    try:
        with redirect_stdout(sys.stderr):
            with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
                torch.stack([one.sum() for one in run()]).sum().backward()
            with keeping(module) as kept, fused_attention(), Ops() as ops:
                results = run()
    except Exception as error:
        raise UsageError(f"{text} cannot run on meta tensors ({error}): return the module without inputs") from error
    assert results
    return counter.get_total_flops(), sum(one.numel() * one.element_size() for one in kept.values()), ops.count


def _to_meta(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _to_meta(one) for name, one in value.items()}
    if isinstance(value, (tuple, list)):
        return tuple(_to_meta(one) for one in value)
    return value.to("meta") if hasattr(value, "to") else value


def _tensors(value: Any) -> list[Any]:
    if hasattr(value, "values") and not hasattr(value, "numel"):
        return [one for part in value.values() for one in _tensors(part)]
    if isinstance(value, (tuple, list)):
        return [one for part in value for one in _tensors(part)]
    return [value] if hasattr(value, "grad_fn") and value.requires_grad else []


def _embedding(module: torch.nn.Module) -> int:
    import torch  # noqa: PLC0415

    found = {id(one.weight): one.weight.numel() for one in module.modules() if isinstance(one, torch.nn.Embedding)}
    return sum(found.values())


def _dtype(module: torch.nn.Module, text: str) -> str:
    """Return the dtype of most elements."""
    sizes: dict[str, int] = {}
    for one in module.parameters():
        sizes[str(one.dtype)] = sizes.get(str(one.dtype), 0) + one.numel()
    most = max(sizes, key=lambda name: sizes[name], default="")
    if most not in _NAMES:
        raise UsageError(f"parameters of {text} are in {most or 'no dtype'}: supported are fp32, bf16 and fp16")
    return _NAMES[most]
