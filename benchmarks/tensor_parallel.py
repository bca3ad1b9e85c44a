"""The step time of a job on four devices of one host: data, tensor or pipeline parallel."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from math import prod

import numpy as np
from model_jobs import ELEMENT, Job, backward, forward

from lostflops.account.facts.devices import Device
from lostflops.predict.costs.kernels.constants import Constants
from lostflops.predict.costs.kernels.model import KernelWork, kernel_times

RANKS = 4
LINK_SHARE = 0.8
"""Part of the link that NCCL reaches for large messages: nccl-tests report 230 to 240 of 300 GB/s on A100."""
_OUTSIDE = re.compile(r"(ln_\w+|layer_?norm|drop|wte|wpe|embed\w*)$", re.IGNORECASE)
"""Ops that every rank of a tensor-parallel group does whole."""


def time_four(base: Job, batch: int, how: str, device: Device, known: Constants) -> float:
    """Return the step time in ms. `base` is the job with any batch size, on one device."""
    own = int(base.name.rsplit("-", 1)[1])
    if how == "d":
        return _compute_ms(base, batch / RANKS / own, device, known) + _all_reduce_ms(
            parameters(base) * ELEMENT, device
        )
    if how == "p":  # one microbatch: stages wait for each other, so the step is that of one device
        return _compute_ms(base, batch / own, device, known)
    hidden = _hidden(base)
    tokens = prod(base.ops[_first_layer(base)].output[:-1]) * batch / own
    reduces = 4 * base.layers  # two in each pass of a layer: after attention and after the MLP
    shared = _sharded_ms(base, batch / own, device, known)
    return shared + reduces * _all_reduce_ms(tokens * hidden * ELEMENT, device)


def _all_reduce_ms(size: float, device: Device) -> float:
    link = {"A100-SXM4-40GB": 300.0, "H100-SXM5": 450.0}[device.name]
    return 2 * (RANKS - 1) / RANKS * size / (link * LINK_SHARE) / 1e6 + 0.02


def _works(job: Job) -> Iterator[tuple[KernelWork, int, bool]]:
    for op in job.ops:
        for work in (*forward(op), *backward(op)):
            yield work, job.layers if op.in_layer else 1, op.in_layer and not _OUTSIDE.search(op.target)


def _compute_ms(job: Job, times: float, device: Device, known: Constants) -> float:
    works = [(_scale(work, times), count) for work, count, _ in _works(job)]
    ns = kernel_times(device, [work for work, _ in works], known) @ np.array([count for _, count in works])
    return max(float(ns), job.host_ns()) / 1e6


def _sharded_ms(job: Job, times: float, device: Device, known: Constants) -> float:
    works = []
    for work, count, is_cut in _works(job):
        whole = _scale(work, times)
        is_head = not is_cut and work.kind == "matmul"
        works.append((_cut(whole) if is_cut or is_head else whole, count))
    ns = kernel_times(device, [work for work, _ in works], known) @ np.array([count for _, count in works])
    return max(float(ns), job.host_ns()) / 1e6


def _scale(work: KernelWork, times: float) -> KernelWork:
    """The same with another batch size: a product has more rows, or more matrices if it is a batched one."""
    if work.kind != "matmul":
        return replace(work, bytes=work.bytes * times)
    if work.batch > 1:
        return replace(work, batch=max(int(work.batch * times), 1), flops=work.flops * times, bytes=work.bytes * times)
    # Tokens are the rows of a forward product and the inner dimension of a gradient of weights.
    return replace(work, m=max(int(work.m * times), 1), flops=work.flops * times, bytes=work.bytes * times)


def _cut(work: KernelWork) -> KernelWork:
    """A quarter of the work of a layer: heads, or columns of its weights."""
    if work.kind != "matmul":
        return replace(work, bytes=work.bytes / RANKS)
    if work.batch > 1:
        return replace(work, batch=max(work.batch // RANKS, 1), flops=work.flops / RANKS, bytes=work.bytes / RANKS)
    return replace(work, n=max(work.n // RANKS, 1), flops=work.flops / RANKS, bytes=work.bytes / RANKS)


def _first_layer(job: Job) -> int:
    return next(at for at, op in enumerate(job.ops) if op.in_layer and len(op.output) == 3)


def _hidden(job: Job) -> int:
    return job.ops[_first_layer(job)].output[-1]


def parameters(job: Job) -> float:
    """Weights of all products that have weights, and of one embedding."""
    total = 0.0
    for op in job.ops:
        works = forward(op)
        if works and works[0].kind == "matmul" and works[0].batch == 1:
            total += works[0].n * works[0].k * (job.layers if op.in_layer else 1)
    return total
