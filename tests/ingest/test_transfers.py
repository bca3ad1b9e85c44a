"""Peers of gloo's transfers, from the call inside which they begin, where the rank has one group or one pipeline."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lostflops.ingest import ingest
from lostflops.ingest.join.flight import Ring, fill
from lostflops.ingest.join.gloo_order import FlightEntries
from lostflops.store.run import Run

WORLD = {"pg_name": "0", "pg_desc": "default_pg", "ranks": [4, 5, 6, 7]}
PAIR = {"pg_name": "1", "pg_desc": "pp", "ranks": [5, 6]}


def event(name: str, start: int, lasts: int, tid: int = 1, **args: Any) -> dict[str, Any]:
    return {
        "ph": "X", "cat": "cpu_op", "name": name, "ts": start, "dur": lasts, "pid": 9, "tid": tid, "args": args
    }  # fmt: skip


def call(op: str, start: int, peer: str) -> dict[str, Any]:
    return event(op, start, 10, **{"Concrete Inputs": ["", "", peer, "0"]})


def told(folder: Path, groups: list[Any], events: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    info = {"rank": 5, "world_size": 4, "backend": "gloo", "pg_config": groups}
    (folder / "rank5.json").write_text(json.dumps({"distributedInfo": info, "traceEvents": events}))
    ingest([folder / "rank5.json"], folder / "run")
    with Run.open(folder / "run") as run:
        return run.sql("select op, group_id, group_size, peer from collectives order by start").fetchall()


EVENTS = [
    call("c10d::send", 100, "2"),
    event("gloo:send", 105, 400),
    call("c10d::recv_", 200, "0"),
    event("gloo:recv", 206, 50),
    event("gloo:send", 300, 20),
    call("c10d::send", 400, "9"),
    event("gloo:send", 401, 20),
    call("c10d::send", 500, "1"),
    event("gloo:send", 505, 20, tid=2),
]


def test_the_call_around_a_transfer_names_its_peer(tmp_path: Path) -> None:
    assert told(tmp_path, [WORLD], EVENTS) == [
        ("send", "0@4-7", 4, 6),
        ("recv", "0@4-7", 4, 4),
        ("send", None, None, None),  # begins in no call
        ("send", None, None, None),  # the group has no tenth member
        ("send", None, None, None),  # the call is another thread's
    ]


@pytest.mark.parametrize("groups", [[WORLD, PAIR], [], [WORLD, "?"], [{"pg_name": "0", "ranks": [5]}]])
def test_a_place_in_an_unknown_group_names_nobody(tmp_path: Path, groups: list[Any]) -> None:
    assert {row[1:] for row in told(tmp_path, groups, EVENTS)} == {(None, None, None)}


IN_PAIR = [call("c10d::send", 100, "1"), event("gloo:send", 105, 40)]
CONTEXT = {"pg_name": "2", "pg_desc": "mesh_cp", "ranks": [4, 5]}


def test_of_several_groups_the_pipeline_is_the_one_of_transfers(tmp_path: Path) -> None:
    named = {**PAIR, "pg_desc": "PIPELINE_MODEL_PARALLEL_GROUP"}
    assert told(tmp_path, [WORLD, named], IN_PAIR) == [("send", "1@5-6", 2, 6)]


@pytest.mark.parametrize("groups", [[WORLD, PAIR, CONTEXT], [WORLD, PAIR, {**PAIR, "pg_name": "3"}]])
def test_transfers_that_may_be_of_two_groups_have_none(tmp_path: Path, groups: list[Any]) -> None:
    assert told(tmp_path, groups, IN_PAIR) == [("send", None, None, None)]


def test_a_transfer_to_itself_is_not_of_the_pipeline(tmp_path: Path) -> None:
    to_itself = [call("c10d::send", 100, "0"), event("gloo:send", 105, 40)]
    assert told(tmp_path, [WORLD, PAIR], to_itself) == [("send", None, None, None)]


def test_a_ring_leaves_transfers_their_group() -> None:
    rows = {
        "metadata": ["gloo", "gloo"], "op": ["send", "all_reduce"], "group_id": ["1@5-6", None],
        "group_size": [2, None], "seq": [None, None], "order_source": ["group ordinal", "lane ordinal"],
        "start": [1, 12], "stop": [3, 14],
        "bytes_in": [8, 8], "lane": [1, 2], "ordinal": [0, 0],
    }  # fmt: skip
    entries = FlightEntries([0, 1], ["gloo:all_reduce"] * 2, ["all_reduce"] * 2, [8, 4], ["0"] * 2, [1, 2], [11, 20])
    fill(rows, {"0@4-7": 4}, {10: Ring(entries, ["0@4-7", "0@4-7"])})
    assert rows["group_id"] == ["1@5-6", "0@4-7"]
    assert rows["order_source"] == ["group ordinal", "flight_recorder"]
