"""What a device is known by, and which of its rates are certain."""

import gzip
import json
import re

import pytest

from lostflops.account.facts.devices import DEVICES, Device, find_device
from shared_data import TRACES, needs_traces

BY_NAME = {device.name: device for device in DEVICES}

IN_TRACES = {
    "AMD Instinct MI210": "MI210",
    "AMD Instinct MI300X": "MI300X",
    "AMD Instinct MI300X VF": "MI300X",
    "AMD Instinct MI350X": "MI350X",
    "AMD Radeon Graphics": None,  # a driver too old for the card: an MI250 here, elsewhere anything
    "ARTEMIS": None,  # an MTIA
    "": None,
    "NVIDIA A100-PG509-200": "A100-PG509",
    "NVIDIA A100-SXM4-80GB": "A100-SXM4-80GB",
    "NVIDIA B200": "B200",
    "NVIDIA H100 80GB HBM3": "H100-SXM5",
    "NVIDIA H800": "H800-SXM",
    "Tesla V100-DGXS-32GB": "V100-DGXS",
    "Tesla V100-PCIE-32GB": "V100-PCIe",
    "Tesla V100-SXM2-16GB": "V100-SXM2",
    "Tesla V100-SXM2-32GB": "V100-SXM2",
}
SIBLINGS = {
    "NVIDIA A10": "A10",
    "NVIDIA A10G": "A10G",
    "Tesla P4": "P4",
    "Tesla P100-PCIE-16GB": "P100-PCIe",
    "Tesla T4": "T4",
    "AMD Instinct MI100": "MI100",
    "NVIDIA L4": "L4",
    "NVIDIA L40S": "L40S",
    "NVIDIA H200": "H200-SXM",
    "NVIDIA B200": "B200",
    "NVIDIA GB200": "GB200",
    "NVIDIA A100-SXM4-40GB": "A100-SXM4-40GB",
    "A100-SXM4-40GB": "A100-SXM4-40GB",
    "NVIDIA A100-PCIE-40GB": "A100-PCIe-40GB",
    "NVIDIA A100 80GB PCIe": "A100-PCIe-80GB",
    "NVIDIA H100 PCIe": "H100-PCIe",
    "NVIDIA GeForce RTX 4090": "RTX 4090",
    "GeForce RTX 3090": "RTX 3090",
    "AMD Instinct MI250": "MI250 (one GCD)",
    "AMD Instinct MI250X": "MI250X (one GCD)",
    "nvidia h100 80gb hbm3": "H100-SXM5",
}
NO_TENSOR_CORES = {"P4", "P100-PCIe"}
NO_CHIP = {"A10G", "A100-PG509", "TPU v5p", "TPU v6e"}
TYPED = {
    "H200": "H200-SXM",
    "h200": "H200-SXM",
    "h200-sxm": "H200-SXM",
    "H200 SXM": "H200-SXM",
    "h200_sxm5": "H200-SXM",
    "NVIDIA H200-SXM-141GB": "H200-SXM",
    "H100-SXM5-80GB": "H100-SXM5",
    "h800": "H800-SXM",
    "h20": "H20",
    "NVIDIA H20": "H20",
    "NVIDIA B300 SXM6 AC": "B300",
    "b300": "B300",
    "GB200-186GB": "GB200",
    "gb200 nvl72": "GB200",
    "NVIDIA GB300": "GB300",
    "AMD Instinct MI325X": "MI325X",
    "AMD Instinct MI355X": "MI355X",
    "l40s": "L40S",
    "Google Cloud TPU v5p": "TPU v5p",
    "tpu-v5p": "TPU v5p",
    "v6e": "TPU v6e",
    "Trillium": "TPU v6e",
    "MI250X (one GCD)": "MI250X (one GCD)",
}
UNKNOWN = (
    "NVIDIA",
    "NVIDIA A100",  # any of five
    "NVIDIA A100X",
    "NVIDIA A100-SXM-64GB",
    "NVIDIA A100-SXM4-80GB MIG 3g.40gb",
    "NVIDIA A10-24Q",
    "NVIDIA A40-48Q",
    "GRID V100-SXM2-16GB",
    "NVIDIA A16",
    "NVIDIA A2",
    "NVIDIA L40",
    "NVIDIA L20",
    "NVIDIA H100",  # the name of boards made to order, with slower memory
    "NVIDIA H100 80GB HBM2e",
    "NVIDIA H100 64GB HBM2",
    "NVIDIA H100 NVL",
    "NVIDIA H20-3e",
    "NVIDIA H800 PCIe",
    "NVIDIA H200 NVL",
    "NVIDIA GH200 480GB",
    "NVIDIA GH200 144G HBM3e",
    "TPU v5",
    "NVIDIA GeForce RTX 3090 Ti",
    "NVIDIA GeForce RTX 4090 D",
    "NVIDIA GeForce RTX 4090 Laptop GPU",
    "Tesla V100S-PCIE-32GB",
    "AMD Instinct MI250X/MI250",
    "AMD Instinct MI250X / MI250",
    "AMD Instinct MI300A",
    "AMD Instinct MI308X",
)
ABSENT = {
    ("V100-SXM2", "bf16"): "no such tensor cores",
    ("V100-PCIe", "bf16"): "no such tensor cores",
    ("V100-DGXS", "bf16"): "no such tensor cores",
    ("V100-DGXS", "fp32"): "no source names this board's clock",
    ("A10G", "fp32"): "sources say 31.2, 31.5 and 35",
    ("A10G", "tf32"): "one source, and that from memory",
    ("RTX 4090", "fp8"): "one source",
    ("MI210", "tf32"): "no such matrix cores",
    ("MI250X (one GCD)", "tf32"): "no such matrix cores",
    ("MI350X", "tf32"): "no such matrix cores: emulated in software",
    ("MI355X", "tf32"): "no such matrix cores: emulated in software",
    ("H800-SXM", "fp32"): "one source",
    ("H800-SXM", "tf32"): "one source",
    ("TPU v5p", "fp8"): "one source says 459, another gives only int8",
    ("TPU v6e", "fp8"): "sources give only int8",
}
UNLISTED = {
    "NVIDIA H100 NVL": "sources give 835, 989 and, for a pair of cards, 1979",
    "NVIDIA GH200 480GB": "one source",
}
NO_LINKS = {
    "V100-DGXS": "no source",
    "A100-PCIe-40GB": "bridges are optional",
    "A100-PCIe-80GB": "bridges are optional",
    "MI100": "bridges are optional",
    "MI210": "bridges are optional",
    "MI250 (one GCD)": "differ by peer",
    "MI250X (one GCD)": "differ by peer",
    "MI350X": "no two sources agree",
    "MI355X": "no two sources agree",
    "TPU v5p": "a torus",
    "TPU v6e": "a torus",
}
SAME_PEAKS = {"H800-SXM": "H100-SXM5", "H200-SXM": "H100-SXM5", "B300": "B200", "GB300": "GB200", "MI325X": "MI300X"}
"""Devices with the same matrix cores and clocks as another: what both list must agree."""
TWO_SOURCES = (
    "H800-SXM",
    "H200-SXM",
    "H20",
    "B200",
    "GB200",
    "B300",
    "GB300",
    "MI325X",
    "MI355X",
    "L40S",
    "TPU v5p",
    "TPU v6e",
)
"""Devices that name both sources."""


