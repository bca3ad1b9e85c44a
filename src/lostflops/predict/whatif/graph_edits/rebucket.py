"""Gradients in other buckets: reductions of a step cut at other sizes, each when its last gradient is ready.

DDP fills buckets in the order in which gradients become ready, and closes one when it holds its size or more. If the
parameters are known, buckets are cut between them; else anywhere.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from lostflops.core.errors import AlreadySo, NotApplicable
from lostflops.core.units import format_bytes
from lostflops.predict.graph.replay import Schedule
from lostflops.predict.graph.tasks import TaskGraph
from lostflops.predict.whatif.change import Edited, Facts
from lostflops.predict.whatif.graph_edits.checked_replay import replay_or_refuse
from lostflops.predict.whatif.graph_edits.recut import Plan, recut
from lostflops.predict.whatif.graph_edits.reductions import (
    Round,
    calls,
    reductions,
    rounds,
    select_collectives,
    select_sized_collectives,
)
from lostflops.predict.whatif.graph_edits.transfers import TimedTransfers, apart

Rows = npt.NDArray[np.int64]
MIB = 1024 * 1024
_MOST_BUCKETS = 10_000
_UNORDERED = "gradients became ready in a different order on each lane, so buckets cannot be cut differently"
_SAME = 0.02
"""Part by which the bytes of parameters and of reductions may differ and still count as the same."""


def rebucket_gradients(graph: TaskGraph, facts: Facts, limits: Callable[[Rows], tuple[float, float]]) -> Edited:
    """Reduce gradients in other buckets. `limits` gives the sizes of the first bucket and of the others from the
    recorded sizes of a round."""
    reduced = reductions(graph) & select_collectives(graph, "all_reduce")
    if not reduced.any():
        raise NotApplicable("gradients are reduce-scattered, not reduced in DDP buckets")
    found = rounds(graph, select_sized_collectives(graph, reduced))
    if not found:
        raise NotApplicable("ranks do not agree on the reductions of a step: record all ranks of the same steps")
    transfers = TimedTransfers.of(graph, facts)
    plans = [_plan(graph, one, facts, limits) for one in found]
    if all(plan.same for plan in plans):
        raise AlreadySo("the buckets stay the same: the gradients of a step fill the same number of buckets")
    done = replay_or_refuse(recut(graph, plans, transfers), _UNORDERED)
    before, after = (np.mean([getattr(plan, what).size for plan in plans]) for what in ("old", "new"))
    known = all(plan.known for plan in plans)
    notes = (
        f"{before:.3g} reductions per step become {after:.3g}.",
        transfers.note,
        "Buckets are cut between parameters." if known else "Parameters are unknown: buckets are cut at exact sizes.",
        "Between recorded buckets, gradients are assumed to become ready evenly as backward proceeds.",
    )
    extra = {"reductions_before": float(before), "reductions": float(after)}
    return Edited(
        graph=done.graph,
        schedule=done,
        doubt=0.1 if known else 0.25,
        notes=notes,
        extra=extra,
        off=_off(graph, done, transfers),
    )


def _off(graph: TaskGraph, done: Schedule, transfers: TimedTransfers) -> float:
    """Estimate from the intervals of transfers of sizes that were not recorded how many ns they may move the step."""
    changed = done.graph
    fresh = select_collectives(changed, "all_reduce") & ~np.isin(changed.meetings.size, graph.meetings.size)
    rows, kinds, which = calls(changed, fresh & (changed.meetings.size > 0))
    if not rows.size:
        return 0.0
    told = [transfers.time(*kind) for kind in kinds]
    factors = np.ones((2, len(changed.meetings)))
    factors[:, rows] = np.array([(one.low, one.high) / np.maximum(one.ns, 1e-9) for one in told]).T[:, which]
    return apart(done, *factors)


def _plan(graph: TaskGraph, one: Round, facts: Facts, limits: Callable[[Rows], tuple[float, float]]) -> Plan:
    sizes = graph.meetings.size[one.meetings]
    old = np.cumsum(sizes)
    gradients = gradients_of(facts, int(old[-1]))
    first, others = limits(sizes)
    if old[-1] > _MOST_BUCKETS * others:
        raise NotApplicable(f"buckets of {format_bytes(int(others))} would be more than {_MOST_BUCKETS:,} per step")
    new = (
        cut_between_parameters(gradients, first, others)
        if gradients.size
        else cut_anywhere(int(old[-1]), first, others)
    )
    return Plan(one, old, new, bool(gradients.size))


def gradients_of(facts: Facts, whole: int) -> Rows:
    """Return the sizes of gradients in the order in which they become ready; empty if the known parameters are not the
    reduced ones. Sizes are in reduced bytes, which differ from parameter bytes if gradients have another dtype."""
    rows = list(reversed(facts.parameters))
    if any(bucket is not None for *_, bucket in rows):
        rows = sorted((row for row in rows if row[2] is not None), key=lambda row: row[2] or 0)
    sizes = np.array([size for _, size, _ in rows], np.int64)
    total = int(sizes.sum())
    for scale in (1.0, 0.5, 2.0):
        if total and abs(total * scale / whole - 1) < _SAME:
            ends = np.round(np.cumsum(sizes) * (whole / total)).astype(np.int64)
            return ends - np.concatenate(([0], ends[:-1]))
    return np.empty(0, np.int64)


def cut_between_parameters(gradients: Rows, first: float, others: float) -> Rows:
    """Return the ends of buckets that close when they hold their size or more.

    >>> cut_between_parameters(np.array([4, 4, 4, 4, 4]), 3, 8).tolist()
    [4, 12, 20]
    """
    ends, begin, limit = list[int](), 0, first
    for end in np.cumsum(gradients).tolist():
        if end - begin >= limit:
            ends.append(end)
            begin, limit = end, others
    whole = int(gradients.sum())
    return np.array(ends if ends and ends[-1] == whole else [*ends, whole], np.int64)


def cut_anywhere(whole: int, first: float, others: float) -> Rows:
    """Return the ends of buckets of exactly these sizes.

    >>> cut_anywhere(20, 3, 8).tolist()
    [3, 11, 19, 20]
    """
    ends = np.concatenate(([first], np.arange(first + others, whole + others, others)))
    return np.unique(np.minimum(np.round(ends).astype(np.int64), whole))
