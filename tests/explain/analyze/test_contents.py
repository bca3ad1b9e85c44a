from lostflops.explain.analyze.contents import contents
from memory_run import MemoryRun

MS = 1_000_000
T0 = 1_700_000_000_000_000_000


def test_clocks_of_hosts_do_not_make_a_run_long() -> None:
    events = [{"rank": rank, "kind": "op", "start": T0 + 2_000 * MS * rank, "dur": (5 + rank) * MS} for rank in (0, 1)]
    for hosts, length in ((("a", "b"), "6.00 ms"), (("a", "a"), "2.01 s")):
        ranks = [{"rank": rank, "host": host, "events": 1} for rank, host in enumerate(hosts)]
        result = contents(MemoryRun(ranks=ranks, events=events))
        assert result.verdict == f"2 ranks, 0 steps, 2 events over {length}."
        assert result.to_json()["held"]["span"] == 2_006 * MS


def test_two_of_four_ranks() -> None:
    run = MemoryRun(
        ranks=[
            {"rank": 0, "host": "a", "device": "H100", "world_size": 4, "backend": "nccl", "formats": "kineto",
             "source_bytes": 100, "events": 3},
            {"rank": 2, "host": "b", "device": "H100", "world_size": 4, "backend": "nccl", "formats": "kineto",
             "source_bytes": 50, "events": 1},
        ],
        events=[
            {"rank": 0, "kind": "op", "start": T0, "dur": 5 * MS},
            {"rank": 0, "kind": "kernel", "start": T0 + MS, "dur": 9 * MS},
            {"rank": 0, "kind": "kernel", "start": T0 + 2 * MS, "dur": MS},
            {"rank": 2, "kind": "op", "start": T0 + MS, "dur": MS},
        ],
        steps=[
            {"rank": 0, "step": 7, "start": T0, "stop": T0 + 2 * MS},
            {"rank": 0, "step": 8, "start": T0 + 2 * MS, "stop": T0 + 6 * MS},
        ],
        collectives=[
            {"rank": 0, "op": "all_reduce", "group_id": "0", "bytes_in": 10, "bytes_out": 10},
            {"rank": 2, "op": "all_reduce", "group_id": "0", "bytes_in": 10, "bytes_out": 10},
            {"rank": 2, "op": "broadcast", "group_id": "1"},
        ],
        stats=[
            {"rank": 0, "what": "shapes_dropped", "effect": "note", "count": 9, "reason": "too long"},
            {"rank": 0, "what": "truncated", "effect": "missing", "count": 1, "reason": "cut"},
            {"rank": 2, "what": "truncated", "effect": "missing", "count": 1, "reason": "cut"},
        ],
    )  # fmt: skip
    result = contents(run)
    assert result.verdict == "2 of 4 ranks, 2 steps, 4 events over 10.0 ms."
    assert result.notes == ("2 of 4 ranks are not in the run.", "1 of 2 ranks have no step.")
    data = result.to_json()
    assert data["held"] == {
        "ranks": 2,
        "world_size": 4,
        "hosts": 2,
        "ranks_with_device": 2,
        "backends": "nccl",
        "formats": "kineto",
        "steps": 2,
        "first_step": 7,
        "last_step": 8,
        "median_step": 3 * MS,
        "timed_steps": 0,
        "enqueues": 0,
        "attempts": 0,
        "first_event": T0,
        "span": 10 * MS,
        "events": 4,
        "source_bytes": 150,
    }
    assert data["devices"] == [{"device": "H100", "ranks": 2, "hosts": 2}]
    assert data["kinds"] == [{"kind": "kernel", "events": 2, "ranks": 1}, {"kind": "op", "events": 2, "ranks": 2}]
    assert data["collectives"] == [
        {"op": "all_reduce", "count": 2, "groups": 1, "bytes_in": 20, "bytes_out": 20},
        {"op": "broadcast", "count": 1, "groups": 1, "bytes_in": None, "bytes_out": None},
    ]
    assert [(row["what"], row["ranks"], row["count"]) for row in data["stats"]] == [
        ("truncated", 2, 2),
        ("shapes_dropped", 1, 9),
    ]


def test_an_empty_run() -> None:
    result = contents(MemoryRun())
    assert result.verdict == "0 ranks, 0 steps, 0 events."
    assert result.to_json()["held"]["span"] is None
