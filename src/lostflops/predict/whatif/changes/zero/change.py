"""What if optimizer states, gradients or parameters were sharded over data-parallel ranks?

With `zero=1`, gradients are all-reduced as before, each rank updates its part of the parameters, and the parts are
gathered after the step; on gloo, ranks broadcast their parts one after the other, as ZeroRedundancyOptimizer does. With
`zero=2`, gradients are reduce-scattered instead. With `zero=3`, parameters are gathered before each unit's forward and
backward pass, and gradients are reduce-scattered: 1.5 times the bytes.
"""

from __future__ import annotations

from dataclasses import replace
from math import ceil, log2
from typing import TYPE_CHECKING, Final

import numpy as np

from lostflops.account.ledger.phases import BACKWARD, FORWARD
from lostflops.core.errors import NotApplicable
from lostflops.predict.graph.editing import retime_graph, scale_rows, with_words
from lostflops.predict.graph.tasks import LaneKind
from lostflops.predict.whatif.change import Change, Edited, Facts, Remembered
from lostflops.predict.whatif.changes.zero.gathers import Kernels, after_step, gathers, ranks_of
from lostflops.predict.whatif.changes.zero.partition import partition_states
from lostflops.predict.whatif.graph_edits.checked_replay import replay_or_refuse
from lostflops.predict.whatif.graph_edits.more_collectives import Extra, with_collectives
from lostflops.predict.whatif.graph_edits.ready import Inputs
from lostflops.predict.whatif.graph_edits.reductions import (
    calls,
    in_phase,
    reductions,
    rounds,
    select_collectives,
    select_sized_collectives,
)
from lostflops.predict.whatif.graph_edits.transfers import TimedTransfers, apart
from lostflops.predict.whatif.graph_edits.values import one_of
from lostflops.predict.whatif.memory_edits.sharded_parameters import doubt_of, fully_sharded, scatter_gradients
from lostflops.predict.whatif.memory_edits.sharding import (
    is_partitioned,
    is_sharded,
    replicas,
    require_trained_parameters,
    with_states,
)

if TYPE_CHECKING:
    from lostflops.account.memory.blocks import RankMemory
    from lostflops.predict.graph.tasks import TaskGraph
    from lostflops.predict.whatif.graph_edits.reductions import ReductionCall, Round

_DOUBT: Final = 0.25
_UNORDERED: Final = (
    "forward and backward are interleaved with other work, so parameters cannot be gathered for each pass"
)


def _apply(graph: TaskGraph, value: str, facts: Facts) -> Edited:
    stage = int(one_of(value, ("1", "2", "3"), "zero"))
    chosen = select_sized_collectives(graph, reductions(graph))
    if select_collectives(graph, "reduce_scatter")[chosen].any():
        raise NotApplicable("gradients are already reduce-scattered: the run is sharded")
    gathered = (
        select_collectives(graph, "all_gather", "broadcast") & ~in_phase(graph, FORWARD) & ~in_phase(graph, BACKWARD)
    )
    gathered &= np.isin(graph.meetings.group, graph.meetings.group[chosen])
    if graph.meetings.size[gathered].sum() > graph.meetings.size[chosen].sum() / 2:
        raise NotApplicable("parameters are already gathered after the optimizer step: its states are sharded")
    found = rounds(graph, chosen)
    if not found:
        raise NotApplicable("ranks do not agree on the reductions of a step: record all ranks of the same steps")
    prices = _Prices(graph, TimedTransfers.of(graph, facts))
    inputs, extras, updates = Inputs(graph), list[Extra](), list[tuple[np.ndarray, int]]()
    transfer, op = graph.meetings.transfer.copy(), graph.meetings.op.copy()
    graph, (scatter,) = with_words(graph, "reduce_scatter")
    kernels = Kernels(graph)
    for one in found:
        prices.take(one)
        own = [kernels.passes(rank, one.step) for rank in ranks_of(graph, one)]
        whole = int(graph.meetings.size[one.meetings].sum())
        updates += [(each.optimizer, prices.call.ranks) for each in own]
        if stage > 1:
            sizes = graph.meetings.size[one.meetings].tolist()
            transfer[one.meetings] = [prices.of("reduce_scatter", size) for size in sizes]
            op[one.meetings] = scatter
        if stage == 3:
            extras += gathers(graph, one, own, inputs, lambda size: prices.of("all_gather", size))
        else:
            by_turns = stage == 1 and facts.backend == "gloo"
            price = prices.broadcasts(whole) if by_turns else prices.of("all_gather", whole)
            extras.append(after_step(graph, one, own, whole, price))
    changed = _shard_updates(replace(graph, meetings=replace(graph.meetings, op=op)), updates, transfer)
    done = replay_or_refuse(with_collectives(changed, extras), _UNORDERED)
    told = np.where(select_collectives(done.graph, "all_gather", "reduce_scatter"), prices.doubt, 0.0)
    off = apart(done, 1.0 - told, 1.0 + told)
    # Shards are those of the ranks there are: with others they would be others, which world_size could not see.
    return Edited(
        graph=done.graph,
        schedule=done,
        doubt=_DOUBT,
        notes=_notes(stage, prices),
        facts=replace(facts, replicas=None),
        off=off,
    )


