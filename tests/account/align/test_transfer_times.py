"""Latency and bandwidth of transfers: calls that were made of known ones, and what cannot be told."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lostflops.account.align import transfer_times
from lostflops.account.align.transfer_times import plot, table, transfers
from lostflops.account.facts.alpha_beta import NoLineFits, alpha_beta
from lostflops.explain.analyze.comm import comm, link_rates
from lostflops.ingest import ingest
from lostflops.store.run import Run
from lostflops.testing import Kernel, Model, Network, Straggler, SyntheticCluster
from memory_run import MemoryRun

ALPHA, BETA = 5_000, 0.01
H100 = "NVIDIA H100 80GB HBM3"


@given(st.floats(0, 1e6), st.floats(1e-4, 10), st.sets(st.integers(1, 10**9), min_size=3, max_size=12))
def test_a_line_is_found_again(alpha, beta, sizes):
    sizes |= {min(sizes) * 8}
    found = alpha_beta({size: alpha + beta * size for size in sizes})
    assert found.time(min(sizes)) == pytest.approx(alpha + beta * min(sizes), rel=1e-3)
    assert found.time(max(sizes)) == pytest.approx(alpha + beta * max(sizes), rel=1e-3)
    assert found.farthest < 1e-3


@pytest.mark.parametrize(
    ("times", "why"),
    [
        ({}, "sizes are unknown"),
        ({1000: 5.0}, "one size, 3 needed"),
        ({1000: 5.0, 9000: 7.0}, "2 sizes, 3 needed"),
        ({1000: 5.0, 1100: 6.0, 1200: 7.0}, "sizes differ by a factor of 1.2, 4 needed"),
        ({1000: 7.0, 10_000: 6.0, 100_000: 5.0}, "larger sizes are not slower"),
        ({1000: 5.0, 2000: 50.0, 4000: 5.0, 8000: 90.0, 16_000: 20.0}, "nearest line"),
    ],
)
def test_what_tells_no_line(times, why):
    with pytest.raises(NoLineFits, match=why):
        alpha_beta(times)


class Calls:
    """Calls of two ranks, rank 1 behind by `late`, in the order in which they are made."""

    def __init__(self, hosts: tuple[str | None, ...] = ("a", "a")) -> None:
        device = {"device": H100}
        self.ranks = [{"rank": rank, "host": host, "device_index": rank, **device} for rank, host in enumerate(hosts)]
        self._collectives: list[dict[str, Any]] = []
        self._arrivals: list[dict[str, Any]] = []
        self._clocks: list[dict[str, Any]] = []

    def call(self, size: int, ns: float, *, late: int = 0, op: str = "all_reduce", expected: int = 2) -> None:
        event, is_transfer = len(self._arrivals), op in ("send", "recv")
        start = event * 10**9
        for rank, begins in enumerate((start, start + late)):
            call = {"rank": rank, "event": event, "op": op, "group_id": "0@0-1", "group_size": expected}
            times = {"start": begins, "stop": start + late + round(ns), "bytes_in": size}
            self._collectives.append(call | times)
            met = {"rank": rank, "event": event, "meeting": event, "is_transfer": is_transfer, "expected": expected}
            self._arrivals.append(met | {"seen": 2, "arrived": begins, "wait": start + late - begins})

    def run(self) -> MemoryRun:
        return MemoryRun(ranks=self.ranks, collectives=self._collectives, arrivals=self._arrivals, clocks=self._clocks)

    def doubt(self, ns: int) -> None:
        self._clocks = [{"rank": rank, "uncertainty": ns} for rank in (0, 1)]


def test_waiting_is_no_part_of_a_transfer():
    calls = Calls()
    for turn, size in enumerate((1_000, 100_000, 10_000_000) * 3):
        calls.call(size, ALPHA + BETA * size, late=turn * 1_000_000)
    with calls.run() as run:
        found = transfers(run, "")
    (row,) = table(found).to_json()
    assert row == {
        "op": "all_reduce",
        "group": "0@0-1",
        "calls": 9,
        "sizes": 3,
        "smallest_bytes": 1_000,
        "largest_bytes": 10_000_000,
        "alpha_ns": ALPHA,
        "algbw_gbs": pytest.approx(100),
        "busbw_gbs": pytest.approx(100),
        "farthest": pytest.approx(0, abs=1e-3),
        "why_not": "",
    }
    measured, fitted = plot(found).to_json()
    assert set(zip(measured["bytes"], measured["ns"], strict=True)) == {
        (size, ALPHA + BETA * size) for size in (1_000, 100_000, 10_000_000)
    }
    assert measured["series"] == "all_reduce 0@0-1: measured"
    assert fitted["series"] == "all_reduce 0@0-1: 5.00 us + size / 100 GB/s"
    assert fitted["ns"][0] == pytest.approx(ALPHA + BETA * 1_000, rel=1e-3)
    assert fitted["ns"][-1] == pytest.approx(ALPHA + BETA * 10_000_000, rel=1e-3)


def test_equal_sizes_have_points_and_no_line():
    calls = Calls()
    for _ in range(4):
        calls.call(1_000, 7_000)
    with calls.run() as run:
        found = transfers(run, "")
    assert [series["series"] for series in plot(found).to_json()] == ["all_reduce 0@0-1: measured"]
    assert table(found).to_json()[0]["why_not"] == "one size, 3 needed"
    assert table(found).to_json()[0]["alpha_ns"] is None


def test_calls_that_not_all_members_recorded_tell_nothing():
    calls = Calls()
    calls.call(1_000, 7_000, expected=3)
    with calls.run() as run:
        assert transfers(run, "") == []


def test_a_send_tells_only_what_clocks_can():
    calls = Calls()
    calls.call(1_000, 7_000, late=500, op="send")
    with calls.run() as run:
        assert [one.points for one in transfers(run, "")] == [[(1_000, 7_000)]]
    calls.doubt(8_000)
    with calls.run() as run:
        assert transfers(run, "") == []


def test_many_calls_are_drawn_in_part_and_all_are_counted(monkeypatch):
    monkeypatch.setattr(transfer_times, "MOST_POINTS", 10)
    calls = Calls()
    for _ in range(25):
        calls.call(1_000, 7_000)
    with calls.run() as run:
        found = transfers(run, "")
    assert len(plot(found).series[0].points) <= 10
    assert table(found).to_json()[0]["calls"] == 25


@pytest.mark.parametrize(
    ("hosts", "told"),
    [(("a", "a"), ({"0@0-1": 450}, False)), (("a", "b"), ({}, False)), ((None, None), ({"0@0-1": 450}, True))],
)
def test_links_are_known_inside_a_host(hosts, told):
    calls = Calls(hosts)
    calls.call(1_000, 7_000)
    with calls.run() as run:
        assert link_rates(run) == told


def test_hosts_are_not_guessed_where_a_run_has_several():
    """Rank 2 has a device of the number of rank 0's, so that rank 1 may be beside either."""
    calls = Calls((None, None))
    calls.call(1_000, 7_000)
    calls.ranks.append({"rank": 2, "host": None, "device_index": 0, "device": H100})
    with calls.run() as run:
        assert link_rates(run) == ({}, False)


def test_links_are_unknown_where_a_member_is():
    calls = Calls()
    calls.call(1_000, 7_000, expected=3)
    with calls.run() as run:
        assert link_rates(run) == ({}, False)


def test_a_cluster_whose_network_is_known(tmp_path):
    """A late rank makes others wait, and changes no transfer."""
    network = Network(alpha=20_000, gbs=200)
    cluster = SyntheticCluster(
        ranks=4,
        steps=2,
        noise=0.0,
        network=network,
        model=Model(layers=4, kernels=(Kernel(100_000, (256, 256, 256)),), gradient_bytes=3_000_000, buckets=1),
        stragglers=(Straggler(1, "slow_kernels", factor=1.5),),
    )
    ingest(cluster.generate().traces.write(tmp_path / "traces"), tmp_path / "run", workers=1)
    with Run.open(tmp_path / "run") as run:
        found = comm(run).to_json()
    (measured, *_) = found["transfers"]
    assert measured["bytes"]
    for size, ns in zip(measured["bytes"], measured["ns"], strict=True):
        assert ns == pytest.approx(network.all_reduce(int(size), 4, across_hosts=False), rel=0.01)
    for row in found["collectives"]:
        assert row["link_share"] == pytest.approx(row["busbw_gbs"] / 450)
