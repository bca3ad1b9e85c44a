"""Tensors that autograd keeps between passes, on meta tensors. Imported only where torch is installed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode


@contextmanager
def keeping(module: torch.nn.Module) -> Iterator[dict[int, torch.Tensor]]:
    """Collect the tensors that are saved meanwhile, each once, without parameters of the module."""
    own = {id(one) for one in module.parameters()}
    kept: dict[int, torch.Tensor] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        base = tensor if tensor._base is None else tensor._base  # noqa: SLF001
        if id(base) not in own:
            kept[id(base)] = base
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        yield kept


class Ops(TorchDispatchMode):  # type: ignore[misc]
    """Counter of ops that a device would launch something for: all but views."""

    count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += not func.is_view
        return func(*args, **(kwargs or {}))


class _Fused(torch.autograd.Function):  # type: ignore[misc]
    """Substitute for FlashAttention: keeps its inputs, its output, and a fp32 number for each query."""

    @staticmethod
    def forward(ctx: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        result = query.new_empty((*query.shape[:-1], value.shape[-1]))
        ctx.save_for_backward(query, key, value, result, query.new_empty(query.shape[:-1], dtype=torch.float32))
        return result

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        raise NotImplementedError("only what is kept is counted")


@contextmanager
def fused_attention() -> Iterator[None]:
    """Replace attention by one that keeps no scores, whatever this machine would choose."""
    functional: Any = torch.nn.functional
    original = functional.scaled_dot_product_attention

    def attend(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *_: Any, **__: Any) -> Any:
        return _Fused.apply(query, key, value)

    functional.scaled_dot_product_attention = attend
    try:
        yield
    finally:
        functional.scaled_dot_product_attention = original
