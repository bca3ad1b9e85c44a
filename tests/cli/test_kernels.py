"""`lostflops kernels`."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.cli.mini_traces import (
    BUSY,
    CALM,
    CPU_RANK,
    ELEMENTWISE,
    NVJET,
    SGEMM,
    TRITON,
    kernel,
    launch,
    make_run,
    occupied,
    op,
    step,
)


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("golden"), BUSY, CALM)


def answer(lostflops: Any, *words: str | Path) -> dict[str, Any]:
    outcome = lostflops("kernels", *words, "--json")
    assert (outcome.code, outcome.err) == (0, "")
    return json.loads(outcome.out)


def test_json_by_class(lostflops, golden: Path) -> None:
    """Occupancy is the mean over the time it is recorded for: 20 us at 50% and 20 us at 75%."""
    found = answer(lostflops, golden, "--rank", "0")
    pictures = {"roofline", "roofline_ops"}
    assert found.keys() == {"schema", "title", "verdict", "notes", "classes", "kernels", "device"} | pictures
    assert found["schema"] == "lostflops.kernels/1"
    assert found["classes"] == [
        {"class": "matmul", "count": 4, "ns": 60_000, "share": 60 / 70, "gap_ns": 10_000, "occupancy": 0.625},
        {"class": "elementwise", "count": 1, "ns": 10_000, "share": 10 / 70, "gap_ns": 0, "occupancy": 0.25},
    ]


def test_json_by_name(lostflops, golden: Path) -> None:
    """The launch gap of the Triton kernel is 4 of dispatch and 6 of launch, before it starts at 172."""
    rows = {row["name"]: row for row in answer(lostflops, golden, "--rank", "0")["kernels"]}
    assert {name: (row["count"], row["ns"], row["gap_ns"], row["occupancy"]) for name, row in rows.items()} == {
        NVJET: (2, 40_000, 0, 0.625),
        SGEMM: (1, 10_000, 0, None),
        TRITON: (1, 10_000, 10_000, None),
        ELEMENTWISE: (1, 10_000, 0, 0.25),
    }
    assert rows[NVJET]["share"] == 40 / 70
    assert rows[ELEMENTWISE]["class"] == "elementwise"
    assert rows[ELEMENTWISE]["short"] == "vectorized_elementwise_ke...float>>(int)"


def test_json_of_the_device(lostflops, golden: Path) -> None:
    """Of 60 us of products nvjet ran 40 on tensor cores and sgemm 10 on none; Triton's 10 do not tell."""
    assert answer(lostflops, golden, "--rank", "0")["device"] == {
        "busy": pytest.approx(95 / 172),
        "launch_gap_ns": 10_000,
        "launch_gap_share": pytest.approx(10 / 172),
        "tensor_core_share": pytest.approx(40 / 50),
        "tensor_core_unknown": pytest.approx(10 / 60),
        "occupancy": pytest.approx((50 * 20 + 75 * 20 + 25 * 10) / 50 / 100),
    }
    both = answer(lostflops, golden)["device"]
    assert both["busy"] == pytest.approx(185 / 312)
    assert both["launch_gap_ns"] == 18_000
    assert both["tensor_core_share"] == pytest.approx(130 / 140)


def test_text(lostflops, golden: Path) -> None:
    """Only 40 of 150 us of products have an occupancy."""
    lines = [line.rstrip() for line in lostflops("kernels", golden).out.splitlines()]
    assert lines[1] == "7 kernels (4 names); nvjet_tst_128x256_64x4_2x1_v_bz_coopA_NNT takes 81.2% of"
    assert any(line.split() == ["matmul", "6", "150", "us", "93.8%", "18.0", "us", "-"] for line in lines)
    assert any(line.split() == [TRITON, "1", "10.0", "us", "6.2%", "10.0", "us"] for line in lines)
    assert lines[-1] == f"Next: lostflops comm {golden}"


def test_one_step(lostflops, golden: Path) -> None:
    found = answer(lostflops, golden, "--rank", "0", "--step", "11")
    assert {row["name"]: row["ns"] for row in found["kernels"]} == {NVJET: 20_000, TRITON: 10_000}


