"""What is said of calibrations with known constants."""

from __future__ import annotations

import json
from math import isfinite
from typing import Any

import pytest
from tests.predict.costs.made_times import Made, doubling, line

from lostflops.core.results import Plot, Result, Table
from lostflops.predict.costs.calibrated.show import show
from lostflops.predict.costs.calibration import CalibratedCollective, Calibration, Matmul

SIZES = doubling(1024, 2**26)


def measured(
    level: str, hosts: int, gbs: float, *, sizes: list[int] = SIZES, seed: int = 0, noise: float = 0.02
) -> tuple[CalibratedCollective, ...]:
    """All-reduce of 8 ranks whose bus bandwidth is known."""
    times = Made(seed, noise=noise).samples(sizes, line(20e3, 1.75 / gbs), 5)
    return tuple(
        CalibratedCollective(op="all_reduce", level=level, ranks=8, hosts=hosts, bytes=size, ns=tuple(map(int, ns)))
        for size, ns in zip(sizes, times, strict=True)
    )


def table(result: Result, name: str) -> list[dict[str, Any]]:
    (found,) = (block for block in (*result.blocks, *result.more) if block.name == name)
    assert isinstance(found, Table)
    return found.to_json()


def test_constants_and_the_slowest_level_are_told() -> None:
    matmul = Matmul(dtype="bfloat16", m=1000, n=1000, k=1000, ns=(10_000,))
    both = measured("host", 1, 200) + measured("world", 2, 40, seed=1)
    result = show(Calibration(collectives=both, matmuls=(matmul,)))
    assert "across hosts is the slowest level, " in result.verdict
    assert float(result.verdict.split("slowest level, ")[1].split(" times")[0]) == pytest.approx(5, rel=0.05)
    assert "Matmuls reach 200 TFLOP/s in bfloat16." in result.verdict
    host, world = table(result, "constants")
    assert (host["level"], world["level"]) == ("host", "world")
    assert host["busbw_low_gbs"] < 200 < host["busbw_high_gbs"]
    assert world["busbw_low_gbs"] < 40 < world["busbw_high_gbs"]
    assert world["alpha_low_ns"] < 20_000 < world["alpha_high_ns"]
    assert table(result, "roofline")[0]["reached"] == 200


def test_levels_whose_intervals_overlap_are_not_ranked() -> None:
    result = show(Calibration(collectives=measured("host", 1, 100) + measured("across", 8, 99, seed=1)))
    assert "neither is clearly slower" in result.verdict
    assert any(
        "Bandwidths do not differ clearly: all_reduce host 8 and all_reduce across 8 on 8" in note
        for note in result.notes
    )


def test_errors_are_told_by_size_below_and_above_one_megabyte() -> None:
    samples = list(measured("host", 1, 100, noise=0.001))
    place = SIZES.index(16384)
    samples[place] = CalibratedCollective(
        op="all_reduce", level="host", ranks=8, hosts=1, bytes=16384, ns=(40_000,) * 5
    )
    result = show(Calibration(collectives=tuple(samples)))
    wrong = 1 - (20e3 + 0.0175 * 16384) / 40e3
    rows = {row["from_bytes"]: row for row in table(result, "errors")}
    assert rows[10_000]["worst_error"] == pytest.approx(wrong, rel=0.02)
    assert rows[10_000]["worst_bytes"] == 16384
    assert rows[10_000_000]["worst_error"] < 0.01
    (group,) = table(result, "groups")
    assert group["worst_error_below_1mb"] == pytest.approx(wrong, rel=0.02)
    assert group["worst_error_from_1mb"] < 0.01
    assert "Far from the curve: all_reduce host 8 at 16.4 kB." in result.notes


