"""Synthetic clusters: declare a training job with its faults, get its traces and the truth about them."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from .declaration import Clock, HostCosts, Losses, LostRecords, Model, Network, Straggler
from .kineto import Trace, Traces
from .program import Schedule
from .records import RankRecord, Simulation
from .simulate import simulate
from .topology import Topology, layout
from .truth import StragglerTruth, Truth, collective_truth, lost_records, rank_truth, total_wall


@dataclass(frozen=True)
class Generated:
    """What a cluster did: `traces` as a profiler would have recorded them, and the `truth`."""

    traces: Traces
    truth: Truth


@dataclass(frozen=True)
class SyntheticCluster:
    """A training job on simulated accelerators: the same declaration and seed give the same bytes.

    Ranks are tensor_parallel x data x pipeline_parallel, and what is left over for data is data parallel.
    Steps are numbered from `first_step`, and steps in losses and stragglers use the same numbers.

    >>> from lostflops.testing import Straggler, SyntheticCluster
    >>> run = SyntheticCluster(ranks=4, stragglers=(Straggler(2, "slow_kernels", factor=1.5),)).generate()
    >>> sum(run.truth.lines.values()) == run.truth.wall
    True
    >>> waits = run.truth.ranks[0].late_ranks
    >>> max(waits, key=waits.get)
    2

    Modelled: host and device queues, streams, collectives that wait for all members, stalls of the host. Not
    modelled: see `lostflops.testing.simulate`. With `compute_streams=2` weight gradients run on a stream of their own.
    `kernel_gap` is the time a stream needs between two of its events.
    """

    ranks: int = 8
    ranks_per_host: int = 8
    steps: int = 3
    first_step: int = 10
    model: Model = field(default_factory=Model)
    host: HostCosts = field(default_factory=HostCosts)
    network: Network = field(default_factory=Network)
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    microbatches: int = 1
    schedule: Schedule = "1f1b"
    compute_streams: int = 1
    kernel_gap: int = 0
    noise: float = 0.01
    losses: Losses = field(default_factory=Losses)
    stragglers: tuple[Straggler, ...] = ()
    clocks: Mapping[int, Clock] = field(default_factory=dict)
    lost: LostRecords = field(default_factory=LostRecords)
    record_seq: bool = True
    seed: int = 0

    def __post_init__(self) -> None:
        if min(self.ranks, self.ranks_per_host, self.steps, self.microbatches) < 1:
            raise ValueError("ranks, ranks_per_host, steps and microbatches are at least 1")
        if min(self.tensor_parallel, self.pipeline_parallel) < 1:
            raise ValueError("degrees of parallelism are at least 1")
        if self.ranks % (self.tensor_parallel * self.pipeline_parallel):
            raise ValueError(f"{self.ranks} ranks do not split into {self.tensor_parallel} x {self.pipeline_parallel}")
        if self.schedule not in ("1f1b", "gpipe"):
            raise ValueError(f"unknown schedule {self.schedule!r}; use '1f1b' or 'gpipe'")
        if self.compute_streams not in (1, 2) or self.kernel_gap < 0 or not 0.0 <= self.noise <= 0.2:
            raise ValueError("compute_streams is 1 or 2, kernel_gap not negative, noise between 0 and 0.2")
        if any(not 0 <= straggler.rank < self.ranks for straggler in self.stragglers):
            raise ValueError("a straggler is not a rank of the cluster")
        if any(not 0 <= host < self.hosts for host in self.clocks):
            raise ValueError(f"a clock names a host outside 0..{self.hosts - 1}")

    @property
    def hosts(self) -> int:
        return -(-self.ranks // self.ranks_per_host)

    @cached_property
    def topology(self) -> Topology:
        return layout(self.ranks, self.tensor_parallel, self.pipeline_parallel)

    def host_of(self, rank: int) -> int:
        return rank // self.ranks_per_host

    def clock_of(self, host: int) -> Clock:
        return self.clocks.get(host, Clock())

    def generate(self) -> Generated:
        simulation = simulate(self)
        for record in simulation.records:
            _lose(record, self.lost, self.seed)
        return Generated(Traces(tuple(self._trace(record) for record in simulation.records)), self._truth(simulation))

    def _trace(self, record: RankRecord) -> Trace:
        return Trace(
            record,
            self.clock_of(self.host_of(record.rank)),
            self.topology.groups_of(record.rank),
            self.ranks,
            device=record.rank % self.ranks_per_host,
            devices=min(self.ranks_per_host, self.ranks),
            record_seq=self.record_seq,
        )

    def _truth(self, simulation: Simulation) -> Truth:
        ranks = tuple(rank_truth(record, self) for record in simulation.records)
        collectives = sorted(simulation.collectives, key=lambda c: (int(c.group.name), c.members, c.ordinal))
        wall = sum(rank.wall for rank in ranks)
        waits = [rank.late_ranks for rank in ranks]
        return Truth(
            ranks,
            tuple(collective_truth(collective) for collective in collectives),
            tuple(
                StragglerTruth(
                    straggler.rank,
                    straggler.cause,
                    straggler.steps,
                    cost=wall - self._wall_without(straggler),
                    charged=sum(wait.get(straggler.rank, 0) for wait in waits),
                )
                for straggler in self.stragglers
            ),
            {host: self.clock_of(host) for host in range(self.hosts)},
            tuple(lost for record in simulation.records for lost in lost_records(record)),
        )

    def _wall_without(self, straggler: Straggler) -> int:
        others = tuple(other for other in self.stragglers if other is not straggler)
        return total_wall(simulate(replace(self, stragglers=others)))


def _lose(record: RankRecord, lost: LostRecords, seed: int) -> None:
    """Mark what the written trace will miss."""
    events = record.device_events
    draws = np.random.default_rng([seed, record.rank, 1]).random((3, len(events)))
    no_metadata = set()
    for event, kernel, launch, metadata in zip(events, *draws.tolist(), strict=True):
        event.lost = kernel < lost.kernels
        event.launch.lost = launch < lost.launches
        if event.collective is not None and metadata < lost.metadata:
            event.metadata_lost = True
            no_metadata.add(event.launch.external_id)
    for host_event in record.host_events:
        if host_event.collective is not None and host_event.external_id in no_metadata:
            host_event.lost = True
