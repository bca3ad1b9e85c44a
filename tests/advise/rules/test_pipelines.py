"""Pipelines whose stages or microbatches are known."""

from __future__ import annotations

import numpy as np
import pytest

from lostflops.advise.signs.stages import Stages

STAGES = Stages(((0,), (1,), (2,), (3,)), np.arange(2), np.ones((4, 2)), 1.0, 4)


@pytest.mark.parametrize(("microbatches", "idle"), [(1, 3 / 4), (4, 3 / 7), (12, 3 / 15)])
def test_what_is_inherent_to_a_pipeline(microbatches, idle):
    assert STAGES.inherent(microbatches) == pytest.approx(idle)
