from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lostflops.core.errors import UsageError
from lostflops.predict.costs.kernels.rescale import rate_ratio
from lostflops.predict.costs.times import CommGroup
from lostflops.predict.estimate.demand import estimate_demand
from lostflops.predict.estimate.description import ModelDescription, PlannedJob
from lostflops.predict.estimate.estimate import estimate
from lostflops.predict.estimate.machine import machine
from lostflops.predict.estimate.rates import MeasuredRates, PublishedRates, device_named
from lostflops.predict.estimate.result import result


def calibration(path: Path, **changed: Any) -> Path:
    sizes = [1 << power for power in range(10, 26)]
    collectives = [
        {"op": op, "level": "host", "ranks": 4, "hosts": 1, "bytes": size, "ns": [10_000 + size] * 3}
        for op in ("all_reduce", "all_gather", "reduce_scatter")
        for size in sizes
    ]
    matmuls = [
        {"dtype": "bfloat16", "m": side, "n": side, "k": side, "ns": [round(2 * side**3 / rate * 1e9)]}
        for side, rate in ((256, 1e12), (1024, 5e12), (4096, 9e12), (8192, 10e12))
    ]
    found = {
        "schema": "lostflops.calibration/1",
        "backend": "gloo",
        "device": "cpu",
        "world_size": 4,
        "hosts": [{"host": "a", "ranks": [0, 1, 2, 3]}],
        "collectives": collectives,
        "matmuls": matmuls,
        "memory": [{"kind": "copy", "bytes": 1 << 28, "ns": [1 << 28]}, {"kind": "add", "bytes": 1 << 10, "ns": [1]}],
        "launches": [{"kind": "small op", "ns": [3000, 4000, 5000]}],
    }
    path.write_text(json.dumps(found | changed))
    return path


def test_a_calibration_tells_rates_by_shape(tmp_path: Path) -> None:
    known = machine("bf16", device=None, topology=None, calibration=calibration(tmp_path / "c.json"), memory=None)
    assert known.rates is not None
    small, large = known.rates.flops(128, 128, 128), known.rates.flops(9000, 9000, 9000)
    assert (small.low, large.high) == (pytest.approx(1e12, rel=0.01), pytest.approx(10e12, rel=0.01))
    assert known.rates.memory.high == pytest.approx(1e9)
    assert (known.rates.launch_ns, known.rates.peak, known.per_host) == (4000, None, 4)
    assert known.times is not None
    assert known.capacity is None


def test_a_calibrated_device_without_a_known_peak_has_a_step_and_no_mfu(tmp_path: Path) -> None:
    known = machine("bf16", device=None, topology=None, calibration=calibration(tmp_path / "c.json"), memory=None)
    model = ModelDescription(layers=2, hidden=256, heads=4, ffn=1024, vocabulary=1000)
    found = estimate(estimate_demand(model, PlannedJob(sequence=128, dp=4), known.per_host), known)
    assert found.step is not None
    assert found.mfu is None
    assert found.step.transfers[0][1].source.startswith("calibration")
    assert "MFU is unknown because the peak of this device is unknown." in result(found).notes


def test_a_dtype_that_was_not_measured_is_refused(tmp_path: Path) -> None:
    path = calibration(tmp_path / "c.json")
    with pytest.raises(UsageError, match="has no matmuls in float16"):
        machine("fp16", device=None, topology=None, calibration=path, memory=None)


@pytest.mark.parametrize("lacking", [{}, {"matmuls": []}])
def test_a_dtype_that_was_not_measured_leaves_memory_and_launches_measured(
    lacking: dict[str, Any], tmp_path: Path
) -> None:
    path = calibration(tmp_path / "c.json", device="cuda", device_name="NVIDIA H100 80GB HBM3", **lacking)
    known = machine("fp16", device=None, topology=None, calibration=path, memory=None)
    assert known.rates is not None
    published = PublishedRates(device_named("H100-SXM5"), "fp16")
    assert known.rates.flops(4096, 4096, 4096) == published.flops(4096, 4096, 4096)
    assert (known.rates.memory.high, known.rates.launch_ns) == (pytest.approx(1e9), 4000)
    assert known.rates.peak == published.peak
    model = ModelDescription(layers=2, hidden=256, heads=4, ffn=1024, vocabulary=1000)
    (note, *_) = result(estimate(estimate_demand(model, PlannedJob(sequence=128, dtype="fp16"), 8), known)).notes
    assert note.startswith("Rates: matmuls as published, not measured (H100-SXM5")
    assert note.endswith("memory and launches: calibration of an unknown date.")


