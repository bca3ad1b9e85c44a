"""Random clusters by number, healthy or with one straggler that costs at least a twentieth of the step.

It is also seen in the rank's own ledger: beside ranks that do the same work, the lines of its cause exceed by a
twentieth of the window, and no other line by more. Else there is nothing to find. A rank's window opens with its first
device event, so that a host which is late once, and ahead of its device ever after, shows nothing; and an allocation
that empties the device may bring to light more of what all suffer.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from statistics import median
from typing import Literal

from lostflops.testing import (
    CAUSES,
    Cause,
    Clock,
    HostCosts,
    Kernel,
    Losses,
    LostRecords,
    Model,
    Network,
    Straggler,
    SyntheticCluster,
)
from lostflops.testing.ledger import LINES, segments
from lostflops.testing.records import Simulation
from lostflops.testing.simulate import simulate
from lostflops.testing.truth import total_wall
from tests.integration.trial_checks import EXPECTED

Health = Literal["sick", "healthy"]
Shape = Literal["dp", "tp x dp", "pp x dp"]
SHAPES: tuple[Shape, ...] = ("dp", "tp x dp", "pp x dp")
TRIED = tuple(cause for cause in CAUSES if cause != "larger_batch")
"""More work is tried in the form of more kernels."""

LEAST_EFFECT, MOST_EFFECT = 0.05, 0.4
MOST_STRENGTH = 4.0
MOST_RANKS = 256
MOST_PEERS = 15
MOST_EVENTS, MOST_EVENTS_OF_RANK = 80_000, 4_000
SECOND = 1_000_000_000


@dataclass(frozen=True)
class Trial:
    """A cluster to be judged. `effect` is what its straggler costs, as a part of the healthy wall."""

    name: str
    shape: Shape
    cluster: SyntheticCluster
    host_names: bool
    effect: float = 0.0

    @property
    def straggler(self) -> Straggler | None:
        return self.cluster.stragglers[0] if self.cluster.stragglers else None

    @property
    def loses_records(self) -> bool:
        return self.cluster.lost != LostRecords()


def make_trial(health: Health, number: int, seed: int = 0, most_ranks: int = MOST_RANKS) -> Trial:
    """The same arguments give the same trial, whatever else was drawn before."""
    name = f"{seed}/{health}/{number}"
    draw = random.Random(f"{name}/{most_ranks}")
    shape = draw.choice(SHAPES)
    cluster = _cluster(draw, shape, most_ranks)
    host_names = draw.random() < 0.5
    if health == "healthy":
        return Trial(name, shape, cluster, host_names)
    sick, effect = _with_straggler(draw, cluster)
    return Trial(name, shape, sick, host_names, effect)


def _log_uniform(draw: random.Random, low: float, high: float) -> float:
    return math.exp(draw.uniform(math.log(low), math.log(high)))


def _cluster(draw: random.Random, shape: Shape, most_ranks: int) -> SyntheticCluster:
    # Two ranks at least do the same work: without a peer, a slow stage cannot be told from a large one.
    model_parallel = 1 if shape == "dp" else draw.choice([size for size in (2, 4, 8) if 2 * size <= most_ranks])
    replicas = max(2, round(_log_uniform(draw, 2, most_ranks + 0.5)) // model_parallel)
    tensor, pipeline = (model_parallel if shape == name else 1 for name in SHAPES[1:])
    cluster = SyntheticCluster(
        ranks=replicas * model_parallel,
        ranks_per_host=draw.choice((1, 2, 4, 8)),
        steps=draw.randint(3, 6),
        first_step=draw.randint(0, 50),
        model=Model(layers=draw.randint(2, 12), kernels=_kernels(draw), optimizer_kernels=draw.randint(1, 3)),
        host=_host(draw),
        network=_network(draw),
        tensor_parallel=tensor,
        pipeline_parallel=pipeline,
        microbatches=draw.randint(2, 8) if pipeline > 1 else 1,
        schedule=draw.choice(("1f1b", "gpipe")),
        compute_streams=2 if draw.random() < 0.2 else 1,
        kernel_gap=draw.choice((0, 700)),
        noise=draw.uniform(0, 0.03),
        lost=_lost(draw),
        record_seq=draw.random() < 0.5,
        seed=draw.getrandbits(32),
    )
    cluster = _with_communication(draw, _bounded(cluster))
    return replace(cluster, losses=_losses(draw, cluster), clocks=dict(_clocks(draw, cluster.hosts)))


def _kernels(draw: random.Random) -> tuple[Kernel, ...]:
    matmuls = [Kernel(round(_log_uniform(draw, 20_000, 300_000)), (1024, 512, 512)) for _ in range(draw.randint(1, 3))]
    return (*matmuls, Kernel(round(_log_uniform(draw, 6_000, 30_000))))


def _host(draw: random.Random) -> HostCosts:
    """One in five is so slow that short kernels wait for their launch."""
    slower = draw.uniform(3, 6) if draw.random() < 0.2 else 1
    return HostCosts(
        dispatch=round(slower * draw.uniform(1_000, 4_000)),
        launch_call=round(slower * draw.uniform(1_000, 3_000)),
        tail=draw.randint(200, 1_000),
        between_ops=draw.randint(0, 2_000),
        between_steps=draw.randint(500, 20_000),
        launch_latency=draw.randint(2_000, 6_000),
        sync_return=draw.randint(1_000, 4_000),
    )


def _network(draw: random.Random) -> Network:
    return Network(
        alpha=draw.randint(5_000, 15_000),
        gbs=draw.randint(50, 400),
        inter_alpha=draw.randint(15_000, 40_000),
        inter_gbs=draw.randint(12, 50),
    )


def _lost(draw: random.Random) -> LostRecords:
    return LostRecords(*(draw.uniform(0, 0.03) for _ in range(3))) if draw.random() < 0.5 else LostRecords()


def _losses(draw: random.Random, cluster: SyntheticCluster) -> Losses:
    """What all ranks suffer alike."""
    if draw.random() < 0.6:
        return Losses()
    compute = _compute(cluster)
    data, python = (round(compute * draw.uniform(0.02, 0.3)) if draw.random() < 0.5 else 0 for _ in range(2))
    return Losses(sync=draw.random() < 0.5, data=data, python=python)


def _clocks(draw: random.Random, hosts: int) -> Iterator[tuple[int, Clock]]:
    for host in range(hosts):
        yield host, Clock(draw.randint(-SECOND, SECOND), draw.uniform(-50, 50))


def _bounded(cluster: SyntheticCluster) -> SyntheticCluster:
    """Fewer layers, steps, microbatches and kernels, in this order, until the cluster is small enough."""
    while _events(cluster) > min(MOST_EVENTS, MOST_EVENTS_OF_RANK * cluster.ranks):
        model = cluster.model
        if model.layers > 2:
            cluster = replace(cluster, model=replace(model, layers=model.layers - 1))
        elif cluster.steps > 3:
            cluster = replace(cluster, steps=cluster.steps - 1)
        elif cluster.microbatches > 2:
            cluster = replace(cluster, microbatches=cluster.microbatches - 1)
        else:
            cluster = replace(cluster, model=replace(model, kernels=model.kernels[-2:]))
            break
    return cluster


def _events(cluster: SyntheticCluster) -> int:
    """About how many records a cluster's traces hold: 7 a forward kernel, 8 or 14 its backward, 5 a collective."""
    model = cluster.model
    of_layer = sum(21 if kernel.dims else 15 for kernel in model.kernels) + 12 * (cluster.tensor_parallel > 1)
    of_batch = model.layers * of_layer + 24 * (cluster.pipeline_parallel > 1)
    return cluster.ranks * cluster.steps * (cluster.microbatches * of_batch + 6 * model.buckets + 20)


