"""Peaks that a device reaches, from made samples."""

from __future__ import annotations

import pytest

from lostflops.core.errors import UnknownCost
from lostflops.predict.costs.calibration import CalibratedMemory, Calibration, Copy, Launch, Matmul
from lostflops.predict.costs.roofline import roofline

MADE = Calibration(
    matmuls=(
        Matmul(dtype="bfloat16", m=1000, n=1000, k=1000, ns=(20_000, 20_000, 90_000)),
        Matmul(dtype="bfloat16", m=2000, n=1000, k=1000, ns=(30_000, 20_000, 5)),
    ),
    memory=(CalibratedMemory(kind="copy", bytes=3000, ns=(1,)), CalibratedMemory(kind="add", bytes=2000, ns=(1, 1, 9))),
    launches=(Launch(kind="small op", ns=(4000, 5000, 60000)),),
    copies=(
        Copy(direction="h2d", pinned=True, bytes=50, ns=(2,)),
        Copy(direction="h2d", pinned=False, bytes=50, ns=(5,)),
    ),
)


def test_each_figure_is_the_best_median() -> None:
    found = roofline(MADE)
    assert found.achievable_tflops("bfloat16") == pytest.approx(200)
    assert found.matmuls["bfloat16"].at == "2000 x 1000 x 1000"
    assert max(reached.rate for reached in found.memory.values()) == 3000
    assert found.launch_ns == 5000
    assert {name: reached.rate for name, reached in found.copies.items()} == {"h2d, pinned": 25, "h2d, pageable": 10}


def test_what_was_not_measured_is_not_known() -> None:
    with pytest.raises(UnknownCost, match="float64 were not measured; measured types: bfloat16"):
        roofline(MADE).achievable_tflops("float64")
    assert roofline(Calibration()).memory == {}
