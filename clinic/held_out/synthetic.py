"""Held-out jobs that are simulated: what a machine without GPUs cannot be ill with."""

from dataclasses import replace

from clinic.synthetic.case import Case, healthy, late, planted
from clinic.synthetic.transformer import elementwise
from lostflops.testing import HostCosts, Kernel, Losses, Straggler, SyntheticCluster

from .gpu import ALONE, HIDDEN, INNER, MODEL, PAIR, SHARDED, TENSOR, THREE_HOSTS, TOKENS, layer, staged, weights

SGEMM, SGEMM_TFLOPS = "ampere_sgemm_128x64_tn", 52
NARROW, NARROW_TFLOPS = "cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_128x64_32x6_tn_align1", 260
ODD_INNER = 8195


def _slower(kernel: Kernel, tflops: int, name: str) -> Kernel:
    return replace(kernel, duration=kernel.flops // (1_000 * tflops), name=name)


def _outside_autocast() -> tuple[Kernel, ...]:
    """The projection of attention's output was cast to float32, for its numerics."""
    return tuple(
        replace(_slower(kernel, SGEMM_TFLOPS, SGEMM), dtype="float32") if position == 2 else kernel
        for position, kernel in enumerate(layer())
    )


def _odd_inner() -> tuple[Kernel, ...]:
    return tuple(
        _slower(kernel, NARROW_TFLOPS, NARROW) if kernel.dims and position >= 4 else kernel
        for position, kernel in enumerate(layer(inner=ODD_INNER))
    )


def _written_out() -> tuple[Kernel, ...]:
    """Norms, rotation of queries and keys, the gate and the residuals, op by op."""
    _, qkv, out, _, up, _, down = layer()
    norm = [elementwise(TOKENS, HIDDEN, op) for op in ("to", "square", "mean", "rsqrt", "mul", "to", "mul")]
    rotation = [elementwise(TOKENS, HIDDEN, op) for op in ("neg", "cat", "mul", "mul", "add")]
    gate = [elementwise(TOKENS, INNER, op) for op in ("neg", "exp", "add", "reciprocal", "mul", "mul", "dropout")]
    residual = elementwise(TOKENS, HIDDEN, "add")
    return (*norm, qkv, *rotation, out, residual, *norm, up, *gate, down, residual)


def _with(job: SyntheticCluster, kernels: tuple[Kernel, ...]) -> SyntheticCluster:
    return replace(job, model=replace(job.model, kernels=kernels))


def _heating(job: SyntheticCluster) -> SyntheticCluster:
    """All slow down, one a little more than the next, until they are as hot as they get."""
    hot = tuple(
        Straggler(rank, "slow_kernels", factor=1.01 + min(0.08 * step, 0.64) + 0.004 * rank, steps=(40 + step,))
        for rank in range(job.ranks)
        for step in range(job.steps)
    )
    return replace(job, stragglers=hot)


_SMALL = replace(
    PAIR,
    model=replace(
        MODEL,
        layers=24,
        buckets=4,
        kernels=layer(384, 768, 2048),
        gradient_bytes=weights(768, 2048),
        optimizer_duration=60_000,
    ),
)
_GRAPHED = HostCosts(dispatch=400, launch_call=500, tail=100, between_steps=50_000, jitter=0.05)
_LONG = replace(SHARDED, steps=12)
_PCIE = replace(ALONE, ranks=4, network=replace(ALONE.network, gbs=110))
_ZERO = replace(_PCIE, sharding=2)
_LOOSE = replace(MODEL, optimizer_kernels=420, optimizer_duration=38_000, fused=False)
_SLOW = replace(THREE_HOSTS.network, inter_gbs=40)
_STALLS = Straggler(4, "host_stall", delay=66_000_000, steps=tuple(range(40, 49, 2)))

HOST = (
    Case("gpu_hooked_modules", ("host_bound",), ("idle.host",), _SMALL, replace(_SMALL, host=_GRAPHED)),
    planted("gpu_fragmented", "allocator", "idle.alloc", SHARDED, Losses(alloc=9_000_000)),
    planted("gpu_frames", "copies", "copy", TENSOR, Losses(copy_bytes=72_000_000, pageable=True)),
    planted("gpu_new_shapes", "compile", "idle.compile", THREE_HOSTS, Losses(compile=85_000_000, steps=(41, 44, 47))),
)
COMMUNICATION = (
    Case(
        "gpu_shards_reduced_late",
        ("exposed_comm",),
        ("comm.transfer",),
        replace(_ZERO, overlap=False),
        _ZERO,
    ),
    Case(
        "gpu_last_bucket_large",
        ("bucket_size",),
        ("comm.transfer",),
        replace(_PCIE, model=replace(MODEL, buckets=2, first_bucket=1)),
        _PCIE,
    ),
    Case(
        "gpu_three_hosts_slow",
        ("slow_link",),
        ("comm.transfer",),
        replace(THREE_HOSTS, network=_SLOW),
        THREE_HOSTS,
    ),
)
RANKS = (
    late("gpu_stalls_now_and_then", THREE_HOSTS, _STALLS),
    Case("gpu_room_heats_up", ("throttling",), ("compute",), _heating(_LONG), _LONG),
    Case("gpu_three_microbatches", ("few_microbatches",), ("comm.bubble",), staged(3, 8192), staged(12, 2048)),
)
KERNELS = (
    Case("gpu_outside_autocast", ("precision",), ("compute",), _with(PAIR, _outside_autocast()), PAIR),
    Case("gpu_odd_inner", ("matmul_shapes",), ("compute",), _with(ALONE, _odd_inner()), ALONE),
    Case("gpu_written_out", ("unfused",), ("compute",), _with(SHARDED, _written_out()), SHARDED),
    Case("gpu_foreach", ("optimizer",), ("compute",), replace(PAIR, model=_LOOSE), PAIR),
)
HEALTHY = (
    healthy("gpu_healthy_alone_stacks", replace(ALONE, stacks=True)),
    healthy("gpu_healthy_three_hosts", THREE_HOSTS),
    healthy("gpu_healthy_sharded_hosts", replace(SHARDED, ranks=8, ranks_per_host=4)),
    healthy("gpu_healthy_accumulation", replace(PAIR, microbatches=3, steps=5, losses=Losses(copy_bytes=400_000))),
)

CASES: tuple[Case, ...] = (*HOST, *COMMUNICATION, *RANKS, *KERNELS, *HEALTHY)