def test_limit(lostflops, golden: Path) -> None:
    found = answer(lostflops, golden, "--limit", "1")
    assert [row["name"] for row in found["kernels"]] == [NVJET]
    assert sum(row["count"] for row in found["classes"]) == 7
    assert "... and 3 more" in lostflops("kernels", golden, "--limit", "1").out
    assert lostflops("kernels", golden, "--limit", "0").code == 2


def test_kernels_at_once_count_each(lostflops, tmp_path: Path) -> None:
    found = answer(lostflops, make_run(tmp_path, [kernel(1, 0, 10), kernel(2, 0, 10, SGEMM, 9)]))
    assert [row["ns"] for row in found["kernels"]] == [10_000, 10_000]
    assert found["device"]["busy"] == 1.0


def test_a_kernel_counts_where_it_starts_and_its_time_where_it_is_spent(lostflops, tmp_path: Path) -> None:
    """The second stream's kernel of step 1 ends in step 2."""
    events = [
        step(1, 0, 100),
        launch(1, 2),
        kernel(1, 10, 20),
        launch(2, 4),
        kernel(2, 20, 100, SGEMM, 9),
        step(2, 100, 100),
        launch(3, 102),
        kernel(3, 110, 20),
    ]
    run = make_run(tmp_path, events)
    first = {row["name"]: (row["count"], row["ns"]) for row in answer(lostflops, run, "--step", "1")["kernels"]}
    assert first == {NVJET: (1, 20_000), SGEMM: (1, 90_000)}
    second = {row["name"]: row["count"] for row in answer(lostflops, run, "--step", "2")["kernels"]}
    assert second == {NVJET: 1}


def test_an_occupancy_of_zero_is_no_estimate(lostflops, tmp_path: Path) -> None:
    """A kernel that runs occupies something; Kineto writes 0 for cuBLAS kernels that it knows nothing about."""
    run = make_run(tmp_path, [kernel(1, 0, 10, **occupied(0)), kernel(2, 10, 30, **occupied(80)), kernel(3, 40, 20)])
    assert answer(lostflops, run)["device"]["occupancy"] == pytest.approx(0.8)


def test_an_occupancy_of_less_than_half_of_the_time_is_no_mean(lostflops, tmp_path: Path) -> None:
    run = make_run(tmp_path, [kernel(1, 0, 29, **occupied(4)), kernel(2, 29, 30, SGEMM), kernel(3, 60, 5, SGEMM)])
    found = answer(lostflops, run)
    assert found["device"]["occupancy"] is None
    assert {row["name"]: row["occupancy"] for row in found["kernels"]} == {NVJET: pytest.approx(0.04), SGEMM: None}


def test_launch_gaps_are_those_of_the_host(lostflops, tmp_path: Path) -> None:
    """Of the gap from 20 to 60 the launching thread ran Python for 20, then an op for 8 up to the launch at 48, whose
    smallest latency is 10; the last 2 the kernel was queued."""
    events = [
        op("aten::mm", 0, 4),
        launch(1, 2),
        kernel(1, 12, 8),
        op("aten::mm", 40, 12),
        launch(2, 48),
        kernel(2, 60, 8, SGEMM),
    ]
    found = answer(lostflops, make_run(tmp_path, events))
    assert {row["name"]: row["gap_ns"] for row in found["kernels"]} == {NVJET: 0, SGEMM: 18_000}


def test_a_cpu_rank_lists_its_ops(lostflops, tmp_path: Path) -> None:
    found = answer(lostflops, make_run(tmp_path, CPU_RANK, device=""))
    rows = [(row["name"], row["class"], row["count"], row["ns"]) for row in found["kernels"]]
    assert rows == [("aten::addmm", "matmul", 1, 40_000), ("aten::relu", "elementwise", 1, 10_000)]


def test_no_kernel(lostflops, tmp_path: Path) -> None:
    found = answer(lostflops, make_run(tmp_path, [op("gloo:barrier", 0, 5)], device=""))
    assert found["verdict"] == "No kernel ran in this window."
    assert (found["kernels"], found["classes"]) == ([], [])
    assert found["device"]["occupancy"] is None