def test_a_calibration_of_a_known_device_brings_its_peak_and_memory(tmp_path: Path) -> None:
    path = calibration(tmp_path / "c.json", device="cuda", device_name="NVIDIA H100 80GB HBM3")
    for named in (None, "H100-SXM5"):
        known = machine("bf16", device=named, topology=None, calibration=path, memory=None)
        assert (known.name, known.capacity) == ("H100-SXM5", int(79.1 * 2**30))
        assert isinstance(known.rates, MeasuredRates)
        assert known.rates.peak == 989e12
    with pytest.raises(UsageError, match="was measured on H100-SXM5, not on B200"):
        machine("bf16", device="B200", topology=None, calibration=path, memory=None)


def test_a_calibration_of_collectives_alone_leaves_the_device_as_published(tmp_path: Path) -> None:
    alone = {"matmuls": [], "memory": [], "launches": []}
    path = calibration(tmp_path / "c.json", device="cuda", device_name="NVIDIA H100 80GB HBM3", **alone)
    known = machine("bf16", device=None, topology=None, calibration=path, memory=None)
    assert known.rates == PublishedRates(device_named("H100-SXM5"), "bf16")
    unnamed = calibration(tmp_path / "d.json", **alone)
    assert machine("bf16", device=None, topology=None, calibration=unnamed, memory=None).rates is None


def test_a_device_brings_its_usual_machine() -> None:
    known = machine("bf16", device="NVIDIA H100 80GB HBM3", topology=None, calibration=None, memory=None)
    assert (known.name, known.per_host) == ("H100-SXM5", 8)
    assert known.times is not None
    assert known.capacity == int(79.1 * 2**30)
    assert machine("bf16", device="B200", topology=None, calibration=None, memory=5).capacity == 5
    assert machine("bf16", device=None, topology="dgx-a100", calibration=None, memory=None).name == "A100-SXM4-80GB"


def test_what_is_not_known_is_none() -> None:
    known = machine("bf16", device="V100-SXM2", topology=None, calibration=None, memory=None)
    assert (known.times, known.capacity) == (None, None)
    with pytest.raises(UsageError, match="no device is called 'H1000': write one of P4, P100-PCIe"):
        machine("bf16", device="H1000", topology=None, calibration=None, memory=None)


def test_published_rates_fall_for_short_sides() -> None:
    rates = PublishedRates(device_named("H100-SXM5"), "bf16")
    large, short = rates.flops(8192, 8192, 8192), rates.flops(64, 8192, 8192)
    assert large.high == pytest.approx(0.93 * 794e12, rel=0.02)
    assert short.low / large.low == pytest.approx(short.high / large.high)
    assert short.high < large.high / 2
    assert 0.5 * 989e12 * 0.9 < large.low < 794e12


def test_attention_is_not_in_fp8() -> None:
    bf16, fp8 = (PublishedRates(device_named("H100-SXM5"), dtype) for dtype in ("bf16", "fp8"))
    assert fp8.attention(8192) == bf16.attention(8192)
    assert fp8.flops(0, 0, 0).high == pytest.approx(0.9 * 1403e12, rel=0.01)
    assert 1.5 * bf16.flops(0, 0, 0).high < fp8.flops(0, 0, 0).high < fp8.device.peaks["fp8"] * 1e12


@pytest.mark.parametrize(("name", "per_host"), [("H100-SXM5", 8), ("H200", 8), ("GB200", 72)])
def test_devices_of_large_jobs_have_rates_and_a_network(name: str, per_host: int) -> None:
    found = machine("fp8", device=name, topology=None, calibration=None, memory=None)
    assert found.per_host == per_host
    assert found.rates is not None
    assert found.times is not None
    assert found.times.time("all_gather", 1 << 30, CommGroup(16 * per_host, 16)).ns > 0


def test_a_calibration_of_another_device_is_refused(tmp_path: Path) -> None:
    path = calibration(tmp_path / "c.json")
    with pytest.raises(UsageError, match="was measured on cpu, not on H100-SXM5"):
        machine("bf16", device="H100-SXM5", topology=None, calibration=path, memory=None)


def test_a_device_with_the_chip_of_another_has_its_rates() -> None:
    ours, measured = (PublishedRates(device_named(name), "bf16") for name in ("B300", "B200"))
    assert ours.flops(8192, 8192, 8192) == measured.flops(8192, 8192, 8192)
    assert "public measurements of B200, which has the same chip" in ours.source
    assert measured.source.endswith("; public measurements")


@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp8"])
@pytest.mark.parametrize(("own", "other"), [("H100-SXM5", "B200"), ("A100-SXM4-80GB", "H100-SXM5"), ("B200", "B300")])
def test_a_described_job_and_a_measured_one_get_the_same_ratio(own: str, other: str, dtype: str) -> None:
    if dtype == "fp8" and own.startswith("A100"):
        pytest.skip("A100 has no fp8")
    devices = [device_named(name) for name in (own, other)]
    here, there = (PublishedRates(device, dtype).flops(8192, 8192, 8192) for device in devices)
    assert rate_ratio(*devices, dtype) == pytest.approx((here.low + here.high) / (there.low + there.high))
