"""Match the calls of a group's members to the collective that they share."""

from math import exp

import numpy as np

from .job import SyntheticJob
from .records import CollectiveOp, SyntheticCollective
from .topology import ProcessGroup


class SyntheticMeetings:
    """Collectives in which members meet by counting their calls, as in NCCL: nothing else identifies the collective."""

    def __init__(self, cluster: SyntheticJob) -> None:
        self._cluster = cluster
        self._open: dict[tuple[str, tuple[int, ...], int], SyntheticCollective] = {}
        self._ordinals: dict[tuple[int, str, tuple[int, ...]], int] = {}
        self._seqs: dict[tuple[int, str], int] = {}
        self._last: dict[str, SyntheticCollective] = {}
        self.all: list[SyntheticCollective] = []

    def join(
        self, rank: int, group: ProcessGroup, op: CollectiveOp, size: int, members: tuple[int, ...]
    ) -> SyntheticCollective:
        ordinal = self._ordinals.get((rank, group.name, members), 0)
        self._ordinals[rank, group.name, members] = ordinal + 1
        collective = self._open.get((group.name, members, ordinal))
        if collective is None:
            sharers = members if op == "send_recv" else group.ranks
            collective = SyntheticCollective(group, op, size, members, ordinal, 0)
            collective.duration = self._duration(collective, sharers)
            self._open[group.name, members, ordinal] = collective
            if self._cluster.comm_streams > 1:
                collective.before = self._last.get(group.name)
                collective.busy = max(0, collective.duration - self._cluster.network.latency(self._across(sharers)))
                self._last[group.name] = collective
            self.all.append(collective)
        assert (collective.op, collective.bytes) == (op, size), "members disagree on their collective"
        # As in ProcessGroupNCCL: the number counts this rank's calls, so the two ends of a send/recv may differ.
        seq = self._seqs.get((rank, group.name), 0) + 1
        self._seqs[rank, group.name] = collective.seqs[rank] = seq
        return collective

    def _duration(self, collective: SyntheticCollective, members: tuple[int, ...]) -> int:
        duration, jitter = self._plan_duration(collective.op, collective.bytes, members), self._cluster.network.jitter
        if not jitter:
            return duration
        # Drawn for each collective by itself, whoever comes first.
        identity = (int(collective.group.name), collective.ordinal, *members)
        draw = np.random.default_rng([self._cluster.seed, 3, *identity]).standard_normal()
        return max(1, round(duration * exp(jitter * draw)))

    def _plan_duration(self, op: CollectiveOp, size: int, members: tuple[int, ...]) -> int:
        across_hosts = self._across(members)
        if op in {"all_gather", "reduce_scatter"}:
            return self._cluster.network.gather(size, len(members), across_hosts)
        if op == "send_recv":
            return self._cluster.network.send(size, across_hosts)
        return self._cluster.network.all_reduce(size, len(members), across_hosts)

    def _across(self, members: tuple[int, ...]) -> bool:
        return len({self._cluster.host_of(rank) for rank in members}) > 1
