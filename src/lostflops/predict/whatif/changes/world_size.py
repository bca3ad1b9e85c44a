"""What if the job had another number of ranks, each with the same work?

Replicas are added or removed: transfers of groups that span replicas are re-timed, all else stays. With more ranks the
last one arrives later, which the recorded ranks cannot show: this is estimated separately and widens the interval.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from lostflops.account.memory.owners import Owner
from lostflops.core.errors import NotApplicable, UnknownCost, UsageError
from lostflops.core.units import format_ns
from lostflops.predict.costs.times import OPS, CommGroup
from lostflops.predict.graph.editing import retime_graph
from lostflops.predict.graph.tasks import TaskKind
from lostflops.predict.scaling.growth import Growing
from lostflops.predict.whatif.change import Change, Edited, Facts, Remembered
from lostflops.predict.whatif.graph_edits.reductions import calls
from lostflops.predict.whatif.graph_edits.transfers import TimedTransfers
from lostflops.predict.whatif.graph_edits.values import count
from lostflops.predict.whatif.memory_edits.editing import scale_blocks, select_owned_blocks
from lostflops.predict.whatif.memory_edits.gradient_lifetimes import select_final_gradients
from lostflops.predict.whatif.memory_edits.sharded_parameters import doubt_of
from lostflops.predict.whatif.memory_edits.sharding import (
    fullest,
    is_partitioned,
    is_sharded,
    one_by_one,
    replicas,
    require_trained_parameters,
    shards,
    with_states,
)

if TYPE_CHECKING:
    from lostflops.account.memory.blocks import RankMemory
    from lostflops.predict.graph.tasks import Flags, TaskGraph
    from lostflops.predict.whatif.change import HeldParameter
    from lostflops.predict.whatif.graph_edits.reductions import ReductionCall

_NEAR: Final = "The run was on one host and no network is known: all ranks are assumed to be on that host."


def _apply(graph: TaskGraph, value: str, facts: Facts) -> Edited:
    ranks = count(value, "world_size")
    grown = _groups(graph, ranks, facts)
    transfers = TimedTransfers.of(graph, facts)
    chosen = np.isin(graph.meetings.group, list(grown)) & (graph.meetings.size > 0)
    transfer = graph.meetings.transfer.copy()
    rows, kinds, which = calls(graph, chosen & _select_known_ops(graph))
    groups = graph.meetings.group[rows]
    near = False
    for group, then in grown.items():
        for number, kind in enumerate(kinds):
            own = rows[(groups == group) & (which == number)]
            if own.size:
                wanted, same_host = _estimate_collective_time(transfers, kind, then)
                near |= same_host
                transfer[own] = np.round(transfer[own] * (wanted / max(transfers.ns(*kind), 1e-9)))
    if not rows.size:
        raise NotApplicable("the groups that grow have no collective with a known operation and size")
    later = _later(graph, ranks)
    doubt = max(transfers.doubt, 0.5 if near else 0.1)
    notes = (*_notes(graph, ranks, transfers, later), *((_NEAR,) if near else ()))
    changed = _resize_groups(retime_graph(graph, transfer=transfer), grown)
    return Edited(
        graph=changed, doubt=doubt, notes=notes, extra={"later_ns": round(later)}, facts=_facts(facts, ranks), off=later
    )


def _facts(facts: Facts, ranks: int) -> Facts:
    """Return the facts for later changes: as many ranks hold the parameters as there then are."""
    arranged = facts.layout
    then = None if arranged is None else ranks // arranged.replica
    return replace(facts, layout=None, replicas=then)


def _resize_groups(graph: TaskGraph, groups: dict[int, CommGroup]) -> TaskGraph:
    """Give groups their new numbers of ranks and hosts."""
    ranks, hosts = graph.meetings.ranks.copy(), graph.meetings.hosts.copy()
    for group, then in groups.items():
        own = graph.meetings.group == group
        ranks[own], hosts[own] = then.ranks, then.hosts
    return replace(graph, meetings=replace(graph.meetings, ranks=ranks, hosts=hosts))


def _estimate_collective_time(transfers: TimedTransfers, kind: ReductionCall, then: CommGroup) -> tuple[float, bool]:
    """Return the time of a collective in the new group, and whether all ranks were assumed to be on one host: that is
    done if the run was on one host and no network is known."""
    if then.ranks == 1:
        return 0.0, False
    try:
        return transfers.ns(kind.op, kind.size, then.ranks, then.hosts), False
    except NotApplicable:
        if kind.hosts > 1:
            raise
        return transfers.ns(kind.op, kind.size, then.ranks, 1), True


def _select_known_ops(graph: TaskGraph) -> Flags:
    named = np.array([word in OPS for word in graph.words] or [False])
    return np.asarray(named[graph.meetings.op], np.bool_)


def _groups(graph: TaskGraph, ranks: int, facts: Facts) -> dict[int, CommGroup]:
    """Return the new group of each group that grows: by the layout or, if that is unknown, the groups that hold all
    ranks."""
    words = {int(group): graph.words[group] for group in np.unique(graph.meetings.group).tolist()}
    if facts.layout is not None:
        facts.layout.check(ranks)
        if ranks == facts.layout.world:
            raise UsageError(f"the run already has {ranks} ranks: give another number")
        grows = Growing(facts.layout)
        found = {group: facts.layout.at(word, ranks) for group, word in words.items() if grows(word)}
    else:
        found, world = {}, len(graph.ranks)
        if ranks == world:
            raise UsageError(f"the run already has {ranks} ranks: give another number")
        for group in words:
            own = graph.meetings.group == group
            if bool((graph.meetings.ranks[own] == world).all()) and world > 1:
                each = -(-world // max(int(graph.meetings.hosts[own].max()), 1))
                found[group] = CommGroup(ranks, -(-ranks // each))
    if not found:
        raise NotApplicable(
            "no group spans the replicas of the job, or the layout of the ranks was not recorded: the communication of "
            "more replicas is unknown"
        )
    return found


def _later(graph: TaskGraph, ranks: int) -> float:
    """Return by how many ns the latest of `ranks` ranks comes after the latest of those recorded, in each step. Ranks'
    own times vary around the mean of the rank and of the step, and the largest of n normal deviates is about sqrt(2 ln
    n)."""
    tasks, steps = graph.tasks, graph.steps
    busy = np.flatnonzero(np.isin(tasks.kind, (TaskKind.KERNEL, TaskKind.HOST, TaskKind.DATA)) & (tasks.step >= 0))
    timed, numbers = np.unique(steps.rank), np.unique(steps.number)
    if len(graph.ranks) < 2 or numbers.size < 2:
        return 0.0
    known = busy[np.isin(graph.rank[busy], timed) & np.isin(tasks.step[busy], numbers)]
    places = np.searchsorted(timed, graph.rank[known]), np.searchsorted(numbers, tasks.step[known])
    own = np.zeros((timed.size, numbers.size))
    np.add.at(own, places, tasks.duration[known])
    apart = own - own.mean(1, keepdims=True) - own.mean(0) + own.mean()
    sigma = math.sqrt(float((apart**2).sum()) / ((own.shape[0] - 1) * (own.shape[1] - 1)))

    def latest(n: int) -> float:
        return math.sqrt(2 * math.log(n)) if n > 1 else 0.0

    return max(0.0, sigma * (latest(ranks) - latest(len(graph.ranks))))


def _notes(graph: TaskGraph, ranks: int, transfers: TimedTransfers, later: float) -> Iterator[str]:
    yield f"Weak scaling: {ranks} ranks, each with the work of a recorded rank."
    yield transfers.note
    if len(graph.ranks) < ranks and later:
        yield f"The last of {ranks} ranks may arrive {format_ns(round(later))} later; only the interval includes that."


def _apply_or_refuse(graph: TaskGraph, value: str, facts: Facts) -> Edited:
    try:
        return _apply(graph, value, facts)
    except UnknownCost as error:
        raise NotApplicable(str(error)) from None


def _remember(memory: RankMemory, value: str, facts: Facts) -> Remembered:
    held, before = require_trained_parameters(facts), replicas(facts)
    if not is_sharded(held):
        if is_partitioned(memory, held):
            return _repartition_states(memory, held, before, _replicas(value, facts))
        return Remembered(memory, 0.0, ("New replicas hold the same memory as the recorded ones.",))
    if facts.layout is not None and facts.layout.kind == "dp_replicate":
        return Remembered(memory, 0.0, ("Shards stay the same size: only their replicas are added.",))
    after = _replicas(value, facts)
    factor = shards(held, after) / shards(held, before)
    changed = scale_blocks(
        memory,
        select_owned_blocks(memory, Owner.PARAMETERS) | select_final_gradients(memory) | one_by_one(memory),
        factor,
    )
    note = f"Shards of parameters, gradients and states are {factor:.3g}x as large; gathered units stay whole."
    changed = with_states(changed, factor, 1.0)
    return Remembered(changed, doubt_of(memory, changed, held, facts.backend), (note,))


def _repartition_states(memory: RankMemory, held: tuple[HeldParameter, ...], before: int, after: int) -> Remembered:
    """Scale states that ZeroRedundancyOptimizer distributes: from the fullest of `before` ranks to the fullest of
    `after`."""
    old, new = fullest(held, before), fullest(held, after)
    factor = sum(one.whole for one in new) / sum(one.whole for one in old)
    note = f"States of the fullest rank are {factor:.3g}x as large: whole parameters are distributed over ranks."
    return Remembered(with_states(memory, factor, len(new) / len(old)), 0.1, (note,))


def _replicas(value: str, facts: Facts) -> int:
    return count(value, "world_size") * replicas(facts) // (facts.layout.world if facts.layout else replicas(facts))


CHANGE: Final = Change(
    name="world_size",
    form="world_size=N",
    about="the job has N ranks with the same work each; collectives across "
    "replicas take the time of the new group size",
    cost="the global batch grows with the ranks: adjust learning rate and schedule",
    how=lambda value: f"torchrun with --nnodes times --nproc-per-node = {value} ranks",
    apply=_apply_or_refuse,
    tried=(),
    is_hardware=True,
    remember=_remember,
)