def _compute(cluster: SyntheticCluster) -> int:
    """What the kernels of the layers take in a step."""
    of_layer = sum(kernel.duration * (3 if kernel.dims else 2) for kernel in cluster.model.kernels)
    return cluster.microbatches * cluster.model.layers * of_layer


def _with_communication(draw: random.Random, cluster: SyntheticCluster) -> SyntheticCluster:
    """Sizes such that the collectives of a step take 5 to 40% as long as its kernels; latency at most half of it."""
    model = replace(cluster.model, buckets=draw.randint(1, min(4, cluster.model.layers)))
    share, batches = draw.uniform(0.05, 0.4), cluster.microbatches
    compute = _compute(cluster)
    place = cluster.topology.places[0]
    calls = {"data": model.buckets, "tensor": 2 * model.layers * batches, "pipeline": 2 * batches}
    groups = {name: group.ranks for name in calls if (group := getattr(place, name)) is not None}
    across = {name: len({cluster.host_of(rank) for rank in ranks}) > 1 for name, ranks in groups.items()}
    network = cluster.network
    alpha = {name: network.inter_alpha if across[name] else network.alpha for name in groups}
    latency = sum(calls[name] * alpha[name] for name in groups)
    longer = max(1.0, 2 * latency / (share * compute))
    model = replace(model, kernels=tuple(replace(k, duration=round(k.duration * longer)) for k in model.kernels))
    left = share * compute * longer - latency

    def size(name: str) -> int:
        """Bytes of one call, when every dimension of the mesh takes the same time."""
        ring = 1 if name == "pipeline" else 2 * (len(groups[name]) - 1) / len(groups[name])
        gbs = network.inter_gbs if across[name] else network.gbs
        return 2 * max(1, round(left / len(groups) / calls[name] * gbs / ring / 2))

    # A bucket holds the gradients of layers / buckets layers.
    gradients = 2 * max(1, round(size("data") * model.buckets / model.layers / 2))
    inner = next((name for name in ("tensor", "pipeline") if name in groups), None)
    activations = size(inner) if inner else model.activation_bytes
    return replace(cluster, model=replace(model, gradient_bytes=gradients, activation_bytes=activations))


