"""straggler: a late rank is brought to the others of its kind, whatever makes it late."""

from __future__ import annotations

import pytest
from tests.predict.graph.tiny import L, M, T, graph, starts
from tests.predict.whatif.changes.steps import job

from lostflops.core.errors import NotApplicable, UsageError
from lostflops.predict.graph.replay import replay
from lostflops.predict.graph.tasks import LaneKind, TaskKind
from lostflops.predict.whatif.change import Facts
from lostflops.predict.whatif.changes.straggler import CHANGE
from lostflops.predict.whatif.graph_edits.cohorts import cohorts

FACTS = Facts(times=None)


def judged(*late):
    """Facts of a run of whose ranks the judge calls these late."""
    return Facts(times=None, late=lambda: late)


def ranks(*works, extra=()):
    """Each rank computes so long in two steps and meets the others at the end of each."""
    lanes = []
    for rank, times in enumerate(works):
        tasks = []
        for step, time in enumerate(times):
            tasks.append(T(f"work {rank} {step}", time, 1, TaskKind.KERNEL, step=step))
            tasks += [
                T(f"{name} {rank} {step}", took, 0, TaskKind.HOST, step=step) for r, name, took in extra if r == rank
            ]
            tasks.append(T(f"meet {rank} {step}", 0, 0, TaskKind.COMM, f"m{step}", step=step))
        lanes.append(L(rank, LaneKind.STREAM, tasks))
    steps = [(rank, step, "", "") for rank in range(len(works)) for step in range(len(works[0]))]
    meetings = {f"m{step}": M(5, ranks=len(works)) for step in range(len(works[0]))}
    return graph(lanes, meetings=meetings, steps=steps)


def test_a_late_rank_takes_what_the_others_take():
    made = ranks((10, 12), (11, 12), (90, 60), (12, 12))
    edited = CHANGE.apply(made, "removed", judged(2))
    assert edited.extra["ranks"] == [2]
    took = starts(made, edited.graph.tasks.duration)
    assert (took["work 2 0"], took["work 2 1"], took["work 0 0"]) == (11, 12, 10)
    assert replay(made).stop.max() == 90 + 1 + 5 + 60 + 1 + 5
    assert replay(edited.graph).stop.max() == 12 + 1 + 5 + 12 + 1 + 5


def test_what_only_the_late_rank_does_is_gone():
    made = ranks((10, 10), (10, 10), (10, 10), extra=[(1, "sleep", 50)])
    edited = CHANGE.apply(made, "removed", judged(1))
    assert edited.extra["ranks"] == [1]
    assert replay(edited.graph).stop.max() == 2 * (10 + 1 + 5)


def test_a_rank_of_two_is_compared_with_the_other():
    edited = CHANGE.apply(ranks((10, 10), (40, 40)), "removed", judged(1))
    assert edited.extra["ranks"] == [1]
    assert replay(edited.graph).stop.max() == 2 * (10 + 1 + 5)


def test_nobody_is_late():
    with pytest.raises(NotApplicable, match="no rank is late"):
        CHANGE.apply(ranks((10, 10), (10, 10)), "removed", judged())
    assert CHANGE.apply(ranks((10, 10), (10, 10)), "1", FACTS).extra["ranks"] == [1]


@pytest.mark.parametrize("value", ["fast", "7", "-1"])
def test_a_rank_that_is_none(value):
    with pytest.raises(UsageError, match="give removed or a rank from 0 to 1"):
        CHANGE.apply(ranks((10, 10), (10, 10)), value, FACTS)


def test_stages_of_a_pipeline_are_no_kind():
    """Ranks 0, 1 are a stage and 2, 3 the next; all four meet at the end."""

    def rank(number, stage, peer):
        return L(
            number,
            LaneKind.STREAM,
            [
                T(f"w{number}", 10 * (stage + 1), 0, TaskKind.KERNEL),
                T(f"s{number}", 0, 0, TaskKind.COMM, f"p{peer}"),
                T(f"d{number}", 0, 0, TaskKind.COMM, f"d{stage}"),
                T(f"a{number}", 0, 0, TaskKind.COMM, "all"),
            ],
        )

    made = graph(
        [rank(0, 0, 0), rank(1, 0, 1), rank(2, 1, 0), rank(3, 1, 1)],
        meetings={
            "p0": M(1, "send_recv"),
            "p1": M(1, "send_recv"),
            "d0": M(1),
            "d1": M(1),
            "all": M(1),
        },
    )
    assert cohorts(made) == [[0, 1], [2, 3]]


def test_what_ranks_that_are_not_late_gain_is_in_the_interval():
    """Each rank is the later one in every other step: to make one like the other gains, though nobody is late."""
    alternating = job(lambda rank, step: 400 if step % 2 == rank else 100, steps=8)
    found = CHANGE.apply(alternating, "0", Facts(times=None))
    gained = replay(alternating).mean_step - replay(found.graph).mean_step
    assert gained > 0
    assert found.off == pytest.approx(gained, rel=0.3)
