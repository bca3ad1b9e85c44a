"""Ranks that may run ahead of each other."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.predict.whatif.changes.steps import job

from lostflops.predict.graph.replay import replay
from lostflops.predict.whatif.change import Facts
from lostflops.predict.whatif.changes.staleness import CHANGE

OWN = 100 + 100 + 60 + 30
"""Of a step beside the forward pass: the second transfer is not hidden, the first one is."""


def alternating(rank, step):
    """Each rank is slow in every other step, the other rank in the other ones."""
    return 400 if step % 2 == rank else 100


def asynchronous(steps, bound):
    """Ends of each rank's steps by the rule itself."""
    stop = {}
    for step in range(steps):
        for rank in (0, 1):
            own = stop.get((rank, step - 1), 0)
            held = max((stop[other, step - 1 - bound] for other in (0, 1) if step - 1 - bound >= 0), default=0)
            stop[rank, step] = max(own, held) + alternating(rank, step) + OWN
    return stop


@pytest.mark.parametrize("bound", [1, 2, 3])
def test_a_bound_holds_as_the_rule_says(bound):
    steps = 8
    found = CHANGE.apply(job(alternating, steps=steps), str(bound), Facts(times=None))
    found.graph.self_check()
    stop = asynchronous(steps, bound)
    _, ends = replay(found.graph).step_edges
    rows = [(rank, step) for rank in (0, 1) for step in range(steps)]
    assert ends.tolist() == [stop[row] for row in rows]


@pytest.mark.parametrize("bound", [1, 2])
def test_nobody_computes_further_ahead_than_the_bound_and_a_long_run_waits_more(bound):
    found = CHANGE.apply(job(lambda rank, _: 100 + 300 * rank, steps=8), str(bound), Facts(times=None))
    assert found.extra["staleness"]["max"] == bound
    short = replay(found.graph).mean_step
    assert short + found.off == pytest.approx(400 + OWN)
    assert found.off > 0


def test_waiting_for_others_is_time_of_a_step():
    found = CHANGE.apply(job(lambda rank, _: 100 + 300 * rank, steps=8), "1", Facts(times=None))
    done = replay(found.graph)
    own = found.graph.steps.rank == 0
    assert int(done.step_times[own].sum()) == int(done.step_edges[1][own].max())


def test_nobody_waits_without_a_bound():
    found = CHANGE.apply(job(lambda rank, _: 100 + 300 * rank, steps=6), "unbounded", Facts(times=None))
    times = replay(found.graph).step_times
    assert times.tolist() == [100 + OWN] * 6 + [400 + OWN] * 6
    told = found.extra["staleness"]
    assert told["max"] == 3
    assert sum(told["histogram"].values()) == 12
    assert found.extra["steps_per_second_of_all_ranks"] == pytest.approx(1e9 / (100 + OWN) + 1e9 / (400 + OWN))


def test_ranks_do_not_take_turns_with_each_other():
    apart = job(lambda rank, _: 100 + 300 * rank, steps=6)
    linked = replace(apart, meetings=replace(apart.meetings, link=np.zeros(len(apart.meetings), np.int32)))
    for bound in ("2", "unbounded"):
        found, expected = (CHANGE.apply(graph, bound, Facts(times=None)).graph for graph in (linked, apart))
        found.self_check()
        assert replay(found).step_times.tolist() == replay(expected).step_times.tolist()


def test_none_is_as_measured():
    before = job(alternating, steps=4)
    found = CHANGE.apply(before, "0", Facts(times=None))
    assert replay(found.graph).step_times.tolist() == replay(before).step_times.tolist()
    assert found.extra["staleness"]["max"] == 0


def test_a_bound_gains_what_alternating_ranks_wait():
    before = job(alternating, steps=40)
    gain = 1 - replay(CHANGE.apply(before, "1", Facts(times=None)).graph).mean_step / replay(before).mean_step
    assert gain == pytest.approx(1 - (250 + OWN) / (400 + OWN), abs=0.02)