def test_plots_hold_what_was_measured_and_what_is_predicted() -> None:
    gathers = tuple(
        CalibratedCollective(op="all_gather", level="host", ranks=8, hosts=1, bytes=size, ns=(9000 + size,))
        for size in SIZES
    )
    result = show(Calibration(collectives=gathers + measured("host", 1, 100)))
    first, second, residuals = (block for block in (*result.blocks, *result.more) if isinstance(block, Plot))
    assert first in result.blocks
    assert second in result.more
    assert (first.name, second.name) == ("plot_all_reduce", "plot_all_gather")
    marks, lines = second.series
    assert (marks.drawn, lines.drawn) == ("marks", "line")
    assert marks.points[0] == (1024, 9000 + 1024)
    assert lines.points[-1][1] == pytest.approx(9000 + SIZES[-1], rel=0.01)
    assert [series.name for series in residuals.series] == ["all_gather host 8", "all_reduce host 8"]
    assert all(abs(missed) < 0.01 for _, missed in residuals.series[0].points)


def test_curves_through_disturbed_times_are_called_poor() -> None:
    poor = "Measure again while nothing else runs"
    assert poor in show(Calibration(collectives=measured("host", 1, 100, noise=0.6))).verdict
    assert poor not in show(Calibration(collectives=measured("host", 1, 100))).verdict


def test_outliers_and_badly_measured_sizes_are_named() -> None:
    samples = list(measured("host", 1, 100))
    samples[0] = CalibratedCollective(
        op="all_reduce", level="host", ranks=8, hosts=1, bytes=1024, ns=(20_000,) * 9 + (90_000,)
    )
    samples[5] = CalibratedCollective(
        op="all_reduce", level="host", ranks=8, hosts=1, bytes=SIZES[5], ns=(9_000, 10_000, 20_000, 31_000, 40_000)
    )
    notes = show(Calibration(collectives=tuple(samples))).notes
    assert any(note.startswith("1 sample of 90 took more than 3x") for note in notes)
    assert any("Spread above 25.0%: all_reduce host 8 at 32.8 kB" in note for note in notes)


def test_little_is_said_of_little() -> None:
    assert show(Calibration()).verdict == "Nothing was measured that a curve can be fitted to."
    two = show(Calibration(collectives=measured("host", 1, 100, sizes=[1024, 2**20])))
    assert "accuracy unknown" in two.verdict
    assert any("Accuracy unknown" in note for note in two.notes)
    one = show(Calibration(collectives=measured("host", 1, 100, sizes=[1024])))
    assert "Too few sizes measured to fit a curve: all_reduce host 8." in one.notes


def test_two_calibrations_are_compared_where_both_have_the_group() -> None:
    slower = Calibration(collectives=measured("host", 1, 50, sizes=[2**24, 2**25, 2**26, 2**28], seed=2))
    other = Calibration(collectives=measured("host", 1, 100) + measured("world", 2, 40, seed=1))
    result = show(slower, other)
    rows = table(result, "compared")
    assert [row["bytes"] for row in rows] == [2**24, 2**25, 2**26, 2**28]
    assert all(row["ratio"] == pytest.approx(2, rel=0.1) for row in rows)
    assert [row["reach"] for row in rows] == ["", "", "", "4x the largest size measured"]
    assert all(row["differs"] for row in rows[:3])
    assert "Compared at 4 sizes" in result.verdict
    same = show(Calibration(collectives=measured("host", 1, 100, seed=5)), other)
    assert sum(row["differs"] for row in table(same, "compared")) <= 1
    assert "cannot be compared" in show(slower, Calibration()).verdict


def test_json_holds_no_infinite_number() -> None:
    result = show(Calibration(collectives=measured("host", 1, 100, sizes=[1024, 2**20])), Calibration())
    flat = json.loads(json.dumps(result.to_json()), parse_constant=pytest.fail)
    assert flat["schema"] == "lostflops.calibrate/1"
    assert all(isfinite(value) for value in flat["constants"][0].values() if isinstance(value, float))


def test_times_that_fall_with_size_are_named() -> None:
    falling = tuple(
        CalibratedCollective(
            op="all_reduce", level="host", ranks=8, hosts=1, bytes=size, ns=(round(1e7 / (1 + place)),) * 5
        )
        for place, size in enumerate(SIZES)
    )
    notes = show(Calibration(collectives=falling)).notes
    assert any("which the model cannot fit: all_reduce host 8." in note for note in notes)
    assert not any(
        "the model cannot fit" in note for note in show(Calibration(collectives=measured("host", 1, 100))).notes
    )
