"""Sharding: what is gathered when, and what the optimizer still does."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.account.memory.made import Block, memory
from tests.predict.whatif.changes.linear import facts
from tests.predict.whatif.changes.steps import MIB, job

from lostflops.account.memory.owners import Owner
from lostflops.core.errors import NotApplicable
from lostflops.predict.graph.replay import replay
from lostflops.predict.graph.tasks import TaskKind
from lostflops.predict.whatif.change import Facts, HeldParameter
from lostflops.predict.whatif.changes import world_size
from lostflops.predict.whatif.changes.zero import CHANGE

ALPHA = 1000
COSTS = facts(float(ALPHA), 1.0)
"""An all-reduce of two ranks takes 1,000 + S, a gathering or scattering 1,000 + S / 2."""


def made(**more):
    return job(lambda *_: 3000, transfer=(ALPHA + MIB, ALPHA + 2 * MIB), backward=100, update=4000, **more)


def test_one_gathers_after_the_update():
    found = CHANGE.apply(made(), "1", COSTS).graph
    found.self_check()
    gathers = ALPHA + 3 * MIB // 2
    own = 3000 + 100 + 2 * ALPHA + 3 * MIB + 2000 + gathers
    assert replay(found).step_times.tolist() == [own] * 4


def test_over_gloo_ranks_broadcast_their_parts_in_turn():
    found = CHANGE.apply(made(), "1", facts(float(ALPHA), 1.0, backend="gloo")).graph
    own = 3000 + 100 + 2 * ALPHA + 3 * MIB + 2000 + 2 * ALPHA + 3 * MIB
    assert replay(found).step_times.tolist() == [own] * 4


def test_two_scatters():
    found = CHANGE.apply(made(), "2", COSTS).graph
    found.self_check()
    own = 3000 + 100 + 2 * ALPHA + 3 * MIB // 2 + 2000 + ALPHA + 3 * MIB // 2
    assert replay(found).step_times.tolist() == [own] * 4


def test_three_gathers_units_before_both_passes():
    """The bytes are so many that communication never waits for compute but at the ends: 1.5 times an all-reduce's."""
    before = made(steps=1)
    found = CHANGE.apply(before, "3", COSTS).graph
    found.self_check()
    names = [found.words[op] for op in found.meetings.op.tolist()]
    assert (names.count("all_gather"), names.count("reduce_scatter")) == (4, 2)
    moved = found.meetings.size[[name != "" for name in names]].sum()
    assert moved == 3 * before.meetings.size.sum(), "each of half the bytes of an all-reduce"
    comm = found.tasks.kind == TaskKind.COMM
    done = replay(found)
    assert (done.stop[comm][1:6] >= done.stop[comm][:5]).all()


def test_what_is_not_measured_is_half_an_all_reduce():
    before = made()
    found = CHANGE.apply(before, "2", Facts(times=None, backend="nccl"))
    names = [found.graph.words[op] for op in found.graph.meetings.op.tolist()]
    scattered = [
        int(t) for t, name in zip(found.graph.meetings.transfer, names, strict=True) if name == "reduce_scatter"
    ]
    assert scattered[:2] == pytest.approx([t / 2 for t in before.meetings.transfer.tolist()[:2]], rel=0.01)
    assert "half an all-reduce" in found.notes[0]


def test_sharded_runs_are_refused():
    twice = CHANGE.apply(made(), "2", COSTS).graph
    with pytest.raises(NotApplicable, match="sharded"):
        CHANGE.apply(twice, "1", COSTS)


@pytest.mark.parametrize("stage", ["1", "2", "3"])
def test_what_more_ranks_would_share_is_not_told_behind_it(stage):
    """Else world_size would take sharded memory for that of replicas, which stays."""
    told = replace(COSTS, replicas=2, held=(HeldParameter("w", 400, 400, 10, 4, True, None),))
    after = CHANGE.apply(made(), stage, told).facts
    with pytest.raises(NotApplicable, match="world_size first"):
        world_size.CHANGE.remember(memory(Block(Owner.PARAMETERS, 400)), "8", after)
