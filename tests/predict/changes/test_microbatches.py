"""Other microbatches of the same batch, against pipelines that were simulated both ways."""

from __future__ import annotations

import numpy as np
import pytest
from tests.predict.pipelines import passes, recorded, step_time

from lostflops.graph.replay import replay
from lostflops.graph.tasks import Kind
from lostflops.predict.change import Facts, NotApplicable
from lostflops.predict.changes.microbatches import CHANGE
from lostflops.predict.orders import Shape

NOTHING = Facts(None)
MS = 1e6


@pytest.mark.parametrize("schedule", ["1f1b", "gpipe"])
@pytest.mark.parametrize(("before", "after"), [(4, 8), (8, 4), (8, 16), (6, 2)])
def test_as_simulated_both_ways(schedule, before, after, tmp_path):
    small = passes(Shape(4, 1, max(before, after)))
    ratio = max(before, after) // min(before, after)
    large = small.reshape(4, 1, 2, -1, ratio).sum(axis=4)
    # More of them are equal parts of those recorded.
    small = small if before > after else np.repeat(large / ratio, ratio, axis=3)
    was, will = (small, large) if before > after else (large, small)
    made = recorded(tmp_path / "job", schedule, was)
    changed = CHANGE.apply(made, str(after), NOTHING).graph
    assert replay(changed).stop.max() == pytest.approx(2 * step_time(schedule, will) * MS, rel=0.001)
    work = [one.tasks.duration[one.tasks.kind == Kind.KERNEL].sum() for one in (made, changed)]
    assert work[0] == pytest.approx(work[1], rel=1e-4)


def test_what_cannot_be(tmp_path):
    made = recorded(tmp_path / "job", "interleaved", passes(Shape(2, 2, 4)))
    with pytest.raises(NotApplicable, match="4 microbatches in a step already"):
        CHANGE.apply(made, "4", NOTHING)
    with pytest.raises(NotApplicable, match="multiple of its 2 stages"):
        CHANGE.apply(made, "3", NOTHING)