def named(name: str) -> str | None:
    device = find_device(name)
    return device.name if device else None


@pytest.mark.parametrize(("name", "device"), [*IN_TRACES.items(), *SIBLINGS.items(), *TYPED.items()])
def test_names(name, device):
    assert named(name) == device


@pytest.mark.parametrize("name", [*UNKNOWN, *UNLISTED])
def test_what_is_not_certain_is_unknown(name):
    assert find_device(name) is None


@needs_traces
def test_every_device_in_the_traces_was_decided_on():
    seen = set()
    for path in TRACES.rglob("*.json.gz"):
        text = gzip.decompress(path.read_bytes()).decode(errors="replace")
        if at := re.search(r'"deviceProperties"\s*:\s*', text):
            devices, _ = json.JSONDecoder().raw_decode(text, at.end())
            seen |= {device["name"] for device in devices}
    assert seen == set(IN_TRACES)


@pytest.mark.parametrize("device", DEVICES, ids=lambda device: device.name)
def test_a_row_is_sound(device: Device):
    peaks = device.peaks
    half = "bf16" if device.name.startswith("TPU") else "fp32" if device.name in NO_TENSOR_CORES else "fp16"
    assert {half} <= set(peaks) <= {"bf16", "fp16", "fp8", "fp32", "tf32"}
    assert all(peak > 0 for peak in peaks.values())
    assert peaks.get("bf16", peaks[half]) == (peaks[half] / 2 if device.name == "MI100" else peaks[half])
    assert peaks.get("fp32", 0) <= peaks.get("tf32", peaks[half]) <= peaks[half]
    assert peaks.get("fp8", peaks[half]) >= peaks[half]
    assert device.source
    assert device.memory_gbs is None or device.memory_gbs > 0
    assert (device.scaleup_gbs is None) == (device.name in NO_LINKS)
    assert (device.chip is None) == (device.name in NO_CHIP)


