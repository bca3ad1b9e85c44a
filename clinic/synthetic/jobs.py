"""Well-tuned jobs on H100s that the synthetic patients are made of."""

from dataclasses import replace

from lostflops.testing import Clock, HostCosts, Model, Network, SyntheticCluster

from .transformer import HIDDEN, TOKENS, gradient_bytes, layer

MODEL = Model(
    layers=8,
    kernels=layer(),
    optimizer_kernels=4,
    optimizer_duration=350_000,
    gradient_bytes=gradient_bytes(),
    activation_bytes=2 * TOKENS * HIDDEN,
    buckets=8,
)
SINGLE = SyntheticCluster(
    ranks=1,
    steps=8,
    model=MODEL,
    host=HostCosts(dispatch=5_000, launch_call=3_000, tail=1_000, between_ops=2_000, between_steps=60_000, jitter=0.05),
    network=Network(alpha=20_000, gbs=200, inter_alpha=40_000, inter_gbs=120, jitter=0.03),
    noise=0.03,
    kernel_gap=1_200,
    annotations=True,
)
DDP = replace(SINGLE, ranks=4, clocks={0: Clock(0, 1.5)})
TWO_HOSTS = replace(SINGLE, ranks=8, ranks_per_host=4, clocks={0: Clock(0, 1.5), 1: Clock(2_300_000, -4.0)})


def pipeline(microbatches: int, tokens: int) -> SyntheticCluster:
    """Four stages of two layers, two ranks each; a step has `microbatches` times `tokens`."""
    model = replace(
        MODEL, layers=2, buckets=2, kernels=layer(tokens), activation_bytes=2 * tokens * HIDDEN, optimizer_kernels=1
    )
    return replace(SINGLE, ranks=8, pipeline_parallel=4, microbatches=microbatches, model=model, steps=5)
