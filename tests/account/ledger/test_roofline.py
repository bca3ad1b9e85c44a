"""The roofline: products of known size and length beside the peaks of a known device."""

import pytest

from lostflops.account.facts.devices import find_device
from lostflops.account.facts.op_arguments import CallWork
from lostflops.account.ledger.roofline import OpRoofline
from lostflops.account.ledger.scope import scope
from lostflops.account.ledger.work import Effort, RankWork
from lostflops.explain.analyze.kernels import kernels
from lostflops.ingest import ingest
from lostflops.store.run import Run
from lostflops.testing import Kernel, Model, SyntheticCluster
from memory_run import MemoryRun

H100 = "NVIDIA H100 80GB HBM3"
LARGE, SMALL = (4096, 2048, 1024), (64, 32, 16)


@pytest.fixture
def run():
    with MemoryRun(ranks=[{"rank": 0, "device": H100, "events": 1}]) as run:
        yield run


def made(run: MemoryRun, efforts: dict[Effort, tuple[int, int]], compute_ns: int = 1000) -> OpRoofline:
    return OpRoofline.of(run, scope(run, None), RankWork(efforts=efforts), compute_ns)


def effort(flops: int, moved: int, dtype: str = "bf16", op: str = "aten::mm") -> Effort:
    return Effort(op, CallWork(model=flops, recompute=0, bytes=moved, dtype=dtype), again=False)


def test_points_lie_where_flops_bytes_and_time_say(run):
    roofline = made(run, {effort(600_000, 1_000): (2, 3), effort(100, 100): (1, 50)})
    measured, roof = roofline.plot().to_json()
    assert measured == {
        "series": "aten::mm bf16",
        "flop_per_byte": [1, 600],
        "flop_per_second": [2e9, pytest.approx(4e14)],
    }
    assert roof["series"] == "bf16 peak 989 TFLOPS, memory 3350 GB/s"
    assert roof["flop_per_byte"] == pytest.approx([0.25, 989_000 / 3350, 2400])
    assert roof["flop_per_second"] == pytest.approx([0.25 * 3350e9, 989e12, 989e12])


def test_the_roof_of_an_op_is_the_least_time_of_its_shapes(run):
    """One shape needs 2 ns of memory, the other 8 ns of compute: 10 of the 20 ns that both take."""
    roofline = made(run, {effort(10, 2 * 3350): (1, 5), effort(8 * 989_000, 10): (1, 15)})
    (row,) = roofline.table().to_json()
    assert row["of_roof"] == pytest.approx(0.5)
    assert row["of_peak"] == pytest.approx((10 + 8 * 989_000) / 20 / 989_000)
    assert row["bound"] == "compute"
    assert (row["ns"], row["calls"], row["flop"]) == (20, 2, 10 + 8 * 989_000)


def test_a_call_that_a_window_cuts_short_has_the_intensity_of_a_whole_one(run):
    roofline = made(run, {effort(24, 12): (0.01, 5)})
    (row,) = roofline.table().to_json()
    assert row["flop_per_byte"] == pytest.approx(2)
    assert roofline.plot().to_json()[0]["flop_per_byte"] == [pytest.approx(2)]


def test_memory_bounds_small_products(run):
    (row,) = made(run, {effort(10, 3350): (1, 4)}).table().to_json()
    assert (row["bound"], row["of_roof"]) == ("memory", pytest.approx(0.25))


def test_what_is_unknown_is_counted_and_not_invented(run):
    roofline = made(run, {effort(100, 100, "fp64"): (1, 400), effort(100, 0): (1, 300)})
    assert [series.name for series in roofline.plot().series] == ["aten::mm fp64"]
    (row,) = roofline.table().to_json()
    assert row["of_peak"] is row["of_roof"] is row["bound"] is None
    assert list(roofline.notes()) == [
        "60.0% of compute is not in the roofline: the FLOPs or bytes of its ops are unknown.",
        "The device's peak for fp64 is unknown, so the roofline has no roof for it.",
    ]


def test_rates_above_the_peak_are_said_to_be_shared_time(run):
    assert list(made(run, {effort(989_001_000, 1): (1, 1000)}).notes()) == [
        "Above the peak: aten::mm, because kernels that run at the same time share their time."
    ]


def test_what_moves_faster_than_memory_is_said_to_be_in_caches(run):
    """10 MB in 1 us are more than memory gives, and few FLOPs."""
    found = made(run, {effort(1000, 10_000_000): (1, 1000)})
    (row,) = found.table().to_json()
    assert row["of_roof"] > 1
    assert [*found.notes()] == [
        "Above the memory bandwidth: aten::mm, because data is in caches, or kernels run at the same time."
    ]


def test_a_cpu_has_no_roof():
    with MemoryRun(ranks=[{"rank": 0, "events": 1}]) as run:
        roofline = made(run, {effort(100, 100): (1, 1000)})
    assert [series.drawn for series in roofline.plot().series] == ["marks"]
    assert "The device's peak" in next(roofline.notes())


def test_no_shapes_no_roofline(run):
    roofline = made(run, {})
    assert roofline.plot().series == ()
    assert "record_shapes=True" in next(roofline.notes())


def test_kernels_of_a_cluster(tmp_path):
    cluster = SyntheticCluster(
        ranks=2, steps=2, noise=0.0, model=Model(layers=2, kernels=(Kernel(100_000, LARGE), Kernel(2_000, SMALL)))
    )
    ingest(cluster.generate().traces.write(tmp_path / "traces"), tmp_path / "run", workers=1)
    with Run.open(tmp_path / "run") as run:
        found = kernels(run).to_json()
        device = find_device(run.sql("select any_value(device) from ranks").fetchall()[0][0])
    row = found["roofline_ops"][0]
    peak = device.peaks[row["dtype"]] * 1e12
    assert row["of_peak"] == pytest.approx(row["flop_per_second"] / peak)
    forward = {
        (2 * m * k * n / (2 * (m * k + k * n + m * n)), 2 * m * k * n / ns * 1e9)
        for (m, k, n), ns in ((LARGE, 100_000), (SMALL, 2_000))
    }
    drawn = {
        point for one in found["roofline"] for point in zip(one["flop_per_byte"], one["flop_per_second"], strict=True)
    }
    for intensity, rate in forward:
        assert any(x == pytest.approx(intensity) and y == pytest.approx(rate, rel=0.01) for x, y in drawn)
