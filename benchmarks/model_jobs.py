"""The jobs of NeuSight's authors as kernels: what each op of a traced model makes a device do, forward and backward.

Their tables hold the ops of one layer and what surrounds the layers, so a job is: before + layers x layer + after.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path

import duckdb

from lostflops.predict.costs.kernels.model import KernelWork
from lostflops.predict.estimate.rates import LAUNCH_NS

ELEMENT = 4.0
"""All jobs are fp32."""
_IN_LAYER = re.compile(r"(\.h\.0\.|\.layers?\.0\.)")
_LINEAR = re.compile(r"(lm_head|fc\d|_proj|dense|query|key|value|decoder)$")
_NORM = re.compile(r"(ln_\w+|layer_?norm)$", re.IGNORECASE)
_EMBEDDING = re.compile(r"(wte|wpe|embed\w*)$")
_SOFTMAX, _DROPOUT = re.compile(r"softmax"), re.compile(r"drop")
_PRODUCT = re.compile(r"\b(addmm|matmul|bmm|baddbmm)\b")
_ONE_TENSOR = re.compile(r"(truediv|mul|add|sub|pow|tanh|gelu|relu|where|max|contiguous|act\w*|masked_fill|clone)\b")
_BACKWARD = {"add": 0.0, "sub": 0.0, "truediv": 2.0, "tanh": 3.0, "gelu": 3.0, "relu": 3.0, "pow": 7.0, "where": 2.0,
             "max": 4.0, "contiguous": 0.0, "clone": 0.0, "act": 3.0, "masked_fill": 2.0}  # fmt: skip
"""Times that the backward pass of an op reads or writes a tensor as large as its output."""
_DROPOUT_FORWARD, _DROPOUT_BACKWARD = 2.25, 6.25


@dataclass(frozen=True)
class Op:
    target: str
    kind: str
    inputs: list[list[int]]
    output: tuple[int, ...]
    is_tensor: bool
    in_layer: bool = False


@dataclass(frozen=True)
class Job:
    device: str
    name: str
    layers: int
    ops: list[Op]
    forward_ms: float
    backward_ms: float

    @property
    def total_ms(self) -> float:
        return self.forward_ms + self.backward_ms

    @property
    def trains(self) -> bool:
        return "-train-" in self.name

    def works(self) -> Iterator[tuple[KernelWork, int]]:
        """Each kernel and how often it runs."""
        for op in self.ops:
            for work in (*forward(op), *(backward(op) if self.trains else ())):
                yield work, self.layers if op.in_layer else 1

    def host_ns(self) -> float:
        """Time to launch all ops."""
        passes = 2 if self.trains else 1
        return passes * sum(LAUNCH_NS * (self.layers if op.in_layer else 1) for op in self.ops if list(forward(op)))


def read_jobs(folder: Path) -> list[Job]:
    known = duckdb.sql(f"select device, job, layers, forward_ms, backward_ms from '{folder}/models.csv'").fetchall()
    measured = {(device, job): rest for device, job, *rest in known}
    rows = duckdb.sql(
        f"select device, job, op, target, input_shapes, output_shape, dtype from '{folder}/model_ops.parquet'"
    ).fetchall()
    ops: dict[tuple[str, str], list[Op]] = {}
    for device, job, kind, target, inputs, output, dtype in rows:
        shapes = [list(shape) for shape in ast.literal_eval(inputs)] if inputs else []
        made = Op(target, kind, shapes, ast.literal_eval(output) if output else (), dtype is not None)
        ops.setdefault((device, job), []).append(made)
    return [
        Job(*key, int(measured[key][0]), _mark(found), *measured[key][1:])
        for key, found in ops.items()
        if key in measured
    ]


def read_ops(folder: Path) -> dict[tuple[str, str], list[tuple[KernelWork, float]]]:
    """Forward ops of at least 50 us that are one kernel, with their ms, by device and class."""
    rows = duckdb.sql(
        f"select device, op, target, input_shapes, output_shape, forward_ms from '{folder}/model_ops.parquet' "
        "where dtype is not null and forward_ms >= 0.05"
    ).fetchall()
    found: dict[tuple[str, str], list[tuple[KernelWork, float]]] = {}
    for device, kind, target, inputs, output, ms in rows:
        works = forward(
            Op(target, kind, [list(shape) for shape in ast.literal_eval(inputs)], ast.literal_eval(output), True)
        )
        if len(works) == 1:
            name = works[0].kind if works[0].batch == 1 else "batched matmul"
            name = ("softmax" if "softmax" in target else "layer norm") if name == "normalisation" else name
            found.setdefault((device, name), []).append((works[0], ms))
    return found


def _mark(ops: list[Op]) -> list[Op]:
    """The layer reaches from its first module to the residual sum after its last."""
    places = [at for at, op in enumerate(ops) if _IN_LAYER.search(op.target)]
    first, last = places[0], places[-1]
    for at in range(last + 1, len(ops)):
        if ops[at].kind == "call_module":
            break
        if "add" in ops[at].target:
            last = at
    return [
        Op(op.target, op.kind, op.inputs, op.output, op.is_tensor, first <= at <= last) for at, op in enumerate(ops)
    ]


def forward(op: Op) -> list[KernelWork]:
    size = prod(op.output)
    tensors = [shape for shape in op.inputs if len(shape) > 1]
    if not op.is_tensor or not tensors or size <= 1:
        return []
    if product := _product(op, tensors):
        return [_as_product(*product)]
    if _NORM.search(op.target) or _SOFTMAX.search(op.target):
        return [_rows(2, op)]
    if _EMBEDDING.search(op.target):
        return [_stream(2, size)]
    if op.kind == "call_module" and _DROPOUT.search(op.target):
        return [_stream(_DROPOUT_FORWARD, size)]
    if _ONE_TENSOR.search(op.target):
        read = sum(prod(shape) for shape in tensors if prod(shape) > 1) / size
        return [_stream(min(read, 2) + 1, size)]
    return []


def backward(op: Op) -> list[KernelWork]:
    size = prod(op.output)
    tensors = [shape for shape in op.inputs if len(shape) > 1]
    if not forward(op):
        return []
    if product := _product(op, tensors):
        batch, m, n, k = product
        bias = [_stream(1, size)] if len(op.inputs) == 3 or op.kind == "call_module" else []
        return [_as_product(batch, m, k, n), _as_product(batch, k, n, m), *bias]
    if _NORM.search(op.target):
        return [_rows(8, op)]
    if _SOFTMAX.search(op.target):
        return [_rows(5, op)]
    if _EMBEDDING.search(op.target):
        return [_stream(4, size)]
    if op.kind == "call_module" and _DROPOUT.search(op.target):
        return [_stream(_DROPOUT_BACKWARD, size)]
    word = _ONE_TENSOR.search(op.target)
    assert word
    name = "act" if word[1].startswith("act") else word[1]
    large = sum(prod(shape) == size for shape in tensors)
    times = (6.0 if large > 1 else 2.0) if name == "mul" else _BACKWARD[name]
    return [_stream(times, size)] if times else []


def _product(op: Op, tensors: list[list[int]]) -> tuple[int, int, int, int] | None:
    """(batch, m, n, k) of a product."""
    if op.kind == "call_module" and _LINEAR.search(op.target):
        k, n = tensors[0][-1], op.output[-1]
        return 1, prod(op.output) // n, n, k
    if _PRODUCT.search(op.target):
        left = tensors[0]
        *outer, m, n = op.output
        return prod(outer), m, n, left[-1]
    return None


def _as_product(batch: int, m: int, n: int, k: int) -> KernelWork:
    moved = ELEMENT * batch * (m * k + k * n + m * n)
    return KernelWork("matmul", "fp32", 2.0 * batch * m * n * k, moved, batch=batch, m=m, n=n, k=k)


def _rows(times: float, op: Op) -> KernelWork:
    return KernelWork("normalisation", "fp32", 0, times * ELEMENT * prod(op.output), n=op.output[-1])


def _stream(times: float, size: int) -> KernelWork:
    return KernelWork("elementwise", "fp32", 0, times * ELEMENT * size)
