"""`lostflops devices` on runs whose truth is plain: one that only moves memory, and one of a CPU."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from tests.explain.advise.device_traces import Op, trace

from lostflops.account.facts.devices import find_device
from lostflops.cli.main import main
from lostflops.ingest import ingest

ELEMENTS = 1_000_000_000
COPY = "void at::native::vectorized_elementwise_kernel<4, at::native::AUnaryFunctor<float>, std::array<char*, 2> >"
SCALE = Op("aten::mul", COPY, 4_500, [[ELEMENTS], []])
PRODUCT = Op("aten::mm", "ampere_sgemm_128x64_nn", 40, [[128, 512], [512, 512]])
PRICES = """
[A100-SXM4-80GB]
usd_per_hour = 2
[H200-SXM]
usd_per_hour = 3
[L4]
usd_per_hour = 2
watts = 60
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An A100 moves 8 GB at 1.8 TB/s ten times a step."""
    return trace(tmp_path_factory.mktemp("devices"), [SCALE] * 10 + [PRODUCT])


@pytest.fixture
def prices(tmp_path: Path) -> Path:
    file = tmp_path / "prices.toml"
    file.write_text(PRICES)
    return file


def called(*words: object) -> int:
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    return int(ended.value.code or 0)


def ask_devices(capsys: pytest.CaptureFixture[str], *words: object) -> dict[str, Any]:
    capsys.readouterr()
    assert called("devices", *words, "--json") == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert found["schema"] == "lostflops.devices/1"
    return found


def bandwidth(name: str) -> float:
    device = find_device(name)
    assert device is not None
    assert device.memory_gbs is not None
    return device.memory_gbs


def test_a_run_that_moves_memory_is_ranked_by_bandwidth(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = ask_devices(capsys, run)["devices"]
    assert len(rows) > 20
    assert [row["step_ns"] for row in rows] == sorted(row["step_ns"] for row in rows)
    for place, faster in enumerate(rows):
        for slower in rows[place + 1 :]:
            assert bandwidth(faster["device"]) > 0.9 * bandwidth(slower["device"]), (faster, slower)
    (now,) = [row for row in rows if row["is_now"]]
    assert now["device"] == "A100-SXM4-80GB"
    assert now["speed"] == pytest.approx(1)
    times = {row["device"]: row for row in rows}
    assert times["H200-SXM"]["speed"] == pytest.approx(4800 / bandwidth("A100-SXM4-80GB"), rel=0.15)
    assert all(row["limit"] == "memory" for row in rows)
    assert all(row["low_ns"] <= row["step_ns"] <= row["high_ns"] for row in rows)


def test_probabilities_sum_to_one_and_favour_the_first(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = ask_devices(capsys, run)["devices"]
    assert sum(row["first"] for row in rows) == pytest.approx(1)
    assert next(row for row in rows if row["is_now"])["first"] < 0.01
    assert rows[0]["may_be_first"]


def test_where_the_host_sets_the_pace_the_device_of_the_run_is_no_more_likely_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tiny = Op("aten::add", COPY, 2, [[64], [64]], host_us=50)
    product = Op("aten::mm", "ampere_sgemm_128x64_nn", 2, [[8, 8], [8, 8]], host_us=50)
    rows = ask_devices(capsys, trace(tmp_path, [tiny] * 20 + [product]))["devices"]
    assert {row["limit"] for row in rows} == {"host"}
    assert len({row["step_ns"] for row in rows}) == 1
    (now,) = [row for row in rows if row["is_now"]]
    assert now["first"] == pytest.approx(1 / len(rows), rel=0.1)


def test_devices_that_cannot_be_compared_have_a_reason(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = ask_devices(capsys, run)
    left_out = {name: row["reason"] for row in found["left_out"] for name in row["names"]}
    assert "the data sheet is not known well enough" in left_out["A100-PG509"]
    assert not left_out.keys() & {row["device"] for row in found["devices"]}


def test_costs_follow_time_and_price(run: Path, prices: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = ask_devices(capsys, run, "--prices", prices, "--samples-per-step", "32")
    steps = {row["device"]: row["step_ns"] for row in found["devices"]}
    costs = {row["device"]: row for row in found["costs"]}
    for name, usd_per_hour in (("A100-SXM4-80GB", 2), ("H200-SXM", 3), ("L4", 2)):
        per_step = usd_per_hour * steps[name] / 3.6e12
        assert costs[name]["usd_per_1000_steps"] == pytest.approx(1000 * per_step, rel=1e-6)
        assert costs[name]["usd_per_million"] == pytest.approx(per_step / 32 * 1e6, rel=1e-6)
        assert costs[name]["samples_per_second"] == pytest.approx(32 / steps[name] * 1e9, rel=1e-6)
    assert costs["L4"]["joules_per_step"] == pytest.approx(60 * steps["L4"] / 1e9, rel=1e-6)
    assert costs["H200-SXM"]["joules_per_step"] == pytest.approx(700 * steps["H200-SXM"] / 1e9, rel=1e-6)
    assert costs["B200"]["usd_per_1000_steps"] is None
    assert found["cheapest"] == found["costs"][0]["device"] == "H200-SXM"
    assert [name for name, row in costs.items() if row["efficient"]] == ["H200-SXM"]
    assert "Energy is an upper limit for devices without watts" in " ".join(found["notes"])
    drawn = {series["series"] for series in found["time_and_price"]}
    assert drawn == {"H200-SXM", "A100-SXM4-80GB (now)", "L4"}


def test_power_is_paid_on_top(run: Path, prices: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = ask_devices(capsys, run, "--prices", prices)["costs"][0]["usd_per_1000_steps"]
    prices.write_text("usd_per_kwh = 1\n" + PRICES)
    after = ask_devices(capsys, run, "--prices", prices)["costs"][0]["usd_per_1000_steps"]
    assert after / before == pytest.approx((3 + 0.7) / 3)


def test_a_price_of_a_device_that_is_not_ranked_is_noted(
    tmp_path: Path, prices: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prices.write_text("usd_per_kwh = 1\n[A10G]\nusd_per_hour = 1\n[L4]\nusd_per_hour = 1\n")
    found = ask_devices(capsys, cpu_run(tmp_path, [("aten::mul", [[64], []])]), "--prices", prices)
    assert "Not ranked, though they have a price: A10G." in found["notes"]
    assert "L4, the only ranked device with a known cost, costs $" in found["verdict"]


def test_a_person_reads_which_device_to_choose(run: Path, prices: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert called("devices", run, "--prices", prices) == 0
    text = capsys.readouterr().out
    words = " ".join(text.split())
    assert re.search(r"has the shortest predicted step: .* ms per step \([\d.]+ to [\d.]+\), ", words)
    assert "x as fast as the A100-SXM4-80GB of this run. It is the fastest with probability " in words
    assert " may be as fast. H200-SXM is the cheapest of 3 devices with a price, with probability " in words
    assert "Step time against cost" in words
    assert max(map(len, text.splitlines()[:40])) <= 80
    assert f"Next: lostflops whatif {run} --change device=H200-SXM" in text
    assert called("devices", run) == 0
    assert "For costs, write [NAME]" in " ".join(capsys.readouterr().out.split())


def test_an_interval_is_in_the_unit_of_its_step(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = ask_devices(capsys, run)["devices"]
    assert all(re.fullmatch(r"[\d.,]+ to [\d.,]+", row["interval"]) for row in rows)
    (now,) = [row for row in rows if row["is_now"]]
    low, high = map(float, now["interval"].split(" to "))
    assert (low * 1e6, high * 1e6) == pytest.approx((now["low_ns"], now["high_ns"]), rel=0.006)


def test_pictures_are_files(run: Path, prices: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    svg, page = tmp_path / "devices.svg", tmp_path / "devices.html"
    assert called("devices", run, "--prices", prices, "--plot", svg, "--html", page) == 0
    assert "H200-SXM" in svg.read_text()
    assert page.read_text().startswith("<!doctype html>")
    assert "Wrote" in capsys.readouterr().out
    assert called("devices", run, "--plot", svg) == 2
    assert "--plot draws step time against cost: give --prices too" in capsys.readouterr().err
    assert called("devices", run, "--prices", prices, "--plot", tmp_path / "devices.png") == 2
    assert f"--plot writes SVG: name the file {svg}" in capsys.readouterr().err
    assert called("devices", run, "--prices", prices, "--plot", tmp_path / "nowhere" / "devices.svg") == 2
    assert f"there is no folder {tmp_path / 'nowhere'}" in capsys.readouterr().err


def test_a_wrong_price_is_an_error(run: Path, prices: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prices.write_text("[L4]\nusd_per_hour = -2")
    assert called("devices", run, "--prices", prices) == 2
    assert "prices.toml, line 2: L4 usd_per_hour = -2 must be a number from 0" in capsys.readouterr().err


def test_an_unknown_device_cannot_be_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = trace(tmp_path, [SCALE, PRODUCT], device="Abacus 3000")
    assert called("devices", made) == 2
    error = capsys.readouterr().err
    assert "Abacus 3000 is not a known device" in error
    assert "lostflops estimate --help" in error


def test_ranks_on_different_devices_cannot_be_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = []
    for rank, device in enumerate(("NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB")):
        trace(tmp_path / str(rank), [SCALE, PRODUCT], device=device)
        files.append(tmp_path / f"rank{rank}.pt.trace.json")
        (tmp_path / str(rank) / "rank0.pt.trace.json").rename(files[-1])
    ingest(files, tmp_path / "run", workers=1)
    assert called("devices", tmp_path / "run") == 2
    names = "NVIDIA A100-SXM4-80GB and NVIDIA H100 80GB HBM3"
    assert f"ranks have different devices ({names})" in " ".join(capsys.readouterr().err.split())
    assert called("whatif", tmp_path / "run", "--change", "device=B200") == 2
    assert f"the peaks of {names} are not known" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("device", "ops", "says"),
    [
        ("NVIDIA A10G", [SCALE, PRODUCT], "no confirmed fp32 peak of A10G is known (3"),
        (
            "NVIDIA A100-SXM4-80GB",
            [SCALE, Op("aten::mm", "ampere_sgemm_128x64_nn", 40)],
            "record_shapes=True (36 devices)",
        ),
    ],
)
def test_no_device_is_called_fastest_if_no_other_can_be_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], device: str, ops: list[Op], says: str
) -> None:
    assert called("devices", trace(tmp_path, ops, device=device)) == 2
    error = " ".join(capsys.readouterr().err.split())
    assert "the step cannot be predicted on any other device: no " in error
    assert says in error


def cpu_op(name: str, start: int, shapes: list[list[int]], dur: int = 90) -> dict[str, Any]:
    types = ["float" if shape else "Scalar" for shape in shapes]
    told = {"Input Dims": shapes, "Input type": types} if shapes else {}
    return {"ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": 1, "ts": start, "dur": dur, "args": told}


def cpu_run(
    folder: Path, ops: list[tuple[str, list[list[int]]]], steps: int = 4, ranks: int = 1, between: int = 2
) -> Path:
    """A run whose ops take 90 us each, with Python for `between` us after each."""
    events, clock = [], 1000
    for step in range(steps):
        begin = clock
        for name, shapes in ops:
            events.append(cpu_op(name, clock, shapes))
            clock += 90 + between
        mark = {"cat": "user_annotation", "name": f"ProfilerStep#{step}", "ts": begin, "dur": clock - begin}
        events.append({"ph": "X", "pid": 1, "tid": 1, "args": {}, **mark})
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "rank0.pt.trace.json"
    info = {"rank": 0, "world_size": ranks, "backend": "gloo"}
    file.write_text(json.dumps({"schemaVersion": 1, "distributedInfo": info, "traceEvents": events}))
    ingest([file], folder / "run", workers=1)
    return folder / "run"


def test_a_rank_of_several_on_cpus_is_refused_though_the_others_were_not_recorded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert called("devices", cpu_run(tmp_path, [("aten::mul", [[ELEMENTS], []])], ranks=4)) == 2
    assert "several ranks without an accelerator" in capsys.readouterr().err


def test_a_run_of_a_cpu_is_ranked_by_the_work_of_its_ops(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Ten elementwise ops on 8 GB: a device takes at least 80 GB over its bandwidth, and the host launches little."""
    made = cpu_run(tmp_path, [("aten::mul", [[ELEMENTS], []])] * 10 + [("aten::view", [[ELEMENTS], []])])
    found = ask_devices(capsys, made)
    rows = found["devices"]
    for row in rows:
        assert row["step_ns"] >= 80e9 / bandwidth(row["device"])
        assert row["step_ns"] <= 1.6 * 80e9 / bandwidth(row["device"])
        assert row["limit"] == "memory"
        assert not row["is_now"]
    assert [row["step_ns"] for row in rows] == sorted(row["step_ns"] for row in rows)
    assert "This run used no accelerator" in " ".join(found["notes"])
    assert "10 kernels" in " ".join(found["notes"])


