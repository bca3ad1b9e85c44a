"""Hypothesis strategies for interval sets and small clusters. The only module here that needs Hypothesis."""

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from .cluster import SyntheticCluster
from .declaration import CAUSES, Clock, HostCosts, Kernel, Losses, LostRecords, Model, Network, Straggler

Interval = tuple[int, int]


def intervals(*, max_time: int = 1_000, allow_empty: bool = False) -> SearchStrategy[Interval]:
    """Return a strategy for [start, stop) in integer nanoseconds."""
    shortest = 0 if allow_empty else 1
    return st.integers(0, max_time - 1).flatmap(
        lambda start: st.tuples(st.just(start), st.integers(start + shortest, max_time))
    )


def interval_sets(
    *, max_size: int = 20, max_time: int = 1_000, allow_empty: bool = False
) -> SearchStrategy[list[Interval]]:
    """Return a strategy for any intervals in any order: overlapping, nested, touching, repeated."""
    return st.lists(intervals(max_time=max_time, allow_empty=allow_empty), max_size=max_size)


def disjoint_interval_sets(*, max_size: int = 20, max_gap: int = 100) -> SearchStrategy[list[Interval]]:
    """Return a strategy for sorted intervals with a gap between any two, as in a union."""

    def place(steps: list[Interval]) -> list[Interval]:
        result, position = [], 0
        for gap, length in steps:
            result.append((position + gap, position + gap + length))
            position += gap + length
        return result

    lengths = st.tuples(st.integers(1, max_gap), st.integers(1, max_gap))
    return st.lists(lengths, max_size=max_size).map(place)


def clocks() -> SearchStrategy[Clock]:
    return st.builds(Clock, st.integers(-10_000_000, 10_000_000), st.sampled_from((0.0, 0.001, -3.5, 20.0, -100.0)))


def models() -> SearchStrategy[Model]:
    kernels = st.builds(
        Kernel, st.integers(1, 30_000), st.sampled_from((None, (64, 32, 16))), shape=st.sampled_from(((), (64, 8)))
    )
    return st.integers(1, 3).flatmap(
        lambda layers: st.builds(
            Model,
            layers=st.just(layers),
            kernels=st.lists(kernels, min_size=1, max_size=3).map(tuple),
            optimizer_kernels=st.integers(1, 2),
            optimizer_duration=st.integers(1, 20_000),
            gradient_bytes=st.integers(4, 1_000_000).map(lambda half: 2 * half),
            activation_bytes=st.integers(1, 500_000).map(lambda half: 2 * half),
            buckets=st.integers(1, layers),
            fused=st.booleans(),
            foreach=st.booleans(),
            pieces=st.integers(1, 2),
        )
    )


def host_costs() -> SearchStrategy[HostCosts]:
    return st.builds(
        HostCosts,
        dispatch=st.integers(0, 5_000),
        launch_call=st.integers(1, 3_000),
        tail=st.integers(0, 1_000),
        between_ops=st.integers(0, 2_000),
        between_steps=st.integers(0, 2_000),
        launch_latency=st.integers(1, 6_000),
        sync_return=st.integers(1, 3_000),
        jitter=st.sampled_from((0.0, 0.1)),
    )


def losses() -> SearchStrategy[Losses]:
    stall = st.sampled_from((0, 0, 50_000, 400_000))
    return st.builds(
        Losses,
        data=stall,
        copy_bytes=st.sampled_from((0, 1, 1_000_000)),
        memset_bytes=st.sampled_from((0, 1_000_000)),
        sync=st.integers(0, 3),
        pageable=st.booleans(),
        compile=stall,
        alloc=stall,
        python=stall,
        launch_factor=st.integers(1, 4),
    )


def _stragglers(ranks: int) -> SearchStrategy[tuple[Straggler, ...]]:
    straggler = st.builds(
        Straggler, st.integers(0, ranks - 1), st.sampled_from(CAUSES), factor=st.just(1.5), delay=st.just(300_000)
    )
    return st.lists(straggler, max_size=1).map(tuple)


@st.composite
def small_clusters(draw: st.DrawFn, *, lost: bool = False) -> SyntheticCluster:
    """Draw clusters of at most 8 ranks and 3 steps, of every parallelism and with any losses; they take milliseconds to
    generate."""
    tensor, pipeline, data = draw(st.sampled_from(_SHAPES))
    ranks = tensor * pipeline * data
    ranks_per_host = draw(st.integers(1, ranks))
    hosts = -(-ranks // ranks_per_host)
    shares = st.sampled_from((0.0, 0.1, 0.5))
    return SyntheticCluster(
        ranks=ranks,
        ranks_per_host=ranks_per_host,
        steps=draw(st.integers(1, 3)),
        first_step=draw(st.integers(0, 20)),
        model=draw(models()),
        host=draw(host_costs()),
        network=draw(
            st.builds(Network, st.integers(1, 30_000), st.integers(1, 300), jitter=st.sampled_from((0.0, 0.05)))
        ),
        tensor_parallel=tensor,
        pipeline_parallel=pipeline,
        microbatches=draw(st.integers(1, 3)),
        overlap=draw(st.booleans()),
        reduce_always=draw(st.booleans()),
        stacks=draw(st.booleans()),
        annotations=draw(st.booleans()),
        schedule=draw(st.sampled_from(("1f1b", "gpipe"))),
        compute_streams=draw(st.integers(1, 2)),
        kernel_gap=draw(st.sampled_from((0, 700))),
        losses=draw(losses()),
        stragglers=draw(_stragglers(ranks)),
        clocks=draw(st.dictionaries(st.integers(0, hosts - 1), clocks(), max_size=hosts)),
        lost=draw(st.builds(LostRecords, shares, shares, shares)) if lost else LostRecords(),
        seed=draw(st.integers(0, 1_000)),
    )


_SHAPES = ((1, 1, 1), (1, 1, 2), (1, 1, 5), (2, 1, 1), (2, 1, 2), (1, 2, 1), (1, 3, 2), (1, 4, 1), (2, 2, 2))
