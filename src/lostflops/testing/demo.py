"""The synthetic job of `lostflops demo`: one slow rank, and one step that waits for data."""

from .cluster import SyntheticCluster
from .declaration import Clock, Kernel, Losses, Model, Network, Straggler

RANKS_PER_HOST = 4
TOKENS, WIDTH = 4096, 2048
FLOP_PER_NS = 620_000
"""Rate of matrix products that an H100 reaches in bf16 with good shapes."""
SLOW = 1.5
LATE_STEP, LATE_NS = 5, 37_000_000


def demo_cluster(ranks: int) -> SyntheticCluster:
    """Declare a transformer in two stages on nodes of four ranks, with clocks that disagree. It reads its loss in every
    step, so that the host is never far ahead of the device and a long wait for data shows."""
    hosts = -(-ranks // RANKS_PER_HOST)
    late = (Straggler(rank, "late_data", delay=LATE_NS, steps=(LATE_STEP,)) for rank in range(ranks))
    return SyntheticCluster(
        ranks=ranks,
        ranks_per_host=RANKS_PER_HOST,
        steps=8,
        first_step=0,
        model=_transformer(),
        network=Network(gbs=300, inter_gbs=50, jitter=0.05),
        pipeline_parallel=2 if ranks % 2 == 0 and ranks > 2 else 1,
        microbatches=4,
        kernel_gap=900,
        annotations=True,
        memory=True,
        clocks={host: Clock(offset=1_700_000 * host, drift_ppm=4.0) for host in range(1, hosts)},
        losses=Losses(copy_bytes=4_000_000, sync=1),
        stragglers=(Straggler(ranks // 2, "slow_kernels", factor=SLOW), *late),
    )


def _transformer() -> Model:
    def product(inner: int, outer: int) -> Kernel:
        return Kernel(2 * TOKENS * inner * outer // FLOP_PER_NS, (TOKENS, inner, outer))

    def elementwise(op: str, duration: int, width: int = WIDTH) -> Kernel:
        return Kernel(duration, op=op, shape=(TOKENS, width))

    attention = (elementwise("native_layer_norm", 24_000), product(WIDTH, 3 * WIDTH), product(WIDTH, WIDTH))
    perceptron = (product(WIDTH, 4 * WIDTH), elementwise("gelu", 55_000, 4 * WIDTH), product(4 * WIDTH, WIDTH))
    residual = elementwise("add", 18_000)
    return Model(
        layers=2,
        kernels=(*attention, residual, *perceptron, residual),
        optimizer_kernels=4,
        optimizer_duration=120_000,
        gradient_bytes=2 * 12 * WIDTH * WIDTH,
        activation_bytes=2 * TOKENS * WIDTH,
        buckets=2,
    )
