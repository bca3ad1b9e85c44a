"""work=even and stages=even: ranks that do the same take their mean, stages that of all."""

from __future__ import annotations

import pytest
from tests.predict.graph.tiny import L, M, T, graph

from lostflops.core.errors import NotApplicable
from lostflops.predict.graph.replay import replay
from lostflops.predict.graph.tasks import LaneKind, TaskKind
from lostflops.predict.whatif.change import Facts
from lostflops.predict.whatif.changes import stages, work

FACTS = Facts(times=None)


def ranks(*works):
    """Each rank computes so long in each step and meets the others at its end."""
    lanes = []
    for rank, times in enumerate(works):
        tasks = []
        for step, time in enumerate(times):
            tasks.append(T(f"work {step}", time, 0, TaskKind.KERNEL, step=step))
            tasks.append(T(f"meet {rank} {step}", 0, 0, TaskKind.COMM, f"m{step}", step=step))
        lanes.append(L(rank, LaneKind.STREAM, tasks))
    steps = [(rank, step, "", "") for rank in range(len(works)) for step in range(len(works[0]))]
    return graph(lanes, meetings={f"m{step}": M(0, ranks=len(works)) for step in range(len(works[0]))}, steps=steps)


def test_ranks_that_take_turns_take_their_mean():
    made = ranks((10, 30), (30, 10), (20, 20))
    edited = work.CHANGE.apply(made, "even", FACTS)
    assert replay(made).stop.max() == 60
    assert replay(edited.graph).stop.max() == 40
    assert edited.graph.tasks.duration.sum() == made.tasks.duration.sum()


def test_steps_keep_their_own_work():
    edited = work.CHANGE.apply(ranks((10, 100), (30, 300)), "even", FACTS)
    assert replay(edited.graph).stop.max() == 20 + 200


def test_ranks_without_a_pipeline_have_no_stages():
    with pytest.raises(NotApplicable, match="no pipeline stages"):
        stages.CHANGE.apply(ranks((10,), (20,)), "even", FACTS)
