"""Collectives that a step makes for nothing, taken out of graphs by hand."""

from __future__ import annotations

import pytest
from tests.predict.graph.tiny import L, M, T, graph

from lostflops.account.ledger.phases import BACKWARD, FORWARD, OPTIMIZER, OTHER
from lostflops.core.errors import NotApplicable
from lostflops.predict.graph.replay import replay
from lostflops.predict.graph.tasks import Because, LaneKind, TaskKind
from lostflops.predict.whatif.change import Facts
from lostflops.predict.whatif.changes import blocking, ddp, no_sync
from lostflops.predict.whatif.graph_edits.small_calls import small_calls
from lostflops.predict.whatif.graph_edits.whole_model import select_gradient_gathers, select_weight_averages

MIB = 1024 * 1024
FACTS = Facts(times=None)


class Job:
    """Ranks without devices: what a step does is added call by call, for both ranks alike."""

    def __init__(self, steps=2):
        self.steps, self.made = steps, []

    def work(self, name, duration, phase):
        self.made.append(("work", name, duration, phase, 0))
        return self

    def reduce(self, name, transfer, phase, size=MIB, op="all_reduce"):
        """Asked for by the host, which waits for it at once."""
        self.made.append((op, name, transfer, phase, size))
        return self

    def graph(self):
        lanes, edges, because, meetings, ends = [], [], [], {}, []
        for rank in (0, 1):
            host, comm = [], []
            for step in range(self.steps):
                key = f"{rank}.{step}"
                host.append(T(f"begin{key}", kind=TaskKind.MARK, step=step))
                for sort, name, ns, phase, size in self.made:
                    if sort == "work":
                        host.append(T(f"{name}{key}", ns, kind=TaskKind.KERNEL, phase=phase, step=step, line="compute"))
                        continue
                    meetings[f"{name}{step}"] = M(ns, op=sort, size=size)
                    host.append(T(f"ask {name}{key}", phase=phase, step=step))
                    host.append(T(f"wait {name}{key}", kind=TaskKind.SYNC, phase=phase, step=step))
                    comm.append(T(f"{name}{key}", kind=TaskKind.COMM, meets=f"{name}{step}", phase=phase, step=step))
                    edges += [(f"ask {name}{key}", f"{name}{key}"), (f"{name}{key}", f"wait {name}{key}")]
                    because += [Because.THREAD, Because.SYNC]
                host.append(T(f"end{key}", kind=TaskKind.MARK, step=step))
                ends.append((rank, step, f"begin{key}", f"end{key}"))
            lanes += [L(rank, LaneKind.HOST, host), L(rank, LaneKind.COMM_THREAD, comm)]
        return graph(lanes, edges, meetings, ends, because)


def times(found):
    found.self_check()
    return set(replay(found).step_times.tolist())


def accumulating(*sizes):
    """A microbatch for each size that its backward pass reduces; None reduces nothing."""
    job = Job()
    for batch, size in enumerate(sizes):
        job.work(f"f{batch}.", 50, FORWARD).work(f"b{batch}.", 100, BACKWARD)
        if size:
            job.reduce(f"r{batch}.", 40, BACKWARD, size)
    return job.work("o", 30, OPTIMIZER).graph()


def test_only_the_last_microbatch_reduces():
    assert times(accumulating(MIB, MIB, MIB)) == {3 * 190 + 30}
    found = no_sync.CHANGE.apply(accumulating(MIB, MIB, MIB), "on", FACTS).graph
    assert times(found) == times(accumulating(None, None, MIB)) == {3 * 150 + 40 + 30}
    assert len(found.meetings) == 2


@pytest.mark.parametrize("sizes", [(MIB,), (None, None, MIB), (MIB, 2 * MIB)])
def test_steps_that_do_not_reduce_the_same_again_are_left(sizes):
    with pytest.raises(NotApplicable):
        no_sync.CHANGE.apply(accumulating(*sizes), "on", FACTS)


def by_hand(size=MIB, pieces=4):
    job = Job().work("f", 50, FORWARD)
    for number in range(pieces):
        job.work(f"b{number}.", 25, BACKWARD)
    for number in range(pieces):
        job.reduce(f"r{number}.", 40, OTHER, size)
    return job.work("o", 30, OPTIMIZER).graph()


PARAMETERS = Facts(times=None, parameters=tuple((f"w{number}", MIB, None) for number in range(4)))


def test_gradients_travel_while_backward_goes_on():
    assert times(by_hand()) == {50 + 100 + 4 * 40 + 30}
    found = ddp.CHANGE.apply(by_hand(), "1", PARAMETERS)
    # The first of four is ready after 75; they take turns, and the optimizer waits for the last.
    assert times(found.graph) == {75 + 4 * 40 + 30}
    assert found.extra == {"reductions_before": 4.0, "reductions": 4.0}


