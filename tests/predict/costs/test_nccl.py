import re
from dataclasses import replace

import pytest

from lostflops.account.facts.devices import DEVICES
from lostflops.core.errors import UnknownCost
from lostflops.predict.costs.nccl import crossovers, nccl_times, ways
from lostflops.predict.costs.times import OPS, CommGroup
from lostflops.predict.costs.topology import parse_topology, read_topology
from shared_data import TRACES, needs_traces

A100, H100 = read_topology("dgx-a100"), read_topology("dgx-h100")


def found(op, group, topology):
    return {(way.algorithm, way.protocol): way for way in ways(op, group, topology)}


def test_latencies_by_hand() -> None:
    one = found("all_reduce", CommGroup(8), A100)
    assert one["ring", "LL"].latency == pytest.approx(6.6 + 14 * 0.6)
    assert one["tree", "Simple"].latency == pytest.approx(8.4 + 2 * 7 * 4.0)
    four = found("all_reduce", CommGroup(32, 4), A100)
    assert four["ring", "LL"].latency == pytest.approx(6.6 + 56 * 2.0 + 6 * 2.7), "an AMD host posts in 2 us"
    assert four["ring", "Simple"].latency == pytest.approx(1.4 * (8.4 + 56 * 6.0 + 6 * 14.0))
    assert four["tree", "LL128"].latency == pytest.approx(14.0 + 2 * (7 * 1.25 + 2 * 8.5))
    assert found("all_reduce", CommGroup(16, 2), H100)["nvls_tree", "Simple"].latency == pytest.approx(25 + 2 * 20.9)
    alone = found("all_gather", CommGroup(4, 4), A100)
    assert alone["ring", "LL"].latency == pytest.approx(6.6 + 3 * 5.0), "one device to a host: the tree's latency"


def test_bandwidths_by_hand() -> None:
    one = found("all_reduce", CommGroup(8), A100)
    assert one["ring", "Simple"].gbs == pytest.approx(240 * 8 / 14)
    assert one["ring", "LL"].gbs == pytest.approx(87.7 * 8 / 14)
    assert one["tree", "LL128"].gbs == pytest.approx(240 * 0.92 * 7 / 9 / 2)
    four = found("all_reduce", CommGroup(32, 4), A100)
    assert four["ring", "Simple"].gbs == pytest.approx(192 * 32 / 62), "adapters carry less than NVLink"
    part = found("all_gather", CommGroup(4, 4), A100)
    assert part["ring", "Simple"].gbs == pytest.approx(24 * 4 / 3), "one device of eight has one adapter of eight"
    sends = found("all_to_all", CommGroup(16, 2), A100)["sends", "Simple"]
    assert sends.gbs == pytest.approx(24 * 16 / 8), "half of it crosses, at 24 GB/s for each device"


def test_a_domain_of_72_uses_nvlink_and_several_domains_use_rails() -> None:
    rack, nvlink, rail = read_topology("gb200-nvl72"), 900 * 40.1 / 50, 50 * 0.96
    inside = CommGroup(72)
    assert found("all_gather", inside, rack)["ring", "Simple"].gbs == pytest.approx(nvlink * 72 / 71)
    assert found("all_to_all", inside, rack)["sends", "Simple"].gbs == pytest.approx(nvlink * 72 / 71)
    one_in_each = CommGroup(4, 4)
    assert found("all_gather", one_in_each, rack)["ring", "Simple"].gbs == pytest.approx(rail * 4 / 3)
    both = CommGroup(144, 2)
    assert found("all_to_all", both, rack)["sends", "Simple"].gbs == pytest.approx(rail * 2), "half of it crosses"
    assert found("all_gather", both, rack)["ring", "Simple"].gbs == pytest.approx(nvlink * 144 / 143), "72 rails"
    hosts_of_8 = CommGroup(72, 9)
    by_rack, by_host = (
        nccl_times("all_to_all", 1 << 30, group, topology)[0].ns
        for group, topology in ((inside, rack), (hosts_of_8, read_topology("dgx-b200")))
    )
    assert by_host > 10 * by_rack


def test_nvls_where_the_switch_reduces() -> None:
    assert ("nvls", "Simple") not in found("all_reduce", CommGroup(8), A100)
    assert nccl_times("all_reduce", 1 << 30, CommGroup(8), H100)[0].algorithm == "nvls"
    assert ("nvls_tree", "Simple") not in found("all_gather", CommGroup(16, 2), H100)


@pytest.mark.parametrize(
    ("device", "reduces"),
    [("NVIDIA H800", True), ("b200", True), ("A100-SXM4-80GB", False), ("Quadro RTX 4000", False)],
)
def test_a_switch_that_is_said_to_reduce_does_so_from_hopper_on(device: str, reduces: bool) -> None:
    topology = replace(H100, device=device, nvls=True)
    assert (("nvls", "Simple") in found("all_reduce", CommGroup(8), topology)) == reduces
    assert nccl_times("all_reduce", 1 << 20, CommGroup(16, 2), topology)[0].ns > 0


