"""What runs under what: hand-made timelines, a naive sweep, and the ledger."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lostflops.account.ledger.together import at_once
from lostflops.explain.analyze.overlap import overlap
from lostflops.explain.analyze.report import report
from lostflops.ingest import ingest
from lostflops.store.intervals import Intervals
from lostflops.store.run import Run
from lostflops.testing import Kernel, Model, SyntheticCluster
from lostflops.testing.strategies import interval_sets
from memory_run import MemoryRun

NAMES = ("compute", "all_reduce", "all_gather", "copy")


@given(st.lists(interval_sets(max_size=6, max_time=60, allow_empty=True), min_size=4, max_size=4))
def test_every_nanosecond_is_of_one_combination(sets):
    """Against a walk over every nanosecond."""
    expected = Counter(
        tuple(name for name, own in zip(NAMES, sets, strict=True) if any(start <= time < stop for start, stop in own))
        for time in range(60)
    )
    del expected[()]
    spans = [Intervals.of([start for start, _ in own], [stop for _, stop in own]) for own in sets]
    assert at_once(dict(zip(NAMES, spans, strict=True))) == expected


def device_event(number: int, kind: str, name: str, start: int, stop: int) -> dict[str, object]:
    return {"rank": 0, "event": number, "lane": number, "kind": kind, "name": name, "start": start, "dur": stop - start}


@pytest.fixture
def by_hand():
    """compute 0-100; all_reduce 80-140; all_gather 90-120 and 150-160; a copy 110-155."""
    work = [
        ("kernel", "gemm", 0, 100, None),
        ("comm", "ncclDevKernel_AllReduce", 80, 140, "all_reduce"),
        ("comm", "ncclDevKernel_AllGather", 90, 120, "all_gather"),
        ("comm", "ncclDevKernel_AllGather", 150, 160, "all_gather"),
        ("memcpy", "Memcpy DtoH", 110, 155, None),
    ]
    events = [device_event(number, *told[:4]) for number, told in enumerate(work)]
    calls = [
        {"rank": 0, "event": number, "op": op, "start": start, "stop": stop}
        for number, (_, _, start, stop, op) in enumerate(work)
        if op
    ]
    with MemoryRun(ranks=[{"rank": 0, "events": len(work)}], events=events, collectives=calls) as run:
        yield run


def test_a_timeline_by_hand(by_hand):
    found = overlap(by_hand).to_json()
    assert {row["running"]: row["ns"] for row in found["combinations"]} == {
        "compute": 80,
        "compute + all_reduce": 10,
        "compute + all_gather + all_reduce": 10,
        "all_gather + all_reduce": 10,
        "all_gather + all_reduce + copy": 10,
        "all_reduce + copy": 20,
        "copy": 10,
        "all_gather + copy": 5,
        "all_gather": 5,
    }
    assert {row["row"]: row["values"] for row in found["under"]} == {
        "compute": {"alone": 80 / 100, "compute": None, "all_reduce": 20 / 100, "all_gather": 10 / 100, "copy": 0},
        "all_reduce": {"alone": 0, "compute": 20 / 60, "all_reduce": None, "all_gather": 30 / 60, "copy": 30 / 60},
        "all_gather": {"alone": 5 / 40, "compute": 10 / 40, "all_reduce": 30 / 40, "all_gather": None, "copy": 15 / 40},
        "copy": {"alone": 10 / 45, "compute": 0, "all_reduce": 30 / 45, "all_gather": 15 / 45, "copy": None},
    }
    assert found["activities"][1] == {
        "activity": "all_reduce",
        "ns": 60,
        "alone_ns": 0,
        "under_compute_ns": 20,
        "under_compute": pytest.approx(1 / 3),
        "under_comm_ns": 30,
        "under_copy_ns": 30,
    }
    assert found["verdict"].startswith("The most exposed operation is all_reduce: 40 ns of its 60 ns on all ranks")


def test_it_closes_with_the_ledger(tmp_path):
    cluster = SyntheticCluster(ranks=4, steps=2, model=Model(layers=4, kernels=(Kernel(300_000, (512, 512, 512)),)))
    ingest(cluster.generate().traces.write(tmp_path / "traces"), tmp_path / "run", workers=1)
    with Run.open(tmp_path / "run") as run:
        found, told = overlap(run).to_json(), report(run).to_json()
        assert " on all ranks runs without compute (compute hides" in overlap(run).verdict
        assert " on 1 rank runs without compute (compute hides" in overlap(run, ranks=[1]).verdict
    lines = {line["line"]: line["ns"] for line in told["ledger"]["lines"]}
    busy = sum(lines[line] for line in ("compute", "comm.transfer", "comm.wait", "comm.bubble", "copy"))
    assert sum(row["ns"] for row in found["combinations"]) == busy
    by_name = {row["activity"]: row for row in found["activities"]}
    assert by_name["compute"]["ns"] == lines["compute"]
    assert by_name["all_reduce"]["ns"] == told["overlap"]["comm_ns"]
    assert by_name["all_reduce"]["under_compute_ns"] == told["overlap"]["hidden_ns"]


def test_nothing_ran():
    with MemoryRun(ranks=[{"rank": 0, "events": 0}]) as run:
        found = overlap(run)
    assert found.verdict == "Nothing ran in this window."
    assert found.to_json()["combinations"] == []
