"""The device computes more, or slower, than it would have to."""

from dataclasses import replace

from lostflops.testing import Kernel

from .case import Case
from .jobs import DDP, MODEL, SINGLE
from .transformer import TOKENS, elementwise, fp32_matmul, layer, unaligned_matmul

_ODD = 2051


def _fp32() -> tuple[Kernel, ...]:
    return tuple(
        fp32_matmul(*kernel.dims) if kernel.dims else replace(kernel, duration=2 * kernel.duration, dtype="float32")
        for kernel in layer()
    )


def _odd() -> tuple[Kernel, ...]:
    """The sizes of a vocabulary and heads that nobody padded."""
    return tuple(unaligned_matmul(*kernel.dims) if kernel.dims else kernel for kernel in layer(TOKENS - 3, _ODD))


def _unfused() -> tuple[Kernel, ...]:
    """A norm and a GELU written out, dropout and residual beside them."""
    first, qkv, out, up, _, down = layer()
    norm = [elementwise(TOKENS, 2048, op) for op in ("pow", "mean", "add", "rsqrt", "mul", "mul")]
    gelu = [elementwise(TOKENS, 8192, op) for op in ("pow", "mul", "add", "mul", "tanh", "add", "mul", "mul")]
    return (*norm, qkv, first, out, *norm, up, *gelu, down, first)


def _changed(name: str, cause: str, kernels: tuple[Kernel, ...], ranks: int) -> Case:
    job = replace(SINGLE, ranks=ranks)
    sick = replace(job, model=replace(MODEL, kernels=kernels))
    return Case(name, (cause,), ("compute",), sick, job)


LOOPED = replace(MODEL, optimizer_kernels=8 * 148, optimizer_duration=14_000, fused=False, foreach=False)

CASES = (
    _changed("gpu_fp32", "precision", _fp32(), 1),
    _changed("gpu_odd_shapes", "matmul_shapes", _odd(), 2),
    _changed("gpu_unfused", "unfused", _unfused(), 1),
    Case("gpu_optimizer_loop", ("optimizer",), ("compute",), replace(DDP, model=LOOPED), DDP),
    Case("gpu_recompute", ("recompute",), ("compute",), replace(DDP, recompute=True), DDP),
)
