"""Costs that are a latency and a rate, and jobs by hand that exchange gradients."""

from __future__ import annotations

from dataclasses import dataclass

from lostflops.predict.costs.times import CollectiveTime
from lostflops.predict.graph.replay import replay
from lostflops.predict.whatif.change import Facts


@dataclass(frozen=True)
class Linear:
    """T = alpha + share * size / gbs, whatever the operation; `share` as a ring has it."""

    alpha: float
    gbs: float
    inter_alpha: float | None = None
    inter_gbs: float | None = None

    def time(self, op, size, group, algorithm=None):
        far = group.hosts > 1
        alpha = self.inter_alpha if far and self.inter_alpha is not None else self.alpha
        gbs = self.inter_gbs if far and self.inter_gbs is not None else self.gbs
        n = group.ranks
        share = {"all_reduce": 2 * (n - 1) / n, "send_recv": 1.0, "broadcast": 1.0}.get(op, (n - 1) / n)
        ns = alpha + share * size / gbs
        return CollectiveTime(ns=ns, low=ns, high=ns, algorithm="ring", source="a line")


def of_network(network):
    """The costs of a synthetic cluster."""
    return Linear(network.alpha, network.gbs, network.inter_alpha, network.inter_gbs)


def facts(alpha=0.0, gbs=1.0, **more):
    return Facts(times=Linear(alpha, gbs), **more)


def mean_step(graph):
    return replay(graph).mean_step
