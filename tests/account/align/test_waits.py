"""Who waited, how long and for whom: meetings made by hand, and rules that hold for any."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from lostflops.account.align.clocks import clocks
from lostflops.account.align.match import match
from lostflops.account.align.waits import BASES, UNKNOWN, Arrivals, arrivals
from made_calls import Call, made

EPOCH = 1_700_000_000_000_000_000
Hosts = dict[int, str | None]


def table(calls: list[Call], hosts: Hosts, sizes: dict[str, int] | None = None) -> list[dict[str, Any]]:
    """Rows of table `arrivals`, unknown values as None; `name` is that of the call."""
    listed = made(*calls)
    matched = match(listed.calls, sizes or {}, hosts)
    names = dict(zip(listed.calls.event.tolist(), listed.names, strict=True))
    rows = []
    for met in arrivals(matched, clocks(matched, np.array(sorted(hosts), np.int64), hosts)):
        for values in zip(*(getattr(met, name).tolist() for name in Arrivals.__slots__), strict=True):
            row = {n: None if v == UNKNOWN else v for n, v in zip(Arrivals.__slots__, values, strict=True)}
            rows.append(row | {"basis": BASES[row["basis"]], "name": names.get(row["event"])})
    return rows


def of(rows: list[dict[str, Any]], *columns: str) -> list[tuple[Any, ...]]:
    return [tuple(row[column] for column in columns) for row in rows]


def meeting(seq: int, spans: dict[int, tuple[int, int]], **more: object) -> list[Call]:
    return [
        Call(rank, EPOCH + start, EPOCH + stop, seq=seq, name=f"{seq}").but(**more)
        for rank, (start, stop) in spans.items()
    ]


ONE_HOST: Hosts = {0: "a", 1: "a", 2: "a"}


def test_the_last_to_start_is_waited_for() -> None:
    rows = table(meeting(1, {0: (0, 100), 1: (70, 100), 2: (30, 100)}, step=4), ONE_HOST, {"g": 3})
    assert of(rows, "rank", "wait", "late_rank", "basis") == [
        (0, 70, 1, "clock"),
        (1, 0, 1, "clock"),
        (2, 40, 1, "clock"),
    ]
    assert of(rows, "arrived", "step", "expected", "seen", "is_transfer") == [
        (EPOCH + start, 4, 3, 3, False) for start in (0, 70, 30)
    ]


def test_by_the_common_clock() -> None:
    """Rank 1 is a second ahead; its calls look late and are early."""
    second = 10**9
    calls = [
        call
        for seq in range(6)
        for call in meeting(
            seq, {0: (10**6 * seq + 60, 10**6 * seq + 100), 1: (second + 10**6 * seq + 10, second + 10**6 * seq + 100)}
        )
    ]
    rows = table(calls, {0: None, 1: None})
    assert of(rows, "rank", "wait", "late_rank") == [(0, 0, 0)] * 6 + [(1, 50, 0)] * 6
    assert of(rows, "arrived")[6:] == [(EPOCH + 10**6 * seq + 10,) for seq in range(6)]
    assert of(rows, "meeting")[:6] == of(rows, "meeting")[6:]


def test_nobody_waits_longer_than_its_call() -> None:
    """Rank 0 is done before rank 2 begins, as in a broadcast."""
    calls = meeting(1, {0: (0, 20), 1: (10, 300), 2: (200, 300)}, op="broadcast")
    calls += [call for seq in (2, 3) for call in meeting(seq, dict.fromkeys(ONE_HOST, (1000 * seq, 1000 * seq + 9)))]
    rows = [row for row in table(calls, ONE_HOST) if row["name"] == "1"]
    assert of(rows, "wait", "late_rank") == [(20, 2), (190, 2), (0, 2)]


def test_what_cannot_be_told_is_none() -> None:
    """Ends lie 100 ns apart, so that 100 ns of arrival are noise, and 10,000 are not."""
    calls = [
        call
        for seq in range(4)
        for call in meeting(seq, {0: (10**6 * seq, 10**6 * seq + 50_000), 1: (10**6 * seq + 100, 10**6 * seq + 50_100)})
    ]
    calls += meeting(9, {0: (9 * 10**6, 9 * 10**6 + 50_000), 1: (9 * 10**6 + 10_000, 9 * 10**6 + 50_100)})
    rows = table(calls, {0: "a", 1: "a"})
    assert of(rows, "rank", "wait", "late_rank") == [
        *[(0, 0, None)] * 4,
        (0, 10_000, 1),
        *[(1, 0, None)] * 4,
        (1, 0, 1),
    ]


def test_all_at_once_wait_for_nobody() -> None:
    rows = table(meeting(1, {0: (5, 100), 1: (5, 100), 2: (5, 100)}), ONE_HOST)
    assert of(rows, "wait", "late_rank") == [(0, None)] * 3


def test_calls_of_no_length() -> None:
    rows = table(meeting(1, {0: (100, 100), 1: (100, 100)}), {0: "a", 1: "a"})
    assert of(rows, "wait", "late_rank") == [(0, None)] * 2


def test_the_shortest_where_clocks_are_not_tied() -> None:
    """Broadcasts tie nothing."""
    spans = {0: (0, 100), 1: (10**9, 10**9 + 30), 2: (0, 55)}
    rows = table(meeting(1, spans, op="broadcast", step=2), {0: None, 1: None, 2: None})
    assert of(rows, "wait", "late_rank", "basis", "step") == [
        (70, 1, "shortest", 2),
        (0, 1, "shortest", 2),
        (25, 1, "shortest", 2),
    ]
    assert of(rows, "arrived") == [(EPOCH,), (None,), (None,)]


def test_a_member_without_a_record_has_a_row() -> None:
    calls = meeting(1, {0: (0, 100), 1: (70, 100), 2: (30, 100)}) + meeting(2, {0: (200, 300), 2: (230, 300)})
    rows = table(calls, ONE_HOST, {"g": 8})
    assert of(rows, "rank", "name", "wait", "late_rank", "seen", "expected", "basis") == [
        (0, "1", 70, 1, 3, 8, "clock"),
        (0, "2", 30, 2, 2, 8, "clock"),
        (1, "1", 0, 1, 3, 8, "clock"),
        (1, None, None, 2, 2, 8, None),
        (2, "1", 40, 1, 3, 8, "clock"),
        (2, "2", 0, 2, 2, 8, "clock"),
    ]
    assert of(rows, "event", "arrived")[3] == (None, None)


def test_transfers_meet_in_two() -> None:
    send = Call(0, EPOCH, EPOCH + 90, op="send", peer=2, name="out")
    receive = Call(2, EPOCH + 40, EPOCH + 90, op="recv", peer=0, name="in")
    alone = Call(0, EPOCH + 200_000, EPOCH + 200_090, op="send", peer=2, name="lost")
    rows = table([send, receive, alone], ONE_HOST)
    assert of(rows, "rank", "name", "wait", "late_rank", "is_transfer", "expected", "seen") == [
        (0, "out", 40, 2, True, 2, 2),
        (0, "lost", 0, None, True, 2, 1),
        (2, "in", 0, 2, True, 2, 2),
        (2, None, None, None, True, 2, 1),
    ]


def test_meetings_of_all_channels_have_numbers_of_their_own() -> None:
    calls = meeting(1, {0: (0, 9), 1: (0, 9)}) + meeting(2, {0: (20, 29), 1: (20, 29)})
    calls += meeting(1, {0: (40, 49), 2: (40, 49)}, group="h", name="h1")
    rows = table(calls, ONE_HOST)
    told: dict[int, set[str]] = {}
    for number, name in of(rows, "meeting", "name"):
        told.setdefault(number, set()).add(name)
    assert sorted(told) == [0, 1, 2]
    assert sorted(map(sorted, told.values())) == [["1"], ["2"], ["h1"]]


def test_nothing() -> None:
    assert table([], {0: None}) == []
    assert table(meeting(1, {0: (0, 9)}), {0: None}) == []


@settings(deadline=None, derandomize=True, max_examples=150)
@given(st.data())
def test_rules_that_hold_for_any_calls(data: st.DataObject) -> None:
    """Even if no clock and no group is as it should be."""
    ranks = range(data.draw(st.integers(2, 4)))
    hosts: Hosts = {rank: data.draw(st.sampled_from((None, "a", "b"))) for rank in ranks}
    calls = []
    for number in range(data.draw(st.integers(1, 8))):
        op = data.draw(st.sampled_from(("all_reduce", "broadcast", "send", "recv")))
        for rank in data.draw(st.sets(st.sampled_from(ranks), min_size=1)):
            start = EPOCH + 10_000 * number + data.draw(st.integers(0, 50_000))
            stop = start + data.draw(st.integers(0, 30_000))
            seq = data.draw(st.sampled_from((number, -1)))
            group = data.draw(st.sampled_from(("g", None)))
            calls.append(
                Call(rank, start, stop, seq=seq, op=op, group=group, peer=(rank + 1) % 2, name=f"{len(calls)}")
            )
    rows = table(calls, hosts)
    length = {call.name: call.stop - call.start for call in calls}
    by_meeting: dict[int, list[dict[str, Any]]] = {}
    for row in rows:
        by_meeting.setdefault(row["meeting"], []).append(row)
    assert of(rows, "rank") == sorted(of(rows, "rank"))
    for met in by_meeting.values():
        own = [row for row in met if row["name"] is not None]
        assert {row["seen"] for row in met} == {len(own)}
        assert len({row["rank"] for row in met}) == len(met) >= 2
        assert all(0 <= row["wait"] <= length[row["name"]] for row in own)
        assert all(row["wait"] is None and row["basis"] is None for row in met if row["name"] is None)
        (late,) = {row["late_rank"] for row in met}
        assert (late is not None) == any(row["wait"] for row in own)
        if late is not None:
            (last,) = [row for row in own if row["rank"] == late]
            assert last["wait"] == 0
            if last["basis"] == "clock":
                assert last["arrived"] == max(row["arrived"] for row in own)
            else:
                assert length[last["name"]] == min(length[row["name"]] for row in own)
    used = [row["name"] for row in rows if row["name"] is not None]
    assert len(set(used)) == len(used)