def _with_straggler(draw: random.Random, healthy: SyntheticCluster) -> tuple[SyntheticCluster, float]:
    """One cause on one rank, or another where that one stays hidden: a stall right after a sync is on `idle.sync`."""
    wanted = _log_uniform(draw, LEAST_EFFECT, MOST_EFFECT)
    wall = total_wall(simulate(healthy))
    while True:
        found = _strengthened(healthy, draw.randrange(healthy.ranks), draw.choice(TRIED), wanted, wall)
        if found is not None:
            return found


def _strengthened(
    healthy: SyntheticCluster, rank: int, cause: Cause, wanted: float, wall: int
) -> tuple[SyntheticCluster, float] | None:
    """As strong as it takes to cost what was drawn, for queued work hides short stalls.

    The cost is what `StragglerTruth` holds, as a part of the healthy wall.
    """
    step = wall / (healthy.ranks * healthy.steps)
    strength = wanted
    while strength < MOST_STRENGTH:
        sick = replace(healthy, stragglers=(_straggler(rank, cause, strength, step),))
        simulation = simulate(sick)
        effect = total_wall(simulation) / wall - 1
        if effect >= wanted and is_seen(sick, simulation):
            return sick, effect
        strength = max(strength + 1.05 * (wanted - effect), 1.25 * strength)
    return None


def is_seen(cluster: SyntheticCluster, simulation: Simulation) -> bool:
    """Whether the straggler's own ledger shows its cause, beside some of its data-parallel peers."""
    (straggler,) = cluster.stragglers
    group = cluster.topology.places[straggler.rank].data
    assert group is not None, "a straggler needs somebody to be compared with"
    peers = [_own_lines(simulation, rank) for rank in group.ranks if rank != straggler.rank][:MOST_PEERS]
    own = _own_lines(simulation, straggler.rank)
    excess = {line: own[line] - median(peer[line] for peer in peers) for line in LINES if not line.startswith("comm.")}
    of_cause = sum(excess.pop(line) for line in EXPECTED[straggler.cause][0])
    return of_cause >= LEAST_EFFECT * own.total() and of_cause > max(excess.values())


def _own_lines(simulation: Simulation, rank: int) -> Counter[str]:
    lines: Counter[str] = Counter()
    for segment in segments(simulation.records[rank]):
        lines[segment.line] += segment.stop - segment.start
    return lines


def _straggler(rank: int, cause: Cause, strength: float, step: float) -> Straggler:
    """`strength` is what the cause adds, as a part of the healthy step or of the rank's own kernels."""
    if cause in ("slow_kernels", "more_work"):
        return Straggler(rank, cause, factor=1 + strength)
    return Straggler(rank, cause, delay=round(strength * step))