@pytest.mark.parametrize(
    "device", [one for one in DEVICES if one.chip and "fp32" in one.peaks], ids=lambda one: one.name
)
def test_the_clock_that_units_and_peak_imply_is_a_clock(device: Device):
    """A wrong count of units or cores shows here: fp32 peak = 2 x units x cores x clock."""
    assert device.chip
    assert 1.0 < device.chip.clock_ghz(device.peaks["fp32"]) < 2.75


# Highest engine clocks of the data sheets, in GHz; of those boards whose data sheet gives one.
@pytest.mark.parametrize(
    ("name", "ghz"),
    [
        ("P100-PCIe", 1.303),
        ("T4", 1.59),
        ("V100-SXM2", 1.53),
        ("A100-SXM4-80GB", 1.41),
        ("A10", 1.695),
        ("RTX 4090", 2.52),
        ("H100-SXM5", 1.98),
        ("MI100", 1.502),
        ("MI210", 1.7),
        ("MI250 (one GCD)", 1.7),
        ("MI250X (one GCD)", 1.7),
        ("MI300X", 2.1),
        ("MI350X", 2.2),
        ("MI355X", 2.4),
    ],
)
def test_the_clock_is_that_of_the_data_sheet(name: str, ghz: float):
    device = BY_NAME[name]
    assert device.chip
    assert device.chip.clock_ghz(device.peaks["fp32"]) == pytest.approx(ghz, rel=0.02)


@pytest.mark.parametrize("device", DEVICES, ids=lambda device: device.name)
def test_each_match_leads_back_to_its_device(device: Device):
    assert [named(match) for match in device.matches] == [device.name] * len(device.matches)


def test_the_longest_match_wins():
    assert "A10" in BY_NAME["A10"].matches
    assert "A10".casefold() in "NVIDIA A10G".casefold()
    assert named("NVIDIA A10G") == "A10G"
    assert (named("NVIDIA GB200"), named("NVIDIA B200")) == ("GB200", "B200")


@pytest.mark.parametrize(("name", "dtype"), ABSENT, ids=" ".join)
def test_a_rate_that_is_not_confirmed_is_absent(name, dtype):
    assert dtype not in BY_NAME[name].peaks


def test_a_die_has_half_of_its_module():
    assert BY_NAME["MI250X (one GCD)"].peaks == {"bf16": 383 / 2, "fp16": 383 / 2, "fp32": 95.7 / 2}


@pytest.mark.parametrize(("name", "other"), SAME_PEAKS.items())
def test_the_same_cores_have_the_same_peaks(name, other):
    listed = BY_NAME[name].peaks
    assert listed == {dtype: BY_NAME[other].peaks[dtype] for dtype in listed}


def test_mi355x_reaches_what_its_clock_gives():
    units, clock_hz, flops_per_clock = 256, 2.4e9, 4096
    assert BY_NAME["MI355X"].peaks["bf16"] == pytest.approx(units * clock_hz * flops_per_clock / 1e12, abs=0.1)


@pytest.mark.parametrize("name", TWO_SOURCES)
def test_two_sources_are_named(name):
    assert " and " in BY_NAME[name].source


def test_names_and_matches_are_unique():
    matches = [re.sub(r"[\s_-]+", " ", match.casefold()) for device in DEVICES for match in device.matches]
    assert len(set(matches)) == len(matches)
    assert len(BY_NAME) == len(DEVICES)
