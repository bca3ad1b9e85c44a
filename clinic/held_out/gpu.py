"""Jobs of gated transformers on GPUs that the held-out synthetic patients are made of."""

from dataclasses import replace

from clinic.synthetic.transformer import elementwise, matmul
from lostflops.testing import Clock, HostCosts, Kernel, Model, Network, SyntheticCluster

TOKENS, HIDDEN, INNER = 4096, 3072, 8192


def layer(tokens: int = TOKENS, hidden: int = HIDDEN, inner: int = INNER) -> tuple[Kernel, ...]:
    """Grouped queries: keys and values have a quarter of the heads."""
    return (
        elementwise(tokens, hidden, "rms_norm"),
        matmul(tokens, hidden, 3 * hidden // 2),
        matmul(tokens, hidden, hidden),
        elementwise(tokens, hidden, "rms_norm"),
        matmul(tokens, hidden, 2 * inner),
        elementwise(tokens, inner, "silu"),
        matmul(tokens, inner, hidden),
    )


def weights(hidden: int = HIDDEN, inner: int = INNER) -> int:
    """Bytes of a layer's, in bfloat16."""
    return 2 * (5 * hidden * hidden // 2 + 3 * hidden * inner)


MODEL = Model(
    layers=6,
    kernels=layer(),
    optimizer_kernels=2,
    optimizer_duration=1_200_000,
    gradient_bytes=weights(),
    activation_bytes=2 * TOKENS * HIDDEN,
    buckets=6,
)
ALONE = SyntheticCluster(
    ranks=1,
    steps=9,
    first_step=40,
    model=MODEL,
    host=HostCosts(dispatch=6_000, launch_call=2_500, tail=1_500, between_ops=1_500, between_steps=45_000, jitter=0.08),
    network=Network(alpha=18_000, gbs=260, inter_alpha=35_000, inter_gbs=160, jitter=0.04),
    noise=0.02,
    kernel_gap=1_000,
    annotations=True,
)
PAIR = replace(ALONE, ranks=2, clocks={0: Clock(0, -2.0)})
THREE_HOSTS = replace(
    ALONE, ranks=6, ranks_per_host=2, clocks={0: Clock(0, 1.0), 1: Clock(-900_000, 3.0), 2: Clock(4_100_000, -1.5)}
)
SHARDED = replace(ALONE, ranks=4, sharding=3)
TENSOR = replace(
    PAIR,
    ranks=4,
    tensor_parallel=2,
    model=replace(MODEL, kernels=layer(2 * TOKENS, HIDDEN, INNER // 2), gradient_bytes=weights() // 2),
)


def staged(microbatches: int, tokens: int) -> SyntheticCluster:
    """Three stages of three layers that run all forward passes before the first backward one."""
    model = replace(
        MODEL,
        layers=3,
        buckets=3,
        kernels=layer(tokens),
        activation_bytes=2 * tokens * HIDDEN,
        optimizer_kernels=1,
    )
    return replace(
        ALONE, ranks=6, pipeline_parallel=3, microbatches=microbatches, schedule="gpipe", model=model, steps=5
    )
