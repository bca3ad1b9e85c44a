"""The kernel that an op would launch on an accelerator, from the shapes that were recorded of it on a CPU.

A product has the FLOPs of its formula. Any other op reads its inputs and writes its result: as large as its largest
input, its first input again if it works in place, or nothing to speak of if it reduces. Ops that only look at tensors
in another way launch nothing.
"""

from __future__ import annotations

import re
from math import prod
from typing import Final

from lostflops.account.facts.flops import FORMULAS, CallWork, op_work
from lostflops.account.facts.kernel_classes import op_class
from lostflops.account.facts.op_arguments import Shape, UnknownArguments, read_tensors
from lostflops.account.ledger.work import MATMUL_CLASSES
from lostflops.predict.costs.kernels.model import BYTES, KernelWork

_Tensor = tuple[Shape, str, int]

_REDUCES: Final = re.compile(r"^(?:nan)?(?:sum|mean|var|std|prod|norm|max|min|amax|amin|argmax|argmin|any|all|count_)")
_WRITES: Final = frozenset({"fill_", "zero_", "normal_", "uniform_", "random_", "bernoulli_", "exponential_"})
_PICKS: Final = frozenset({"index_select", "gather", "take", "index", "embedding"})
"""Ops that read a part of their first tensor, as large as their result."""
_SUMMANDS: Final = ("addmm", "addmv", "baddbmm", "addbmm")
"""Products whose first tensor is added."""
_TOTAL_WRITTEN_BY_OPTIMIZERS: Final = 0.75
"""Of parameters, gradients and two states, all but the gradients."""


def kernel_of_op(name: str, shapes: str | None, dtypes: str | None, inputs: str | None) -> KernelWork | None:
    """Return the kernel of an op; None if it launches none, or its record does not show what it does.

    >>> kernel_of_op("aten::mm", "[[4, 8], [8, 16]]", '["float", "float"]', None)
    KernelWork(kind='matmul', dtype='fp32', flops=1024, bytes=896, batch=1, m=4, n=16, k=8)
    >>> kernel_of_op("aten::add_", "[[4, 8], [4, 8], []]", '["float", "float", "Scalar"]', None).bytes
    384
    >>> kernel_of_op("aten::view", "[[4, 8], []]", '["float", "ScalarList"]', None) is None
    True
    """
    kind = op_class(name)
    if not shapes or not dtypes or (kind == "other" and name not in FORMULAS):
        return None
    try:
        tensors = read_tensors(shapes, dtypes)
    except UnknownArguments:
        return None
    if not tensors:
        return None
    if name in FORMULAS:
        work = op_work(name, shapes, dtypes, inputs)
        return None if work is None else _product(name, kind, work, [shape for shape, _, _ in tensors])
    if kind in MATMUL_CLASSES:
        return None
    dtype = next((dtype for _, dtype, _ in tensors if dtype in BYTES), "fp32")
    moved = _moved(name.rpartition("::")[2], kind, tensors)
    row = tensors[0][0][-1] if kind == "normalisation" and tensors[0][0] else 0
    return KernelWork(kind, dtype, 0, moved, n=row)


def _product(name: str, kind: str, work: CallWork, shapes: list[Shape]) -> KernelWork:
    flops = work.model + work.recompute
    batch, m, n, k = _sides(name, kind, work, shapes)
    return KernelWork(kind, work.dtype, flops, work.bytes, batch, m, n, k)


def _sides(name: str, kind: str, work: CallWork, shapes: list[Shape]) -> tuple[int, int, int, int]:
    """Return how many products an op does, and their sides; 0 where the shapes do not show them."""
    short = name.rpartition("::")[2].strip("_")
    if kind == "attention":
        q, keys = (shapes[1], shapes[2]) if "backward" in short else (shapes[0], shapes[1])
        return (prod(q[:-2]), q[-2], keys[-2], q[-1]) if len(q) > 1 and len(keys) > 1 else (1, 0, 0, 0)
    if kind == "convolution":
        return _convolved(short, work, shapes)
    if "linear" in short:
        weight = shapes[-2] if len(shapes) > 2 and len(shapes[1]) != 2 else shapes[1]
        return 1, prod(shapes[0][:-1]), weight[0], weight[-1]
    left, right = (shapes[1], shapes[2]) if short.startswith(_SUMMANDS) else (shapes[0], shapes[1])
    columns = right[-1] if len(right) > 1 else 1
    rows = left[-2] if len(left) > 1 else 1
    return max(1, prod(left[:-2])), rows, columns, left[-1] if left else 1


def _convolved(short: str, work: CallWork, shapes: list[Shape]) -> tuple[int, int, int, int]:
    """Return the sides of the product that a convolution is, as its weight and its FLOPs show them. The two gradients
    count as one product with twice the rows."""
    image, weight = (shapes[1], shapes[2]) if "backward" in short else (shapes[0], shapes[1])
    if len(image) < 3 or len(weight) != len(image) or not prod(weight):
        return 1, 0, 0, 0
    groups = max(1, image[1] // weight[1])
    columns, inner = max(1, weight[0] // groups), prod(weight[1:])
    return groups, max(1, work.model // (2 * groups * columns * inner)), columns, inner


def _moved(short: str, kind: str, tensors: list[_Tensor]) -> float:
    """Return the bytes that an op without products reads and writes."""
    sizes = [prod(shape) * each for shape, _, each in tensors]
    whole, first, largest = sum(sizes), sizes[0], max(sizes)
    if short in _WRITES:
        return first
    if short in {"copy_", "_foreach_copy_"}:
        return whole
    if short in _PICKS and len(tensors) > 1:
        return _picked(short, tensors)
    if short.startswith("nll_loss"):
        return largest if "backward" in short else min(sizes)
    if short.startswith("embedding_dense_backward"):
        return 2 * first
    if kind == "optimizer" and short.startswith("_fused"):
        return whole * (1 + _TOTAL_WRITTEN_BY_OPTIMIZERS)
    if short in {"cat", "stack", "_foreach_mul", "_foreach_div"}:
        return 2 * whole
    if kind == "normalisation" and _REDUCES.match(short):
        return whole
    return whole + (first if short.endswith("_") else largest)


def _picked(short: str, tensors: list[_Tensor]) -> float:
    """Return the bytes of the part that is read and written, and of its places."""
    (shape, _, each), (places, _, place_size) = tensors[0], tensors[-1]
    count = prod(places)
    rows = count * prod(shape[1:]) if short in {"index_select", "embedding", "index"} else count
    return 2 * rows * each + count * place_size
