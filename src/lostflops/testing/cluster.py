"""Synthetic clusters: declare a training job with its faults, get its traces and the truth about them."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

import numpy as np

from .allocations import Allocator, allocations
from .declaration import LostRecords, Straggler
from .job import SyntheticJob
from .kineto import Trace, Traces
from .records import RankRecord, Simulation
from .simulate import simulate
from .truth import StragglerTruth, Truth, collective_truth, lost_records, rank_truth, total_wall


@dataclass(frozen=True)
class Generated:
    """Result of a cluster."""

    traces: Traces
    """Traces as a profiler would have recorded them."""
    find_truth: Callable[[], Truth] = field(repr=False)
    """Compute the truth, which is done when it is first asked for."""

    @cached_property
    def truth(self) -> Truth:
        return self.find_truth()


@dataclass(frozen=True)
class SyntheticCluster(SyntheticJob):
    """A training job on simulated accelerators: the same declaration and seed give the same bytes.

    The ranks that tensor_parallel x pipeline_parallel leave over are data parallel.

    >>> from lostflops.testing import Straggler, SyntheticCluster
    >>> run = SyntheticCluster(ranks=4, stragglers=(Straggler(2, "slow_kernels", factor=1.5),)).generate()
    >>> sum(run.truth.lines.values()) == run.truth.wall
    True
    >>> waits = run.truth.ranks[0].late_ranks
    >>> max(waits, key=waits.get)
    2

    Modelled: host and device queues, streams, collectives that wait for all members, stalls of the host. Not
    modelled: see `lostflops.testing.simulate`.
    """

    def generate(self) -> Generated:
        simulation = simulate(self)
        for record in simulation.records:
            _lose(record, self.lost, self.seed)
        traces = Traces(tuple(self._trace(record) for record in simulation.records))
        return Generated(traces, partial(self._truth, simulation))

    def _trace(self, record: RankRecord) -> Trace:
        host = self.host_of(record.rank)
        return Trace(
            record,
            self.clock_of(host),
            self.topology.groups_of(record.rank),
            self.ranks,
            host=host,
            device=record.rank % self.ranks_per_host,
            devices=min(self.ranks_per_host, self.ranks),
            record_seq=self.record_seq,
            allocated=tuple(self.allocations_of(record).changes) if self.memory else (),
        )

    def allocations_of(self, record: RankRecord) -> Allocator:
        if self.recompute or not self.model.fused:
            raise ValueError("memory is simulated only without recomputation and with a fused optimizer")
        return allocations(record, self.model, self.layers_of(record.rank))

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
    """Mark the records that the written trace will lack."""
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
