import json

import pytest

from lostflops.core.errors import UsageError
from lostflops.predict.costs.topology import TOPOLOGIES, read_topology


@pytest.mark.parametrize(
    ("name", "scaleup_gbs", "network_gbs", "nvls"),
    [
        ("dgx-a100", 300, 200, False),
        ("DGX-H100", 450, 400, True),
        ("dgx-h200", 450, 400, True),
        ("dgx-b200", 900, 400, True),
        ("dgx-b300", 900, 800, True),
        ("p4d.24xlarge", 300, 50, False),
        ("p5.48xlarge", 450, 400, True),
    ],
)
def test_named_machines_say_what_their_datasheets_do(name: str, scaleup_gbs: int, network_gbs: int, nvls: bool) -> None:
    topology = read_topology(name)
    assert (topology.gpus_per_host, topology.scaleup_gbs, topology.nvls) == (8, scaleup_gbs, nvls)
    assert topology.nics_per_host * topology.nic_gbs == network_gbs
    assert topology.source


@pytest.mark.parametrize(("name", "rail_gbs"), [("gb200-nvl72", 50), ("GB300-NVL72", 100)])
def test_a_rack_is_one_domain_with_a_rail_for_each_device(name: str, rail_gbs: int) -> None:
    rack = read_topology(name)
    assert (rack.gpus_per_host, rack.nics_per_host, rack.nic_gbs) == (72, 72, rail_gbs)
    assert (rack.scaleup_gbs, rack.link, rack.nvls) == (900, "nvlink", True)


def test_every_named_machine_is_tested() -> None:
    eights = {"dgx-a100", "dgx-h100", "dgx-h200", "dgx-b200", "dgx-b300", "p4d.24xlarge", "p5.48xlarge"}
    assert set(TOPOLOGIES) == {*eights, "gb200-nvl72", "gb300-nvl72"}


@pytest.mark.parametrize("kind", ["toml", "json"])
def test_a_file_describes_a_machine(kind: str, tmp_path) -> None:
    facts = {"device": "NVIDIA H100 80GB HBM3", "gpus_per_host": 4, "nics_per_host": 2, "nic_gbs": 25, "cpu": "amd"}
    path = tmp_path / f"mine.{kind}"
    toml = "\n".join(f"{key} = {json.dumps(value)}" for key, value in facts.items())
    path.write_text(json.dumps(facts) if kind == "json" else toml)
    topology = read_topology(path)
    assert (topology.name, topology.scaleup_gbs, topology.link, topology.cpu) == ("mine", 450, "nvlink", "amd")
    assert (topology.nics_per_host, topology.nic_gbs, topology.source) == (2, 25, str(path))


def test_a_device_without_nvlink_is_joined_by_pci(tmp_path) -> None:
    path = tmp_path / "l4.toml"
    path.write_text('device = "NVIDIA L4"\ngpus_per_host = 2')
    assert read_topology(path).link == "pci"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("gpus_per_hosts = 8", "unknown key 'gpus_per_hosts': known keys are name, device, gpus_per_host"),
        ("scaleup_gbs = 300", "has no gpus_per_host"),
        ("gpus_per_host = 8", "that of an unnamed device is unknown"),
        ('gpus_per_host = 8\ndevice = "Unheard Of"', "that of Unheard Of is unknown"),
        ("gpus_per_host = 0\nscaleup_gbs = 300", "must be above zero"),
        ("gpus_per_host = 8\nscaleup_gbs = nan", "must be above zero"),
        ("gpus_per_host = 8.5\nscaleup_gbs = 300", "wrong type"),
        ("gpus_per_host = true\nscaleup_gbs = 300", "wrong type"),
        ("gpus_per_host = 8\nscaleup_gbs = 300\nnic_gbs = 25", "give both"),
        ('gpus_per_host = 8\nscaleup_gbs = 300\nlink = "wires"', "one of nvlink, pci"),
        ("gpus_per_host = 8\nscaleup_gbs = 31\nnvls = true", "remove nvls"),
        ("gpus_per_host = ", "cannot be read"),
    ],
)
def test_what_cannot_be_is_refused_with_what_to_do(text: str, said: str, tmp_path) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(text)
    with pytest.raises(UsageError, match=r"bad\.toml") as caught:
        read_topology(path)
    assert said in str(caught.value)


def test_neither_file_nor_name() -> None:
    with pytest.raises(UsageError, match="dgx-h100"):
        read_topology("dgx-z9")


@pytest.mark.parametrize("name", ["deep.json", "deep.toml"])
def test_a_file_that_is_nested_too_deep_is_refused_in_words(name: str, tmp_path) -> None:
    path = tmp_path / name
    path.write_text(("x = " if name.endswith("toml") else "") + "[" * 200_000 + "]" * 200_000)
    with pytest.raises(UsageError, match="cannot be read as a topology"):
        read_topology(path)
