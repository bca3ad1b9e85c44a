"""Jobs of wide encoders on GPUs that the second held-out set of synthetic patients is made of."""

from dataclasses import replace

from clinic.synthetic.transformer import elementwise, matmul
from lostflops.testing import Clock, HostCosts, Kernel, Model, Network, SyntheticCluster

TOKENS, HIDDEN = 6144, 2560


def layer(tokens: int = TOKENS, hidden: int = HIDDEN) -> tuple[Kernel, ...]:
    """Queries, keys and values are projected one after the other."""
    return (
        elementwise(tokens, hidden, "native_layer_norm"),
        *(matmul(tokens, hidden, hidden) for _ in range(4)),
        elementwise(tokens, hidden, "native_layer_norm"),
        matmul(tokens, hidden, 4 * hidden),
        elementwise(tokens, 4 * hidden, "gelu"),
        matmul(tokens, 4 * hidden, hidden),
    )


def weights(hidden: int = HIDDEN) -> int:
    """Bytes of a layer's, in bfloat16."""
    return 2 * 12 * hidden * hidden


MODEL = Model(
    layers=10,
    kernels=layer(),
    optimizer_kernels=3,
    optimizer_duration=900_000,
    gradient_bytes=weights(),
    activation_bytes=2 * TOKENS * HIDDEN,
    buckets=10,
)
ALONE = SyntheticCluster(
    ranks=1,
    steps=7,
    first_step=120,
    model=MODEL,
    host=HostCosts(dispatch=7_000, launch_call=3_500, tail=1_000, between_ops=2_500, between_steps=80_000, jitter=0.06),
    network=Network(alpha=15_000, gbs=230, inter_alpha=45_000, inter_gbs=140, jitter=0.05),
    noise=0.025,
    kernel_gap=900,
    annotations=True,
)
THREE = replace(ALONE, ranks=3, clocks={0: Clock(0, 3.0)})
TWO_HOSTS = replace(ALONE, ranks=4, ranks_per_host=2, clocks={0: Clock(0, -1.0), 1: Clock(-7_500_000, 2.5)})
SHARDED_HOSTS = replace(TWO_HOSTS, sharding=3)


def staged(stages: int, microbatches: int, tokens: int, ranks: int) -> SyntheticCluster:
    """Stages of three layers."""
    model = replace(
        MODEL,
        layers=3,
        buckets=3,
        kernels=layer(tokens),
        activation_bytes=2 * tokens * HIDDEN,
        optimizer_kernels=1,
    )
    return replace(ALONE, ranks=ranks, pipeline_parallel=stages, microbatches=microbatches, model=model, steps=5)
