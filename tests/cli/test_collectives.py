"""The verb against a network whose constants are known."""

import json
from pathlib import Path

import pytest

from lostflops.predict.costs.calibration import CalibratedCollective, Calibration, write_calibration

ALPHA, BETA = 40_000, 0.02
"""Of an all-reduce of 4 ranks on 4 hosts, in ns and ns per byte."""


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    path = tmp_path / "cluster.json"
    shape = {"op": "all_reduce", "level": "across", "ranks": 4, "hosts": 4}
    rows = [
        CalibratedCollective(**shape, bytes=1024 << power, ns=(round(ALPHA + BETA * (1024 << power)),) * 3)
        for power in range(16)
    ]
    write_calibration(Calibration(backend="gloo", date="2026-01-31T00:00:00Z", collectives=tuple(rows)), path)
    return path


def test_a_measured_group(lostflops, cluster: Path) -> None:
    words = ("--ranks", 4, "--ranks-per-host", 1, "--calibration", cluster, "--size", "1MB", "--json")
    outcome = lostflops("collectives", *words)
    assert outcome.code == 0, outcome.err
    told = json.loads(outcome.out)
    (row,) = told["times"]
    assert (row["op"], row["bytes"], row["algorithm"], row["reach"]) == ("all_reduce", 1_000_000, "ring", "")
    assert row["ns"] == pytest.approx(ALPHA + BETA * 1e6, rel=0.01)
    assert row["busbw_gbs"] == pytest.approx(1.5e6 / row["ns"], rel=0.01)
    # 4 steps and twice the size against 6 and 1.5 times: even at alpha / beta, 2 MB.
    assert [(row["from_bytes"], row["algorithm"]) for row in told["winners"]] == [(1024, "tree"), (1 << 21, "ring")]
    assert told["notes"][0] == "From: calibration of 2026-01-31."
    assert (
        "Unknown: all_gather, reduce_scatter, all_to_all, broadcast, reduce, gather, scatter, send_recv."
        in told["notes"]
    )


def test_a_larger_group_is_carried_over_and_says_so(lostflops, cluster: Path) -> None:
    words = ("--ranks", 8, "--ranks-per-host", 1, "--calibration", cluster, "--size", "16MB", "--json")
    (row,) = json.loads(lostflops("collectives", *words).out)["times"]
    ring = ALPHA * 14 / 6 + BETA * 16e6 * (14 / 8) / (6 / 4)
    assert row["ns"] == pytest.approx(ring, rel=0.01)
    assert row["low_ns"] < ring < row["high_ns"]
    assert row["reach"] == "8 ranks on 8 hosts from 4 ranks on 4 hosts"


def test_a_described_cluster_and_a_picture(lostflops, tmp_path: Path) -> None:
    words = ("--ranks", 64, "--topology", "dgx-h100", "--op", "all_reduce", "--plot", tmp_path / "times.svg")
    outcome = lostflops("collectives", *words)
    assert outcome.code == 0
    assert "not measured" in " ".join(outcome.out.split())
    assert "nvls_tree" in outcome.out
    assert outcome.out.endswith("Next: lostflops scale RUN --ranks 64 --topology dgx-h100\n")
    assert "<svg" in (tmp_path / "times.svg").read_text()


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ((), 2, "give --calibration FILE or --topology NAME"),
        (("--topology", "dgx-h100", "--op", "all_reduces"), 2, "operations are all_reduce, all_gather"),
        (("--topology", "dgx-h1000"), 2, "neither a file nor a known topology"),
        (("--topology", "dgx-h100", "--size", "many"), 2, "many"),
    ],
)
def test_what_cannot_be_asked(lostflops, words: tuple[str, ...], code: int, said: str) -> None:
    outcome = lostflops("collectives", "--ranks", 16, *words)
    assert outcome.code == code
    assert said in outcome.err


def test_a_group_that_nothing_tells_of(lostflops, cluster: Path) -> None:
    outcome = lostflops("collectives", "--ranks", 4, "--calibration", cluster)
    assert outcome.code == 3
    assert "the time of all_reduce on 4 ranks on 1 host is unknown" in outcome.err
