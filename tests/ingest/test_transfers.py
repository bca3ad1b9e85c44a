"""Peers of gloo's transfers: told by the call inside which they begin, where the rank has one group."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lostflops.ingest import ingest
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
