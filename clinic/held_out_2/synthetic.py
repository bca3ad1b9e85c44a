"""Jobs of the second held-out set that are simulated."""

from dataclasses import replace

from clinic.synthetic.case import Case, healthy, late, planted
from clinic.synthetic.transformer import elementwise, matmul
from lostflops.testing import HostCosts, Kernel, Losses, LostRecords, Straggler, SyntheticCluster

from .gpu import ALONE, HIDDEN, MODEL, SHARDED_HOSTS, THREE, TOKENS, TWO_HOSTS, layer, staged, weights

SIMT, SIMT_TFLOPS = "void cutlass::Kernel2<cutlass_80_simt_sgemm_128x128_8x4_nn_align1>", 50
HALF_ALIGNED, HALF_ALIGNED_TFLOPS = "cutlass_80_tensorop_bf16_s16816gemm_bf16_64x64_32x6_nn_align2", 210
ODD_HEADS = 2546
SEQUENCE, HEADS = 512, 20


def _slower(kernel: Kernel, tflops: int, name: str) -> Kernel:
    return replace(kernel, duration=kernel.flops // (1_000 * tflops), name=name)


def _adapted(*, is_cast: bool) -> tuple[Kernel, ...]:
    """Layers with an adapter behind the perceptron, which was left in float32 where it is not cast."""
    adapter = matmul(TOKENS, HIDDEN, 1024)
    return (*layer(), adapter if is_cast else replace(_slower(adapter, SIMT_TFLOPS, SIMT), dtype="float32"))


def _odd_heads() -> tuple[Kernel, ...]:
    """Heads of a pruned model: what they are projected to is no multiple of eight."""
    norm, *_, second, up, gelu, down = layer()
    to_heads, from_heads = matmul(TOKENS, HIDDEN, ODD_HEADS), matmul(TOKENS, ODD_HEADS, HIDDEN)
    attention = [_slower(one, HALF_ALIGNED_TFLOPS, HALF_ALIGNED) for one in (*[to_heads] * 3, from_heads)]
    return (norm, *attention, second, up, gelu, down)


def _attention_by_hand() -> tuple[Kernel, ...]:
    """Scores are scaled, masked, made a distribution and dropped out, op by op."""
    first, query, key, value, out, *rest = layer()
    ops = ("mul", "masked_fill", "sub", "exp", "div", "bernoulli", "mul")
    scores = [elementwise(HEADS * TOKENS, SEQUENCE, op) for op in ops]
    return (first, query, key, value, *scores, out, *rest)


def _experts() -> tuple[Kernel, ...]:
    """Attention, then sixteen experts one after the other, which are not reduced between ranks."""
    expert = (matmul(512, 1024, 4096), elementwise(512, 4096, "relu"), matmul(512, 4096, 1024))
    return (*(matmul(8192, 1024, 1024) for _ in range(4)), *expert * 16)


def _with(job: SyntheticCluster, kernels: tuple[Kernel, ...]) -> SyntheticCluster:
    return replace(job, model=replace(job.model, kernels=kernels))


def _losing_clock(job: SyntheticCluster, calm: int) -> SyntheticCluster:
    """All devices slow down once some steps are over."""
    hot = tuple(
        Straggler(rank, "slow_kernels", factor=1 + min(0.07 * (step - calm + 1), 0.56), steps=(job.first_step + step,))
        for rank in range(job.ranks)
        for step in range(calm, job.steps)
    )
    return replace(job, stragglers=hot)


_MIXTURE = replace(
    THREE,
    model=replace(
        MODEL, layers=6, buckets=2, kernels=_experts(), gradient_bytes=2 * 4 * 1024 * 1024, optimizer_duration=120_000
    ),
)
_CAPTURED = HostCosts(dispatch=500, launch_call=600, tail=100, between_steps=80_000, jitter=0.05)
_ACCUMULATED = replace(
    TWO_HOSTS,
    microbatches=2,
    network=replace(TWO_HOSTS.network, inter_gbs=110),
    model=replace(MODEL, kernels=layer(4096)),
)
_LATENT = replace(
    TWO_HOSTS,
    network=replace(TWO_HOSTS.network, inter_alpha=70_000),
    model=replace(
        MODEL,
        layers=14,
        buckets=14,
        kernels=layer(TOKENS, 1280),
        gradient_bytes=weights(1280),
        optimizer_duration=300_000,
    ),
)
_LONG = replace(THREE, steps=14)
_STAGES = staged(3, 12, 2048, 3)

HOST = (
    Case("gpu_experts_in_turn", ("host_bound",), ("idle.host",), _MIXTURE, replace(_MIXTURE, host=_CAPTURED)),
    planted("gpu_video_alone", "copies", "copy", ALONE, Losses(copy_bytes=150_000_000, pageable=True)),
    planted(
        "gpu_retries_now_and_then",
        "allocator",
        "idle.alloc",
        THREE,
        Losses(alloc=40_000_000, steps=(120, 122, 124, 126)),
    ),
    planted("gpu_guards_fail", "compile", "idle.compile", SHARDED_HOSTS, Losses(compile=90_000_000)),
)
COMMUNICATION = (
    Case(
        "gpu_reduced_once_at_the_end",
        ("exposed_comm",),
        ("comm.transfer",),
        replace(_ACCUMULATED, overlap=False),
        _ACCUMULATED,
    ),
    Case(
        "gpu_buckets_of_tensors",
        ("bucket_size",),
        ("comm.transfer",),
        replace(_LATENT, model=replace(_LATENT.model, pieces=20)),
        _LATENT,
    ),
    Case(
        "gpu_shards_over_slow_link",
        ("slow_link",),
        ("comm.transfer",),
        replace(SHARDED_HOSTS, network=replace(SHARDED_HOSTS.network, inter_gbs=40)),
        SHARDED_HOSTS,
    ),
)
RANKS = (
    late("gpu_slow_host_of_two", TWO_HOSTS, *(Straggler(rank, "slow_kernels", factor=1.38) for rank in (2, 3))),
    Case("gpu_loses_clock", ("throttling",), ("compute",), _losing_clock(_LONG, 3), _LONG),
    Case(
        "gpu_two_stages_two_passes",
        ("few_microbatches",),
        ("comm.bubble",),
        staged(2, 2, 8192, 4),
        staged(2, 8, 2048, 4),
    ),
    Case(
        "gpu_heavy_last_stage",
        ("stage_imbalance",),
        ("comm.bubble",),
        replace(_STAGES, schedule="gpipe", stage_layers=(2, 2, 5)),
        replace(_STAGES, schedule="gpipe", stage_layers=(3, 3, 3)),
    ),
)
KERNELS = (
    Case(
        "gpu_adapter_in_fp32",
        ("precision",),
        ("compute",),
        _with(THREE, _adapted(is_cast=False)),
        _with(THREE, _adapted(is_cast=True)),
    ),
    Case("gpu_pruned_heads", ("matmul_shapes",), ("compute",), _with(TWO_HOSTS, _odd_heads()), TWO_HOSTS),
    Case("gpu_attention_by_hand", ("unfused",), ("compute",), _with(THREE, _attention_by_hand()), THREE),
)
HEALTHY = (
    healthy("gpu_healthy_two_stages", replace(staged(2, 20, 4096, 2), schedule="gpipe")),
    healthy("gpu_healthy_sharded_three", replace(THREE, sharding=3, annotations=False)),
    healthy("gpu_healthy_two_streams", replace(TWO_HOSTS, compute_streams=2, microbatches=4, steps=4)),
    healthy("gpu_healthy_noisy_alone", replace(ALONE, noise=0.06, lost=LostRecords(kernels=0.002, launches=0.002))),
)

CASES: tuple[Case, ...] = (*HOST, *COMMUNICATION, *RANKS, *KERNELS, *HEALTHY)
