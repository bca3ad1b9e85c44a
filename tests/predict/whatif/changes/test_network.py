"""Bandwidth and latency, each of the transfers that are on the network."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.predict.graph.tiny import L, M, T, graph
from tests.predict.whatif.changes.linear import facts

from lostflops.core.errors import NotApplicable
from lostflops.predict.graph.tasks import LaneKind, TaskKind
from lostflops.predict.whatif.change import Facts
from lostflops.predict.whatif.changes.device import CHANGE as DEVICE
from lostflops.predict.whatif.changes.network_bandwidth import CHANGE as BANDWIDTH
from lostflops.predict.whatif.changes.network_latency import CHANGE as LATENCY


def job(*meetings, steps=()):
    names = [f"m{i}" for i in range(len(meetings))]
    lanes = [L(r, LaneKind.STREAM, [T(f"{n}.{r}", kind=TaskKind.COMM, meets=n) for n in names]) for r in (0, 1)]
    return graph(lanes, meetings=dict(zip(names, meetings, strict=True)), steps=steps)


STEP = [(0, 0, "", ""), (1, 0, "", "")]


def test_only_bytes_go_faster():
    made = job(M(1000 + 500, size=1000), M(3000 + 500, size=3000))
    found = BANDWIDTH.apply(made, "2x", facts(500.0, 1.0))
    assert found.graph.meetings.transfer.tolist() == [1000, 2000]


def test_only_latency_shrinks():
    made = job(M(1000 + 500, size=1000))
    assert LATENCY.apply(made, "0.2x", facts(500.0, 1.0)).graph.meetings.transfer.tolist() == [1100]


def test_inside_hosts_nothing_changes_where_groups_span_them():
    made = job(M(1000, size=1000), M(1000, size=1000, hosts=2))
    found = BANDWIDTH.apply(made, "2x", facts(0.0, 1.0))
    assert found.graph.meetings.transfer.tolist() == [1000, 500]
    assert found.notes[0] == "Only transfers between hosts change."


def test_another_device_brings_its_links_inside_hosts_only():
    """NVLink of an A100 has 300 GB/s in each direction, that of a B200 900."""
    own = replace(facts(100.0, 1.0), device="NVIDIA A100-SXM4-80GB", dtype="bf16")
    made = job(M(100 + 900, size=900), M(100 + 900, size=900, hosts=2))
    found = DEVICE.apply(made, "B200", own)
    assert found.graph.meetings.transfer.tolist() == [100 + 300, 1000]
    assert any("Links within a host have 3x the bandwidth" in note for note in found.notes)


def test_unknown_links_stay_as_recorded():
    own = replace(facts(100.0, 1.0), device="NVIDIA A100 80GB PCIe", dtype="bf16")
    found = DEVICE.apply(job(M(1000, size=900)), "B200", own)
    assert found.graph.meetings.transfer.tolist() == [1000]
    assert any("links of A100-PCIe-80GB are not known" in note for note in found.notes)


def test_transfers_that_cannot_be_timed_on_slower_links_are_refused():
    """An L4 has 31 GB/s beside the 300 GB/s of an A100: transfers as recorded would be far too fast."""
    own = replace(facts(100.0, 1.0), device="NVIDIA A100-SXM4-80GB", dtype="bf16")
    with pytest.raises(NotApplicable, match="its links within a host are slower"):
        DEVICE.apply(job(M(1000, size=-1), steps=STEP), "L4", own)
    short = job(M(1000, size=-1), M(40_000, size=-1, ranks=1), steps=STEP)  # 2% of the step here, 18% on a T4
    with pytest.raises(NotApplicable, match="its links within a host are slower"):
        DEVICE.apply(short, "T4", replace(own, dtype="fp16"))
    assert DEVICE.apply(job(M(1000, size=-1), steps=STEP), "B200", own).graph.meetings.transfer.tolist() == [1000]
    timed = DEVICE.apply(job(M(1000, size=900), steps=STEP), "L4", own)
    assert timed.graph.meetings.transfer.tolist() == [round(100 + 900 * 300 / 31)]


def test_unknown_links_may_take_twice_as_long():
    own = replace(facts(100.0, 1.0), device="NVIDIA A100-SXM4-80GB", dtype="bf16")
    made = job(M(1000, size=900), steps=STEP)
    known, unknown = (DEVICE.apply(made, name, own) for name in ("A100-SXM4-40GB", "A100-PCIe-80GB"))
    assert known.off == pytest.approx(300)
    assert unknown.off == pytest.approx(1000)


def test_the_runs_own_sizes_tell_latency():
    sizes = (1_000, 10_000, 100_000, 1_000_000)
    made = job(*(M(5_000 + size, size=size) for size in sizes))
    found = BANDWIDTH.apply(made, "2x", Facts(times=None))
    wanted = [5_000 + size // 2 for size in sizes]
    assert found.graph.meetings.transfer.tolist() == pytest.approx(wanted, rel=0.01)


@pytest.mark.parametrize("op", ["gather", "scatter", "reduce", "broadcast", "all_to_all"])
def test_collectives_with_a_root_are_timed_again(op):
    sizes = (1_000, 10_000, 100_000, 1_000_000)
    made = job(*(M(5_000 + size, op=op, size=size) for size in sizes))
    found = BANDWIDTH.apply(made, "2x", Facts(times=None, backend="gloo"))
    wanted = [5_000 + size // 2 for size in sizes]
    assert found.graph.meetings.transfer.tolist() == pytest.approx(wanted, rel=0.01)


def test_one_size_is_bandwidth_with_doubt_and_no_latency():
    made = job(M(100_000, size=1_000_000), M(100_000, size=1_000_000))
    found = BANDWIDTH.apply(made, "2x", Facts(times=None, backend="nccl"))
    assert found.graph.meetings.transfer.tolist() == [50_000, 50_000]
    assert found.doubt > 0.2
    with pytest.raises(NotApplicable, match="latency is unknown"):
        LATENCY.apply(made, "0.5x", Facts(times=None, backend="nccl"))


def test_sizes_that_were_not_recorded_are_refused():
    with pytest.raises(NotApplicable, match="without operation or size"):
        BANDWIDTH.apply(job(M(1000, size=-1)), "2x", facts())
