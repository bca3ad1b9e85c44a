"""Buckets that are not reduced in the order in which their gradients become ready."""

import numpy as np
import pytest

from lostflops.core.errors import NotApplicable
from lostflops.predict.whatif.graph_edits.ready import HoldingTasks, between


def test_buckets_out_of_order_are_not_cut_anew() -> None:
    held = HoldingTasks(lane=0, src=np.array([898, 896]), edges=np.array([0, 1]))
    with pytest.raises(NotApplicable, match="cannot be cut in order"):
        between(None, held, 0, np.array([1.0]))  # type: ignore[arg-type]
