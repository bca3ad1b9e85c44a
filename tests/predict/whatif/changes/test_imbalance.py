"""Balanced ops: on graphs by hand, and on clusters with a slow rank and without."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.predict.graph.tiny import L, M, T, graph
from tests.predict.whatif.pipelines import error

from lostflops.core.errors import NotApplicable
from lostflops.predict.graph.replay import replay
from lostflops.predict.graph.tasks import LaneKind, TaskKind
from lostflops.predict.whatif.change import Facts
from lostflops.predict.whatif.changes.imbalance import CHANGE
from lostflops.testing import Straggler, SyntheticCluster

NOTHING = Facts(times=None)


def two_ranks(first, second):
    """Two steps of a pass and a collective on each of two ranks."""
    return graph(
        [
            L(
                rank,
                LaneKind.STREAM,
                [
                    task
                    for step in (0, 1)
                    for task in (
                        T(f"pass {rank} {step}", lengths[step], 0, TaskKind.KERNEL, step=step),
                        T(f"sum {rank} {step}", 0, 0, TaskKind.COMM, f"sum {step}", step=step),
                    )
                ],
            )
            for rank, lengths in enumerate((first, second))
        ],
        meetings={"sum 0": M(5), "sum 1": M(7)},
        steps=[(rank, step, "", "") for rank in (0, 1) for step in (0, 1)],
    )


def named(made):
    """With names as recorded: those of one type are equal."""
    texts = ("forward-compute", "grads-reduce-scatter")
    name = made.tasks.kind == TaskKind.COMM
    words = tuple(text for text in made.words if text not in texts)
    return replace(
        made,
        words=(*words, *texts),
        tasks=made.tasks._replace(name=(len(words) + name.astype("int32")).astype("int32")),
    )


def test_every_op_takes_the_mean_of_its_type():
    made = named(two_ranks((10, 10), (10, 30)))
    changed = CHANGE.apply(made, "removed", NOTHING)
    assert changed.graph.tasks.duration[changed.graph.tasks.kind == TaskKind.KERNEL].tolist() == [15, 15, 15, 15]
    assert changed.graph.meetings.transfer.tolist() == [6, 6]
    assert replay(made).stop.max() == 10 + 5 + 30 + 7
    assert replay(changed.graph).stop.max() == 2 * (15 + 6)


def test_who_is_slow_is_told_by_type():
    changed = CHANGE.apply(named(two_ranks((10, 10), (10, 30))), "removed", NOTHING)
    by_op = changed.extra["slowdown_by_op"]
    assert next(iter(by_op)) == "forward-compute"
    assert by_op["forward-compute"] > 1


def test_a_cluster_with_a_slow_rank_both_ways(tmp_path):
    """All kernels take the mean: what one rank of four lost, each one loses a quarter of."""
    slow = SyntheticCluster(ranks=4, steps=4, seed=1, stragglers=(Straggler(2, "slow_kernels", factor=1.6),))
    even = tuple(Straggler(rank, "slow_kernels", factor=1.15) for rank in range(4))
    assert abs(error(slow, CHANGE, "removed", tmp_path, stragglers=even)) < 0.02


def test_one_rank_has_nobody_to_be_balanced_with():
    made = graph([L(0, LaneKind.STREAM, [T("a", 5, 0, TaskKind.KERNEL)])], steps=[(0, 0, "", "")])
    with pytest.raises(NotApplicable, match="nothing to balance it with"):
        CHANGE.apply(made, "removed", NOTHING)
