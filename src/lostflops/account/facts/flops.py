"""FLOPs and least traffic of an op, from the shapes that the profiler recorded.

These rules count, and are printed next to every MFU:

- A multiply-add is 2 FLOPs.
- Only products of matrices count, convolutions and attention among them: no elementwise work, norm, softmax or bias.
- Attention counts the whole score matrix, Q·Kᵀ and P·V: causal masks do not halve it. Grouped queries count by the
  heads of Q, and a sliding window by its width.
- A backward pass counts its gradients. Work that an algorithm does twice, as flash attention does Q·Kᵀ in its backward
  pass, is `recompute`. A checkpointed layer's second forward pass looks like its first, and is not separated here.
- A convolution counts places in the padding.
- Precision is that of the operands. Whether fp32 is multiplied as tf32 is up to the kernel.

An outer op includes the work of inner ops (`aten::linear` > `aten::addmm`): of nested ops with a formula, count one.

    >>> op_work("aten::mm", "[[4, 8], [8, 16]]", '["c10::BFloat16", "c10::BFloat16"]', None)
    CallWork(model=1024, recompute=0, bytes=448, dtype='bf16')
    >>> op_work("aten::relu", "[[4, 8]]", '["float"]', None) is None
    True
"""

from collections.abc import Mapping
from typing import Final

from lostflops.account.facts.flops_attention import ATTENTION
from lostflops.account.facts.flops_convolution import CONVOLUTIONS
from lostflops.account.facts.flops_matmul import MATMULS
from lostflops.account.facts.op_arguments import CallWork, Formula, UnknownArguments

__all__ = ["FORMULAS", "CallWork", "op_work"]

FORMULAS: Final[Mapping[str, Formula]] = {**MATMULS, **CONVOLUTIONS, **ATTENTION}


def op_work(name: str, shapes: str | None, dtypes: str | None, inputs: str | None) -> CallWork | None:
    """Return the work of one call, from the JSON texts of `Input Dims`, `Input type` and `Concrete Inputs`.

    None if the op has no formula, or its record is missing, not understood, or does not show the work.
    """
    formula = FORMULAS.get(name)
    if formula is None or not shapes or not dtypes:
        return None
    try:
        return formula(shapes, dtypes, inputs)
    except UnknownArguments:
        return None
