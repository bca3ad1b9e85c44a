"""Other microbatches of the same batch, against pipelines that were simulated both ways."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.predict.whatif.pipelines import error, passes, recorded, step_time

from lostflops.core.errors import NotApplicable
from lostflops.predict.graph.replay import replay
from lostflops.predict.graph.tasks import TaskKind
from lostflops.predict.whatif.change import Facts
from lostflops.predict.whatif.changes.microbatches import CHANGE
from lostflops.predict.whatif.graph_edits.orders import PipelineShape
from lostflops.testing import SyntheticCluster

NOTHING = Facts(times=None)
MS = 1e6


@pytest.mark.parametrize("schedule", ["1f1b", pytest.param("gpipe", marks=pytest.mark.slow)])
@pytest.mark.parametrize(("before", "after"), [(4, 8), (6, 2)])
def test_as_simulated_both_ways(schedule, before, after, tmp_path):
    small = passes(PipelineShape(4, 1, max(before, after)))
    ratio = max(before, after) // min(before, after)
    large = small.reshape(4, 1, 2, -1, ratio).sum(axis=4)
    # More of them are equal parts of those recorded.
    small = small if before > after else np.repeat(large / ratio, ratio, axis=3)
    was, will = (small, large) if before > after else (large, small)
    made = recorded(tmp_path / "job", schedule, was)
    changed = CHANGE.apply(made, str(after), NOTHING).graph
    assert replay(changed).stop.max() == pytest.approx(2 * step_time(schedule, will) * MS, rel=0.001)
    work = [one.tasks.duration[one.tasks.kind == TaskKind.KERNEL].sum() for one in (made, changed)]
    assert work[0] == pytest.approx(work[1], rel=1e-4)


@pytest.mark.parametrize("schedule", ["1f1b", pytest.param("gpipe", marks=pytest.mark.slow)])
def test_traced_clusters_both_ways(schedule, tmp_path):
    """Off by up to 1.6%: transfers are taken not to shrink with the microbatch."""
    cluster = SyntheticCluster(ranks=4, pipeline_parallel=4, microbatches=8, schedule=schedule, steps=4, seed=1)
    model = cluster.model
    halves = tuple(replace(kernel, duration=kernel.duration // 2) for kernel in model.kernels)
    small = replace(model, kernels=halves, activation_bytes=model.activation_bytes // 2)
    assert abs(error(cluster, CHANGE, "16", tmp_path, microbatches=16, model=small)) < 0.02


def test_what_cannot_be(tmp_path):
    made = recorded(tmp_path / "job", "interleaved", passes(PipelineShape(2, 2, 4)))
    with pytest.raises(NotApplicable, match="already has 4 microbatches per step"):
        CHANGE.apply(made, "4", NOTHING)
    with pytest.raises(NotApplicable, match="multiple of its 2 stages"):
        CHANGE.apply(made, "3", NOTHING)
