"""`lostflops comm`: bandwidths by hand, for each operation."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.cli.mini_traces import BUSY, CALM, CPU_RANK, NCCL, SGEMM, collective, kernel, launch, make_run, op, step

from lostflops.ingest import ingest
from lostflops.testing import Generated, Straggler, SyntheticCluster, store
from report_checks import COMM

FOUR = "[0, 1, 2, 3]"
MILLION = 1_000_000

# Operation as recorded, elements in and out (of 4 bytes), microseconds; then op, bytes, algbw and busbw. 4 ranks.
CALLS = (
    ("allreduce", MILLION, MILLION, 50, "all_reduce", 4_000_000, 80.0, 120.0),
    ("_allgather_base", MILLION // 4, MILLION, 40, "all_gather", 4_000_000, 100.0, 75.0),
    ("_reduce_scatter_base", MILLION, MILLION // 4, 80, "reduce_scatter", 4_000_000, 50.0, 37.5),
    ("all_to_allv", MILLION, MILLION, 20, "all_to_all", 4_000_000, 200.0, 150.0),
    ("broadcast", MILLION, MILLION, 10, "broadcast", 4_000_000, 400.0, 400.0),
    ("reduce", MILLION, MILLION, 16, "reduce", 4_000_000, 250.0, 250.0),
    ("send", MILLION, 0, 25, "send", 4_000_000, 160.0, 160.0),
    ("recv", MILLION, MILLION, 32, "recv", 4_000_000, 125.0, 125.0),
    ("gather", MILLION, 4 * MILLION, 64, "gather", 4_000_000, 62.5, None),
)


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("golden"), BUSY, CALM)


def answer(lostflops: Any, *words: str | Path) -> dict[str, Any]:
    outcome = lostflops("comm", *words, "--json")
    assert (outcome.code, outcome.err) == (0, "")
    return json.loads(outcome.out)


def test_json(lostflops, golden: Path) -> None:
    """4 MB in 25 us between 2 ranks, whose factor is 1; compute hides 5 us of it, of 25 that it could."""
    found = answer(lostflops, golden)
    pictures = {"transfers", "alpha_beta", "comm_hooks", "network"}
    logged = {"nccl_communicators", "nccl_faults", "nccl_choices"}
    assert found.keys() == {"schema", "title", "verdict", "notes", "groups", "collectives", "clock"} | pictures | logged
    assert all(found[name] == [] for name in logged)
    assert found["schema"] == "lostflops.comm/1"
    assert found["groups"] == [
        {
            "group": "0@0-1",
            "kind": None,
            "ranks": 1,
            "comm_ns": 25_000,
            "hidden_ns": 5_000,
            "exposed_ns": 20_000,
            "efficiency": 0.2,
        }
    ]
    assert found["collectives"] == [
        {
            "op": "all_reduce",
            "group": "0@0-1",
            "group_size": 2,
            "dtype": "Float",
            "bytes": 4_000_000,
            "sizes": 1,
            "count": 1,
            "ns": 25_000,
            "wait_ns": None,
            "transfer_ns": 25_000,
            "median_transfer_ns": 25_000,
            "shortest_transfer_ns": 25_000,
            "algbw_gbs": 160.0,
            "busbw_gbs": 160.0,
            "fastest_busbw_gbs": 160.0,
            "algbw_with_wait_gbs": 160.0,
            "busbw_with_wait_gbs": 160.0,
            "link_share": None,
        }
    ]


def test_text(lostflops, golden: Path) -> None:
    lines = [line.rstrip() for line in lostflops("comm", golden).out.splitlines()]
    assert lines[1] == "Communication takes 25.0 us over all ranks; compute hides 20.0% of it. The rest"
    assert lines[2].startswith("is 6.4% of the time of all ranks")
    assert any(line.split() == ["0@0-1", "1", "25.0", "us", "5.00", "us", "20.0", "us", "20.0%"] for line in lines)
    row = ["all_reduce", "0@0-1", "4.00", "MB", "1", "-", "25.0", "us", "160"]
    assert any(line.split() == row for line in lines)
    said = " ".join(lines)
    assert "1 of 1 call could not be matched with other ranks: their transfer time may include waiting." in said
    assert lines[-1] == f"Next: lostflops ranks {golden}"


def test_bandwidths_of_each_operation(lostflops, tmp_path: Path) -> None:
    events, start = [], 0
    for number, (name, sent, received, duration, *_) in enumerate(CALLS):
        events.append(kernel(number, start, duration, NCCL, 20, **collective(name, sent, received, ranks=FOUR)))
        start += duration + 10
    rows = {row["op"]: row for row in answer(lostflops, make_run(tmp_path, events))["collectives"]}
    assert {op: (row["bytes"], row["ns"], row["algbw_gbs"], row["busbw_gbs"]) for op, row in rows.items()} == {
        op: (size, 1000 * duration, algbw, busbw) for _, _, _, duration, op, size, algbw, busbw in CALLS
    }
    assert {row["group_size"] for row in rows.values()} == {4}


def test_the_fastest_call_and_all_calls(lostflops, tmp_path: Path) -> None:
    """Calls of 100, 50 and 60 us that met nobody: the fastest moves 4 MB at 80 GB/s, all of them 12 MB at 57.1."""
    metadata = collective("allreduce", MILLION, MILLION, ranks=FOUR)
    calls = ((0, 100), (200, 50), (300, 60))
    events = [kernel(start, start, duration, NCCL, 20, **metadata) for start, duration in calls]
    (row,) = answer(lostflops, make_run(tmp_path, events))["collectives"]
    assert (row["count"], row["ns"], row["wait_ns"]) == (3, 210_000, None)
    assert (row["transfer_ns"], row["median_transfer_ns"], row["shortest_transfer_ns"]) == (210_000, 60_000, 50_000)
    assert row["fastest_busbw_gbs"] == 120.0
    assert row["algbw_gbs"] == row["algbw_with_wait_gbs"]
    assert row["algbw_with_wait_gbs"] == pytest.approx(12_000_000 / 210_000)
    assert row["busbw_with_wait_gbs"] == pytest.approx(1.5 * 12_000_000 / 210_000)


def test_operations_groups_types_and_sizes_are_told_apart(lostflops, tmp_path: Path) -> None:
    base = collective("allreduce", 1_000, 1_000)
    metadata = [
        base,
        base | {"dtype": "Half"},
        base | {"In msg nelems": 2_000},
        base | {"Process Group Name": "1"},
        base | {"Collective name": "broadcast"},
        base,
    ]
    events = [kernel(n, 20 * n, 10, NCCL, 20, **each) for n, each in enumerate(metadata)]
    rows = answer(lostflops, make_run(tmp_path, events))["collectives"]
    found = {(row["op"], row["group"], row["dtype"], row["bytes"]): row["count"] for row in rows}
    assert found == {
        ("all_reduce", "0@0-1", "Float", 4_000): 2,
        ("all_reduce", "0@0-1", "Half", 2_000): 1,
        ("all_reduce", "0@0-1", "Float", 8_000): 1,
        ("all_reduce", "1@0-1", "Float", 4_000): 1,
        ("broadcast", "0@0-1", "Float", 4_000): 1,
    }


def test_a_collective_known_by_its_name_only(lostflops, tmp_path: Path) -> None:
    (row,) = answer(lostflops, make_run(tmp_path, [kernel(1, 0, 10, NCCL)]))["collectives"]
    assert (row["op"], row["group"], row["group_size"], row["bytes"]) == ("all_reduce", "unknown group", None, None)
    rates = [row[name] for name in row if name.endswith("_gbs")]
    assert rates == [None] * 5


def test_groups_overlap_and_do_not_add_up(lostflops, tmp_path: Path) -> None:
    """Compute from 0 to 10, group 0 from 5 to 25, group 1 from 15 to 35."""
    events = [
        kernel(1, 0, 10, SGEMM),
        kernel(2, 5, 20, NCCL, 20, **collective("allreduce", 10, 10)),
        kernel(3, 15, 20, NCCL, 24, **collective("allreduce", 10, 10, group="1")),
    ]
    found = answer(lostflops, make_run(tmp_path, events))
    assert {row["group"]: (row["comm_ns"], row["hidden_ns"], row["exposed_ns"]) for row in found["groups"]} == {
        "0@0-1": (20_000, 5_000, 15_000),
        "1@0-1": (20_000, 0, 20_000),
    }
    assert found["verdict"].startswith(
        "Communication takes 30.0 us over all ranks; compute hides 16.7% of it. The rest is 71.4%"
    )


def test_only_what_starts_in_the_window(lostflops, tmp_path: Path) -> None:
    metadata = collective("allreduce", 10, 10)
    events = [
        step(1, 0, 50),
        launch(1, 2),
        kernel(1, 10, 20, NCCL, 20, **metadata),
        step(2, 50, 50),
        launch(2, 52),
        kernel(2, 60, 30, NCCL, 20, **metadata),
        launch(3, 110),
        kernel(3, 120, 5, NCCL, 20, **metadata),
    ]
    run = make_run(tmp_path, events)
    assert [row["ns"] for row in answer(lostflops, run)["collectives"]] == [50_000]
    assert [row["ns"] for row in answer(lostflops, run, "--step", "2")["collectives"]] == [30_000]
    assert [row["ns"] for row in answer(lostflops, run, "--window", "trace")["collectives"]] == [55_000]


def test_limit(lostflops, tmp_path: Path) -> None:
    """25 kinds of calls: five sizes in each of five groups."""
    sizes = [(n, str(n // 5), n % 5 + 1) for n in range(25)]
    events = [
        kernel(n, 20 * n, 10, NCCL, 20, **collective("allreduce", size, size, group=group)) for n, group, size in sizes
    ]
    run = make_run(tmp_path, events)
    assert len(answer(lostflops, run, "--limit", "3")["collectives"]) == 25
    assert "... and 5 more" in lostflops("comm", run).out
    assert "... and 22 more" in lostflops("comm", run, "--limit", "3").out
    assert lostflops("comm", run, "--limit", "0").code == 2


def test_calls_of_many_sizes_are_shown_by_class(lostflops, tmp_path: Path) -> None:
    """4 to 100 bytes in steps of 4, in one group: classes are 4, 8 to 28, and 32 to 100 bytes."""
    events = [kernel(n, 20 * n, 10, NCCL, 20, **collective("allreduce", n + 1, n + 1)) for n in range(25)]
    rows = answer(lostflops, make_run(tmp_path, events))["collectives"]
    assert sum(row["count"] for row in rows) == 25
    assert sum(row["ns"] for row in rows) == 250_000
    found = sorted((row["bytes"], row["sizes"], row["count"]) for row in rows)
    classes: dict[int, list[int]] = {}
    for size in range(4, 104, 4):
        classes.setdefault(next(power for power in range(9) if size < 4**power * 2**1.5), []).append(size)
    assert found == sorted((sum(own) // len(own), len(own), len(own)) for own in classes.values())


def test_gloo(lostflops, tmp_path: Path) -> None:
    found = answer(lostflops, make_run(tmp_path, CPU_RANK, device=""))
    assert [(row["comm_ns"], row["hidden_ns"], row["exposed_ns"]) for row in found["groups"]] == [
        (30_000, 10_000, 20_000)
    ]
    (row,) = found["collectives"]
    assert (row["op"], row["bytes"], row["count"], row["ns"]) == ("all_reduce", 4_000, 1, 30_000)
    assert row["algbw_gbs"] == pytest.approx(4_000 / 30_000)


def test_no_communication(lostflops, tmp_path: Path) -> None:
    run = make_run(tmp_path, CALM)
    assert answer(lostflops, run)["verdict"] == "No communication ran in this window."
    assert lostflops("comm", run).out.splitlines()[-1].startswith("Next: lostflops ranks")
    assert lostflops("comm", make_run(tmp_path / "cpu", [op("aten::mm", 0, 5)], device="")).code == 0


def test_json_has_the_same_keys_without_communication(lostflops, tmp_path: Path) -> None:
    found = answer(lostflops, make_run(tmp_path, CALM))
    assert (found["groups"], found["collectives"]) == ([], [])


@pytest.fixture(scope="module")
def waiting(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Generated]:
    """Four ranks of one host that average gradients; rank 2 comes late."""
    cluster = SyntheticCluster(ranks=4, stragglers=(Straggler(2, "slow_kernels", factor=1.5),)).generate()
    return store(cluster, tmp_path_factory.mktemp("waiting") / "run", host_names=True), cluster


def test_wait_and_transfer(lostflops, waiting: tuple[Path, Generated]) -> None:
    run, cluster = waiting
    met = cluster.truth.collectives
    waits = sum(max(one.arrivals.values()) - arrived for one in met for arrived in one.arrivals.values())
    transfers = sum(4 * one.transfer for one in met)
    rows = answer(lostflops, run)["collectives"]
    assert sum(row["wait_ns"] for row in rows) == pytest.approx(waits, rel=0.02)
    assert sum(row["transfer_ns"] for row in rows) == pytest.approx(transfers, rel=0.05)
    for row in rows:
        assert row["wait_ns"] + row["transfer_ns"] == row["ns"]
        assert row["algbw_gbs"] == row["bytes"] * row["count"] / row["transfer_ns"]
        assert row["busbw_gbs"] == 1.5 * row["algbw_gbs"]
        assert row["busbw_with_wait_gbs"] < row["busbw_gbs"] <= row["fastest_busbw_gbs"]


def test_the_late_rank_does_not_wait(lostflops, waiting: tuple[Path, Generated]) -> None:
    run, _ = waiting
    late, early = (answer(lostflops, run, "--rank", rank)["collectives"] for rank in ("2", "1"))
    assert sum(row["wait_ns"] for row in late) < 0.01 * sum(row["wait_ns"] for row in early)


def test_exposed_waiting_is_said(lostflops, waiting: tuple[Path, Generated]) -> None:
    run, cluster = waiting
    waited, exposed = (sum(cluster.truth.lines[line] for line in lines) for lines in (COMM[1:], COMM))
    verdict = answer(lostflops, run)["verdict"]
    said = float(verdict.rpartition(" time of all ranks, ")[2].partition("%")[0])
    assert said == pytest.approx(100 * waited / exposed, abs=2)
    said = lostflops("comm", run).out
    assert "could not be matched" not in said
    assert "lack the record" not in said


def test_members_that_are_not_in_the_run_may_be_the_late_ones(lostflops, tmp_path: Path) -> None:
    """Two ranks of four, that both wait for the third: nothing tells their waits from transfers."""
    cluster = SyntheticCluster(ranks=4, stragglers=(Straggler(2, "slow_kernels", factor=1.5),)).generate()
    ingest(cluster.traces.write(tmp_path / "traces", host_names=True)[:2], tmp_path / "run", workers=1)
    found = answer(lostflops, tmp_path / "run")
    calls = sum(row["count"] for row in found["collectives"])
    assert sum(row["transfer_ns"] for row in found["collectives"]) > 2 * sum(
        one.transfer for one in cluster.truth.collectives
    )
    says = f"{calls} of {calls} calls lack the record of a member"
    assert any(note.startswith(says) for note in found["notes"])


def test_all_groups_are_in_json(lostflops, tmp_path: Path) -> None:
    """The screen shows the first twenty."""
    groups = [collective("allreduce", 10, 10, group=str(number)) for number in range(23)]
    run = make_run(tmp_path, [kernel(n, 20 * n, 10, NCCL, 20, **metadata) for n, metadata in enumerate(groups)])
    assert len(answer(lostflops, run)["groups"]) == 23
    assert "... and 3 more" in lostflops("comm", run).out