class _Prices:
    """Times of sharded collectives, at the level of a round's own reductions."""

    def __init__(self, graph: TaskGraph, transfers: TimedTransfers) -> None:
        self._graph, self._transfers = graph, transfers
        self.halved = self.in_turn = False
        self._level = 1.0
        self.call: ReductionCall

    def take(self, one: Round) -> None:
        chosen = np.zeros(len(self._graph.meetings), np.bool_)
        chosen[one.meetings] = True
        _, kinds, which = calls(self._graph, chosen)
        known = sum(self._transfers.ns(*kinds[number]) for number in which.tolist())
        self._level = float(self._graph.meetings.transfer[one.meetings].sum()) / max(known, 1e-9)
        self.call = kinds[0]

    def of(self, op: str, size: int) -> int:
        """Return the time of a collective, from the same source as the reductions. If the source does not know the
        operation, it is half an all-reduce: a ring first reduces and scatters, then gathers."""
        ranks, hosts = self.call.ranks, self.call.hosts
        try:
            ns = self._transfers.ns(op, size, ranks, hosts)
        except NotApplicable:
            self.halved = True
            ns = self._transfers.ns("all_reduce", size, ranks, hosts) / 2
        return round(ns * self._level)

    def broadcasts(self, size: int) -> int:
        """Return the time in which each rank broadcasts its part to all others, one rank after the other. Unless it was
        measured, a broadcast takes its bytes once for each level of a tree, at the rate of a ring all-reduce."""
        ranks, hosts = self.call.ranks, self.call.hosts
        try:
            ns = ranks * self._transfers.ns("broadcast", size // ranks, ranks, hosts)
        except NotApplicable:
            self.in_turn = True
            per_byte = self._transfers.ns("all_reduce", size, ranks, hosts) * ranks / (2 * (ranks - 1))
            ns = per_byte * ceil(log2(ranks))
        return round(ns * self._level)

    @property
    def doubt(self) -> float:
        """Part of itself by which a transfer may be wrong."""
        return self._transfers.doubt + (0.1 if self.halved or self.in_turn else 0.0)

    @property
    def note(self) -> str:
        half = " All-gather and reduce-scatter were not measured: each counts as half an all-reduce."
        turns = " Ranks broadcast their parts one after the other, at the speed of the all-reduces."
        return self._transfers.note + (half if self.halved else "") + (turns if self.in_turn else "")


def _shard_updates(graph: TaskGraph, updates: list[tuple[np.ndarray, int]], transfer: np.ndarray) -> TaskGraph:
    """Let the optimizer of each rank update only its part of the parameters."""
    rows = np.concatenate([rows for rows, _ in updates])
    parts = np.concatenate([np.full(rows.size, 1 / ranks) for rows, ranks in updates])
    gap = graph.tasks.gap
    host = graph.lanes.kind[graph.tasks.lane[rows]] == LaneKind.HOST
    gap = scale_rows(gap, rows[host], parts[host])
    return retime_graph(graph, duration=scale_rows(graph.tasks.duration, rows, parts), gap=gap, transfer=transfer)


def _notes(stage: int, prices: _Prices) -> tuple[str, ...]:
    where = {
        1: "Parameters are gathered after the optimizer step, without overlap.",
        2: "Parameters are gathered after the optimizer step, without overlap; reductions keep their buckets.",
        3: "Units are the recorded buckets; each is gathered while the previous unit computes.",
    }
    return (
        prices.note,
        where[stage],
        "The optimizer's kernels take 1/P of their time; copies into and out of flat buffers are not counted.",
    )


def _how(value: str) -> str:
    return {
        "1": "torch.distributed.optim.ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.AdamW)",
        "2": 'DeepSpeed: {"zero_optimization": {"stage": 2}}; in torch FSDP with reshard_after_forward=False',
        "3": "torch.distributed.fsdp.fully_shard on each block, then on the model",
    }[value]


def _remember(memory: RankMemory, value: str, facts: Facts) -> Remembered:
    stage, ranks, held = int(value), replicas(facts), require_trained_parameters(facts)
    if ranks == 1:
        raise NotApplicable("only one rank holds the parameters: there is nothing to shard them over")
    if is_sharded(held) or is_partitioned(memory, held):
        raise NotApplicable("the run is already sharded")
    if stage == 3:
        note = "Each numbered layer is a unit; all other parameters belong to the root unit, which stays gathered."
        changed = fully_sharded(memory, held, ranks)
        doubt = doubt_of(memory, changed, held, facts.backend)
        return Remembered(changed, doubt, (note, f"Sharded over {ranks} ranks."))
    if stage == 2:
        note = "Gradients and states are split evenly; a layer's gradients are whole until its backward pass is done."
        return Remembered(with_states(scatter_gradients(memory, ranks), 1 / ranks, 1.0), 0.2, (note,))
    changed, most = partition_states(memory, held, ranks)
    share = sum(one.whole for one in most) / sum(one.whole for one in held)
    note = f"Whole parameters are distributed over {ranks} ranks; the rank with the highest peak updates {share:.1%}."
    return Remembered(changed, 0.05, (note,))


CHANGE: Final = Change(
    name="zero",
    form="zero=1|2|3",
    about="optimizer states (1), also gradients (2), also parameters (3) are sharded over data-parallel ranks",
    cost="less memory: 16 bytes per parameter become 4+12/P, 2+14/P or 16/P (mixed-precision Adam); "
    "3 moves 1.5x the bytes",
    how=_how,
    apply=_apply,
    tried=("1", "2", "3"),
    remember=_remember,
)