def test_one_bucket_waits_for_the_whole_pass():
    found = ddp.CHANGE.apply(by_hand(), "100", PARAMETERS)
    assert times(found.graph) == {50 + 100 + 4 * 40 + 30}
    assert found.extra["reductions"] == 1


def test_many_small_messages_become_one():
    small = Facts(times=None, parameters=tuple((f"w{number}", 1024, None) for number in range(40)))
    before, found = by_hand(1024, 40), ddp.CHANGE.apply(by_hand(1024, 40), "1", small).graph
    (was,), (now,) = times(before), times(found)
    # Of messages of one small size a quarter goes with bytes: 40 of them as one take 40 + 39 * 10.
    assert (was, now) == (50 + 1000 + 40 * 40 + 30, 50 + 1000 + 430 + 30)


def test_one_bucket_takes_at_most_what_its_messages_took():
    """Nothing is known of a message 162 times as large, but that the same bytes went one by one in 162 * 40."""
    small = Facts(times=None, parameters=tuple((f"w{number}", 1024, None) for number in range(162)))
    found = ddp.CHANGE.apply(by_hand(1024, 162), "25", small)
    assert 0 < found.off <= 162 * 40


@pytest.mark.parametrize(
    "facts", [Facts(times=None, parameters=(("w", 99 * MIB, None),)), Facts(times=None, parameters=(("w", 77, None),))]
)
def test_what_is_not_as_large_as_the_model_is_no_gradient(facts):
    with pytest.raises(NotApplicable, match="does not reduce gradients"):
        ddp.CHANGE.apply(by_hand(), "25", facts)


def test_what_ddp_reduces_is_left_to_it():
    with pytest.raises(NotApplicable, match="does not reduce gradients"):
        ddp.CHANGE.apply(accumulating(MIB), "25", FACTS)


def measuring():
    job = Job().work("f", 50, FORWARD).work("b", 100, BACKWARD).reduce("r", 40, BACKWARD).work("o", 30, OPTIMIZER)
    for number in range(3):
        job.reduce(f"m{number}.", 7, OTHER, 4)
    return job.graph()


def test_small_collectives_are_gone_and_gradients_are_not():
    found = blocking.CHANGE.apply(measuring(), "removed", FACTS)
    assert times(measuring()) == {220 + 21}
    assert times(found.graph) == {220}
    assert found.extra == {"collectives_before": 3.0}


def test_a_job_without_small_collectives():
    with pytest.raises(NotApplicable):
        blocking.CHANGE.apply(accumulating(MIB), "removed", FACTS)


OWN = Facts(times=None, parameters=(("a", 4 * MIB, None), ("b", 2048, None)))


def moving(phase, *sizes, op="all_reduce"):
    job = Job().work("f", 50, FORWARD) if phase != FORWARD else Job()
    if phase == FORWARD:
        for number, size in enumerate(sizes):
            job.reduce(f"m{number}.", 10, phase, size, op)
        job.work("f", 50, FORWARD)
    job.work("b", 100, BACKWARD)
    if phase == OTHER:
        for number, size in enumerate(sizes):
            job.reduce(f"m{number}.", 10, phase, size, op)
    return job.work("o", 30, OPTIMIZER).graph()


@pytest.mark.parametrize(
    ("sizes", "count"), [((4 * MIB, 2048), 4), ((4 * MIB + 2048,), 2), ((2 * MIB + 1024,), 2), ((3 * MIB,), 0)]
)
def test_weights_that_are_averaged_before_the_forward_pass_are_as_many_bytes_as_there_are(sizes, count):
    assert select_weight_averages(moving(FORWARD, *sizes), OWN).sum() == count
    assert not select_weight_averages(moving(FORWARD, *sizes), FACTS).any()


def test_gradients_reduced_behind_backward_are_no_averaged_weights():
    assert not select_weight_averages(moving(OTHER, 4 * MIB, 2048), OWN).any()


def test_gradients_of_all_ranks_are_gathered_one_by_one():
    found = moving(OTHER, 8 * MIB, 4096, op="all_gather")
    assert select_gradient_gathers(found, OWN).all()
    with pytest.raises(NotApplicable):
        small_calls(found, OWN)
    assert small_calls(found, FACTS).sum() == 2, "4096 bytes of who knows what"


@pytest.mark.parametrize("sizes", [(8 * MIB + 4096,), (4096,), (6 * MIB, 4096)])
def test_other_gatherings_are_not_of_single_gradients(sizes):
    assert not select_gradient_gathers(moving(OTHER, *sizes, op="all_gather"), OWN).any()