def test_small_ones_go_by_latency_and_large_ones_by_bandwidth() -> None:
    sizes = tuple(1 << power for power in range(10, 34))
    won = [(way.algorithm, way.protocol) for _, way in crossovers("all_reduce", CommGroup(64, 8), A100, sizes)]
    assert won[0] == ("tree", "LL")
    assert won[-1] == ("ring", "Simple")


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("group", [CommGroup(2), CommGroup(8), CommGroup(16, 2), CommGroup(8, 8), CommGroup(4096, 512)])
def test_every_op_has_a_time_with_its_interval_and_source(op, group: CommGroup) -> None:
    last = 0.0
    for size in (0, 1, 1 << 10, 1 << 20, 1 << 30):
        time = nccl_times(op, size, group, H100)[0]
        assert time.low < time.ns < time.high
        assert "NCCL's model for dgx-h100" in time.source
        assert time.ns >= last or op == "all_reduce", "a tree's correction may dip"
        last = time.ns
    assert nccl_times(op, 1 << 30, CommGroup(1), H100)[0].ns == 0


def test_what_the_model_does_not_know() -> None:
    single = parse_topology({"device": "H100", "gpus_per_host": 8, "scaleup_gbs": 300}, "single", "single.toml")
    with pytest.raises(UnknownCost, match="nics_per_host"):
        ways("all_reduce", CommGroup(16, 2), single)
    with pytest.raises(UnknownCost, match="8 devices"):
        ways("all_reduce", CommGroup(16), single)
    amd = parse_topology({"device": "MI300X", "gpus_per_host": 8}, "mi300x", "mi300x.toml")
    with pytest.raises(UnknownCost, match="calibrate"):
        ways("all_reduce", CommGroup(8), amd)
    torus = parse_topology({"device": "TPU v5p", "gpus_per_host": 4, "scaleup_gbs": 600}, "v5p", "v5p.toml")
    with pytest.raises(UnknownCost, match="calibrate"):
        ways("all_reduce", CommGroup(4), torus)
    part = parse_topology(
        {"device": "NVIDIA A100-SXM4-80GB MIG 3g.40gb", "gpus_per_host": 8, "scaleup_gbs": 300}, "mig", "mig.toml"
    )
    assert ways("all_reduce", CommGroup(8), part)


@pytest.mark.parametrize("nvls", [False, True])
@pytest.mark.parametrize(
    ("device", "what_to_do"),
    [("Unheard Of", "for Unheard Of: run lostflops calibrate there"), (None, "does not name its device: add it")],
)
def test_an_unknown_device_has_no_latencies_of_another(device: str | None, what_to_do: str, nvls: bool) -> None:
    topology = replace(H100, device=device, nvls=nvls)
    with pytest.raises(UnknownCost, match=what_to_do):
        nccl_times("all_reduce", 1 << 20, CommGroup(8), topology)


def test_an_unknown_cpu_is_said_to_be_taken_for_intels() -> None:
    told = {
        (cpu, hosts): "Intel"
        in nccl_times("all_reduce", 1 << 20, CommGroup(8, hosts), replace(H100, cpu=cpu))[0].source
        for cpu in (None, "amd")
        for hosts in (1, 2)
    }
    assert told == {(None, 1): False, (None, 2): True, ("amd", 1): False, ("amd", 2): False}


def test_nccl_has_constants_for_every_device_of_nvidia() -> None:
    """It has four sets: up to Turing, Ampere with Ada, Hopper, and Blackwell."""
    unknown = []
    for device in DEVICES:
        try:
            ways("all_reduce", CommGroup(2), replace(H100, device=device.name))
        except UnknownCost:
            unknown.append(device.name)
    assert [name for name in unknown if not name.startswith(("MI", "TPU"))] == []
    assert len(unknown) == sum(device.name.startswith(("MI", "TPU")) for device in DEVICES)


LOGS = {
    "all_reduce": "allreduce",
    "all_gather": "allgather",
    "reduce_scatter": "reducescatter",
    "broadcast": "broadcast",
    "all_to_all": "alltoall",
}


@needs_traces
@pytest.mark.parametrize("op", LOGS)
def test_recorded_times_of_8_a100_lie_in_the_interval(op) -> None:
    rows = [
        line.split()
        for line in (TRACES / f"microsoft__superbenchmark/nccl_{LOGS[op]}.log").read_text().splitlines()
        if re.match(r" +[1-9]", line)
    ]
    assert len(rows) > 25
    for row in rows:
        size, us = int(row[0]), float(row[3 if op == "all_gather" else 4 if op != "all_to_all" else 3])
        time = nccl_times(op, size, CommGroup(8), A100)[0]
        assert time.low / 1000 <= us <= time.high / 1000, (size, us, time)
        if size >= 1 << 30:
            assert time.ns / 1000 == pytest.approx(us, rel=0.15)
