"""A training job on a cluster, as declared: nothing here simulates."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from .declaration import Clock, HostCosts, Losses, LostRecords, Model, Network, Straggler
from .topology import Topology, layout

Schedule = Literal["1f1b", "gpipe"]


@dataclass(frozen=True)
class SyntheticJob:
    """Ranks, model, costs and faults of a job; `SyntheticCluster` runs it."""

    ranks: int = 8
    """Number of ranks: tensor_parallel x data parallel x pipeline_parallel."""
    ranks_per_host: int = 8
    steps: int = 3
    first_step: int = 10
    """Number of the first step; steps in losses and stragglers use the same numbers."""
    model: Model = field(default_factory=Model)
    host: HostCosts = field(default_factory=HostCosts)
    network: Network = field(default_factory=Network)
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    microbatches: int = 1
    schedule: Schedule = "1f1b"
    compute_streams: int = 1
    """With 2, weight gradients run on a stream of their own."""
    comm_streams: int = 1
    """Number of streams that reduce gradients."""
    sharding: int = 0
    """Stage of ZeRO; at stage 3 units, which are buckets, are gathered."""
    prefetch: int = 1
    """Number of units that are gathered ahead."""
    synchronous: bool = True
    """If false, a rank reduces gradients without waiting for others."""
    kernel_gap: int = 0
    """Time that a stream needs between two of its events, in ns."""
    noise: float = 0.01
    recompute: bool = False
    """Forward ops of each layer run again before its backward ops."""
    stage_layers: tuple[int, ...] = ()
    """Number of layers of each stage; if empty, all have as many as the model."""
    overlap: bool = True
    """If false, the main thread reduces gradients after the backward pass."""
    reduce_always: bool = False
    """Reduce gradients in the backward pass of each microbatch, not only of the last."""
    stacks: bool = False
    """Record Python functions."""
    annotations: bool = False
    """Record the annotations that PyTorch itself writes around passes."""
    memory: bool = False
    """Record allocations."""
    losses: Losses = field(default_factory=Losses)
    stragglers: tuple[Straggler, ...] = ()
    clocks: Mapping[int, Clock] = field(default_factory=dict)
    lost: LostRecords = field(default_factory=LostRecords)
    record_seq: bool = True
    seed: int = 0

    def __post_init__(self) -> None:
        if min(self.ranks, self.ranks_per_host, self.steps, self.microbatches) < 1:
            raise ValueError("ranks, ranks_per_host, steps and microbatches must be at least 1")
        if min(self.tensor_parallel, self.pipeline_parallel) < 1:
            raise ValueError("degrees of parallelism must be at least 1")
        if self.ranks % (self.tensor_parallel * self.pipeline_parallel):
            raise ValueError(f"{self.ranks} ranks do not split into {self.tensor_parallel} x {self.pipeline_parallel}")
        if self.schedule not in ("1f1b", "gpipe"):
            raise ValueError(f"unknown schedule {self.schedule!r}; use '1f1b' or 'gpipe'")
        if self.compute_streams not in (1, 2) or self.kernel_gap < 0 or not 0.0 <= self.noise <= 0.2:
            raise ValueError("compute_streams must be 1 or 2, kernel_gap not negative, noise between 0 and 0.2")
        if self.comm_streams < 1 or self.prefetch < 0 or self.sharding not in (0, 1, 2, 3):
            raise ValueError("comm_streams must be at least 1, prefetch not negative, sharding 0 to 3")
        if any(not 0 <= straggler.rank < self.ranks for straggler in self.stragglers):
            raise ValueError("a straggler is not a rank of the cluster")
        if self.stage_layers and (len(self.stage_layers) != self.pipeline_parallel or min(self.stage_layers) < 1):
            raise ValueError("stage_layers needs a positive number for each stage")
        if any(not 0 <= host < self.hosts for host in self.clocks):
            raise ValueError(f"a clock names a host outside 0..{self.hosts - 1}")

    @property
    def hosts(self) -> int:
        return -(-self.ranks // self.ranks_per_host)

    @cached_property
    def topology(self) -> Topology:
        return layout(self.ranks, self.tensor_parallel, self.pipeline_parallel)

    def layers_of(self, rank: int) -> range:
        """Return the layers of a rank's stage."""
        stages = self.stage_layers or (self.model.layers,) * self.pipeline_parallel
        stage = self.topology.places[rank].stage
        first = sum(stages[:stage])
        return range(first, first + stages[stage])

    def host_of(self, rank: int) -> int:
        return rank // self.ranks_per_host

    def clock_of(self, host: int) -> Clock:
        return self.clocks.get(host, Clock())