def test_small_ops_of_a_cpu_are_limited_by_the_host(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = ask_devices(capsys, cpu_run(tmp_path, [("aten::mul", [[64], []])] * 50))
    assert {row["limit"] for row in found["devices"]} == {"host"}
    assert {row["step_ns"] for row in found["devices"]} == {50 * 6_000}
    assert found["devices"][0]["first"] < 0.2
    count = len(found["devices"])
    assert found["verdict"].startswith(f"The host limits the job, so {count} devices may be equally fast: 300 us per ")
    assert found["verdict"].endswith("x as fast as the CPUs of this run. Choose by price.")


def test_what_to_run_next_applies_to_a_run_of_a_cpu(
    tmp_path: Path, prices: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = cpu_run(tmp_path, [("aten::mul", [[64], []])] * 50)
    assert called("devices", made) == 0
    assert f"Next: lostflops report {made}" in capsys.readouterr().out
    assert called("devices", made, "--prices", prices) == 0
    assert f"Next: lostflops report {made}" in capsys.readouterr().out


def test_python_between_ops_takes_as_long_with_any_device(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = ask_devices(capsys, cpu_run(tmp_path, [("aten::mul", [[64], []])] * 50, between=1_000))
    assert {row["step_ns"] for row in found["devices"]} == {50 * 1_000_000}
    assert {row["limit"] for row in found["devices"]} == {"host"}


@pytest.mark.parametrize(
    ("ops", "says"),
    [
        ([("aten::mul", [])], "no shapes of ops were recorded"),
        ([("aten::mul", [[100], []]), ("mylib::fused", [[100], []])], "ops that take 50.0% of the time have no shapes"),
    ],
)
def test_a_run_of_a_cpu_whose_work_is_unknown_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], ops: list[tuple[str, list[list[int]]]], says: str
) -> None:
    assert called("devices", cpu_run(tmp_path, ops)) == 2
    error = capsys.readouterr().err
    assert says in error
    assert "lostflops estimate" in error
