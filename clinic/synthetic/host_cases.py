"""The host keeps the device waiting: batches, Python, dispatch, syncs, allocations, copies, compilation."""

from dataclasses import replace

from lostflops.testing import HostCosts, Losses, SyntheticCluster

from .case import Case, planted
from .jobs import DDP, MODEL, SINGLE, TWO_HOSTS
from .transformer import gradient_bytes, layer


def _small(job: SyntheticCluster, tokens: int, hidden: int) -> SyntheticCluster:
    model = replace(
        MODEL,
        layers=16,
        kernels=layer(tokens, hidden),
        gradient_bytes=gradient_bytes(hidden),
        optimizer_duration=40_000,
        buckets=8,
    )
    return replace(job, model=model)


_TINY = _small(SINGLE, 256, 512)
_MIDDLE = replace(_small(DDP, 4096, 1024), stacks=True, host=replace(DDP.host, sync_return=12_000))
_CAPTURED = HostCosts(dispatch=300, launch_call=400, tail=50, between_steps=60_000, jitter=0.05)
_SLOW_HOST = _small(replace(DDP, host=replace(DDP.host, dispatch=40_000)), 4096, 1024)

CASES = (
    planted("gpu_slow_loader", "input_pipeline", "idle.data", DDP, Losses(data=75_000_000)),
    planted("gpu_slow_loader_two_hosts", "input_pipeline", "idle.data", TWO_HOSTS, Losses(data=52_000_000)),
    Case("gpu_small_kernels", ("host_bound",), ("idle.host",), _TINY, replace(_TINY, host=_CAPTURED)),
    Case("gpu_slow_host", ("host_bound",), ("idle.host",), _SLOW_HOST, replace(_SLOW_HOST, host=_CAPTURED)),
    planted("gpu_python_metrics", "host_python", "idle.python", replace(DDP, stacks=True), Losses(python=55_000_000)),
    planted("gpu_item_per_layer", "sync", "idle.sync", _MIDDLE, Losses(sync=48)),
    planted("gpu_allocator_retries", "allocator", "idle.alloc", DDP, Losses(alloc=14_000_000)),
    planted("gpu_pageable_batches", "copies", "copy", DDP, Losses(copy_bytes=154_140_672, pageable=True)),
    planted("gpu_recompiles", "compile", "idle.compile", DDP, Losses(compile=300_000_000, steps=(12, 15))),
    planted("gpu_first_steps", "warmup", "idle.host", DDP, Losses(launch_factor=250, alloc=10_000_000, steps=(10, 11))),
)
