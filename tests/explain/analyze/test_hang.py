"""`hang` on dumps whose story is known; rows of table `flight` as the recorder would write them."""

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lostflops.core.errors import UsageError
from lostflops.explain.analyze.hang import hang
from memory_run import MemoryRun

WORLD = "0@0-3"
TP = "1@0-1"
KILO = 1024


def entry(rank: int, record: int, group: str = WORLD, seq: int = 0, **changes: Any) -> dict[str, Any]:
    """A completed all-reduce of 1 KiB, unless changed."""
    return {
        "rank": rank,
        "record": record,
        "group_id": group,
        "group_name": group.partition("@")[0],
        "seq": seq,
        "op_id": record,
        "op": "all_reduce",
        "name": "nccl:all_reduce",
        "is_p2p": False,
        "state": "completed",
        "created": 1_000_000 * record + rank,
        "dtype": "Float",
        "bytes_in": KILO,
        "bytes_out": KILO,
        "source": f"/job/train.py({record}): step",
    } | changes


def waiting(rank: int, record: int, group: str = WORLD, seq: int = 0, **changes: Any) -> dict[str, Any]:
    return entry(rank, record, group, seq, **({"state": "scheduled"} | changes))


def transfer(rank: int, record: int, group: str, name: str, **changes: Any) -> dict[str, Any]:
    """Numbered by the record: the counters of two ranks need not agree."""
    op = name.split(maxsplit=1)[0]
    own = {"seq": None, "p2p_seq": record, "op": op, "name": f"nccl:{name}", "is_p2p": True}
    return waiting(rank, record, group, **(own | changes))


def dumps(
    entries: Iterable[dict[str, Any]], groups: dict[str, list[int]] | None = None, ranks: Iterable[int] = range(4)
) -> dict[str, Any]:
    """The answer for dumps of `ranks`."""
    ranks = list(ranks)
    known = groups or {WORLD: [0, 1, 2, 3]}
    run = MemoryRun(
        flight=list(entries),
        ranks=[{"rank": rank, "formats": "flight_recorder"} for rank in ranks],
        groups=[
            {"group_id": group, "rank": rank, "position": members.index(rank), "size": len(members), "name": group}
            for group, members in known.items()
            for rank in members
            if rank in ranks
        ],
    )
    with run:
        return hang(run).to_json()


def blamed(found: dict[str, Any]) -> list[tuple[int, str]]:
    return [(row["rank"], row["why"]) for row in found["culprits"]]


def history(ranks: Iterable[int] = range(4), until: int = 3) -> list[dict[str, Any]]:
    """Collectives 0 to `until` - 1 of all, completed."""
    return [entry(rank, seq, seq=seq) for rank in ranks for seq in range(until)]


def test_one_rank_never_arrives() -> None:
    found = dumps([*history(), *(waiting(rank, 3, seq=3) for rank in (0, 1, 3))])
    assert found["culprits"] == [
        {
            "rank": 2,
            "why": "never arrived",
            "group": WORLD,
            "seq": 3,
            "op": "all_reduce",
            "waiting": 3,
            "line": None,
            "last": {
                "op": "all_reduce",
                "group": WORLD,
                "seq": 2,
                "state": "completed",
                "source": "/job/train.py(2): step",
                "created": 2_000_002,
            },
            "stack": None,
        }
    ]
    (group,) = found["groups"]
    assert (group["enqueued"], group["never_arrived"], group["members"]) == ("0-1,3", "2", 4)
    assert found["verdict"] == f"Rank 2 never arrived at all_reduce 3 of {WORLD}. 3 other ranks wait for it."
    assert found["mismatches"] == []


def test_a_minority_that_is_ahead() -> None:
    """Rank 3 made a call too many, and the others are done."""
    found = dumps([*history(), waiting(3, 3, seq=3)])
    assert blamed(found) == [(3, "ahead")]
    assert found["verdict"].startswith(f"Rank 3 is in all_reduce 3 of {WORLD}, which the others never called.")


def test_a_rank_ahead_while_the_others_wait_for_it_elsewhere() -> None:
    """An extra call in group 5 on rank 3; the others are in the next collective of the world, and miss rank 3."""
    other = "5@0-3"
    entries = [
        *history(),
        *(entry(rank, 3, other, 0) for rank in range(4)),
        *(waiting(rank, 4, seq=3) for rank in range(3)),
        waiting(3, 4, other, 1),
    ]
    found = dumps(entries, {WORLD: [0, 1, 2, 3], other: [0, 1, 2, 3]})
    assert blamed(found) == [(3, "ahead")]
    assert (found["culprits"][0]["group"], found["culprits"][0]["seq"]) == (other, 1)


def test_one_that_only_queued_more_than_the_others_is_not_ahead() -> None:
    entries = [*history(), *(waiting(rank, 3, seq=3) for rank in (0, 1, 3)), waiting(3, 4, seq=4), waiting(3, 5, seq=5)]
    assert blamed(dumps(entries)) == [(2, "never arrived")]


def test_two_of_two_is_no_minority() -> None:
    entries = [entry(0, 0, TP), entry(1, 0, TP), waiting(0, 1, TP, 1)]
    assert blamed(dumps(entries, {TP: [0, 1]}, range(2))) == [(1, "never arrived")]


def test_another_operation_under_the_same_number() -> None:
    other = {"op": "all_gather", "name": "nccl:_all_gather_base", "bytes_out": 4 * KILO}
    found = dumps([*history(), *(waiting(rank, 3, seq=3) for rank in (0, 1, 3)), waiting(2, 3, seq=3, **other)])
    assert blamed(found) == [(2, "mismatch")]
    (row,) = found["mismatches"]
    assert (row["seq"], row["what"], row["ranks"]) == (3, "op", "2")
    assert row["called"].startswith("all_gather")
    assert row["others"].startswith("all_reduce")


def test_another_size_in_an_all_reduce() -> None:
    found = dumps([*history(), *(waiting(rank, 3, seq=3, bytes_in=KILO if rank else 4) for rank in range(4))])
    assert blamed(found) == [(0, "mismatch")]
    assert found["verdict"].startswith(
        "Rank 0 called all_reduce Float 4 B at 3 of 0@0-3, others all_reduce Float 1024 B"
    )


@pytest.mark.parametrize(
    ("op", "name"),
    [
        ("all_to_all", "nccl:all_to_all"),
        ("gather", "nccl:gather"),
        ("scatter", "nccl:scatter"),
        ("all_gather", "nccl:all_gather"),
        ("all_reduce", "nccl:allreduce_sparse"),
    ],
)
def test_sizes_that_may_differ(op: str, name: str) -> None:
    """All four are in it with sizes of their own: no mismatch, and nobody to blame."""
    calls = [waiting(rank, 3, seq=3, op=op, name=name, bytes_in=KILO * (rank + 1)) for rank in range(4)]
    found = dumps([*history(), *calls])
    assert (found["mismatches"], found["culprits"]) == ([], [])
    assert found["verdict"].startswith(f"Culprit unknown: ranks 0-3 are in {op} 3 of {WORLD}; no rank is missing")


def test_a_tie_names_both() -> None:
    entries = [waiting(0, 0, TP, bytes_in=4), waiting(1, 0, TP, bytes_in=8)]
    assert blamed(dumps(entries, {TP: [0, 1]}, range(2))) == [(0, "mismatch"), (1, "mismatch")]


def test_only_the_first_mismatch_of_a_group() -> None:
    calls = [waiting(rank, seq, seq=seq, bytes_in=KILO + (rank == 1)) for rank in range(4) for seq in (3, 4, 5)]
    assert [row["seq"] for row in dumps([*history(), *calls])["mismatches"]] == [3]


def test_two_groups_in_another_order() -> None:
    """Ranks 0 to 2 call group 0, then 5; rank 3 the other way round."""
    other = "5@0-3"
    entries = [waiting(rank, record, group) for rank in range(3) for record, group in enumerate((WORLD, other))]
    entries += [waiting(3, record, group) for record, group in enumerate((other, WORLD))]
    found = dumps(entries, {WORLD: [0, 1, 2, 3], other: [0, 1, 2, 3]})
    assert blamed(found) == [(3, "mismatch")]
    assert [(row["what"], row["ranks"], row["group"]) for row in found["mismatches"]] == [("order", "3", other)]
    assert found["verdict"].startswith("Rank 3 called all_reduce of 5@0-3 first, others all_reduce of 0@0-3 first.")


def test_two_that_wait_for_each_other() -> None:
    other = "5@0-1"
    entries = [waiting(0, 0, TP), waiting(0, 1, other), waiting(1, 0, other), waiting(1, 1, TP)]
    found = dumps(entries, {TP: [0, 1], other: [0, 1]}, range(2))
    assert blamed(found) == [(0, "mismatch"), (1, "mismatch")]
    assert "Ranks 0-1 wait for each other; the dumps do not show which is wrong." in found["notes"]


PIPELINE = {"9@0-3": [0, 1, 2, 3], "1@0-1": [0, 1], "2@2-3": [2, 3]}


def test_a_chain_of_transfers_and_collectives() -> None:
    """0 and 1 are two ranks of a stage, 2 and 3 of the next. 3 never enters its stage's all-reduce; 2 waits for it
    there, and 0 and 1 for activations of 2."""
    entries = [
        *(entry(rank, 0, "2@2-3") for rank in (2, 3)),
        waiting(2, 1, "2@2-3", 1),
        transfer(0, 5, "9@0-3", "recv 0<-2"),
        waiting(1, 5, "1@0-1", 4),
        waiting(0, 6, "1@0-1", 4),
    ]
    found = dumps(entries, PIPELINE)
    assert [(row["rank"], row["why"], row["group"], row["waiting"]) for row in found["culprits"]] == [
        (3, "never arrived", "2@2-3", 3)
    ]


def test_a_transfer_that_the_peer_never_posted() -> None:
    found = dumps([*history(), transfer(1, 7, WORLD, "send 1->2")])
    assert blamed(found) == [(2, "never arrived")]
    assert found["culprits"][0]["op"] == "transfer 1->2"


def test_positions_are_those_within_the_group() -> None:
    pair = "7@1-3/2"
    entries = [*history(), transfer(1, 7, pair, "recv 0<-1")]
    assert blamed(dumps(entries, {WORLD: [0, 1, 2, 3], pair: [1, 3]})) == [(3, "never arrived")]


def test_a_rank_that_never_finishes_what_others_completed() -> None:
    """Rank 1 enqueues as the others do, but on its device nothing completes."""
    entries = [*history((0, 2, 3), 5), *history([1], 3), waiting(1, 3, seq=3), waiting(1, 4, seq=4)]
    found = dumps([*entries, *(waiting(rank, 5, seq=5) for rank in (0, 2, 3))])
    assert blamed(found) == [(1, "stalled")]
    assert (found["culprits"][0]["seq"], found["culprits"][0]["waiting"]) == (3, 3)
    stuck = next(row for row in found["groups"] if row["seq"] == 3)
    assert (stuck["enqueued"], stuck["completed"], stuck["never_arrived"]) == ("1", "0,2-3", "")


def test_the_root_of_a_broadcast_may_complete_before_the_others_arrive() -> None:
    sent = {"op": "broadcast", "name": "nccl:broadcast"}
    entries = [*history(), entry(0, 3, seq=3, **sent), waiting(1, 3, seq=3, **sent), waiting(2, 3, seq=3, **sent)]
    assert blamed(dumps(entries)) == [(3, "never arrived")]


def test_dumps_of_active_entries_only() -> None:
    """What is over is not in them: rank 2, without any entry, has nothing pending, and is waited for."""
    found = dumps([waiting(rank, 19, seq=9) for rank in (0, 1, 3)])
    assert blamed(found) == [(2, "never arrived")]
    assert any("Rank 2 has no entry in its dump" in note for note in found["notes"])


def test_a_newer_entry_tells_that_the_older_is_over() -> None:
    """Rank 1 is at 8, so it completed 7, in which rank 0 still is."""
    entries = [waiting(0, 10, TP, 7), waiting(0, 11, seq=9), waiting(1, 20, TP, 8)]
    entries += [waiting(rank, 21, seq=9) for rank in (1, 2, 3)]
    assert blamed(dumps(entries, {WORLD: [0, 1, 2, 3], TP: [0, 1]})) == [(0, "stalled")]


def test_alone_where_the_others_may_have_completed_it() -> None:
    """Active entries only: rank 3 is in a collective of group 5 of which the others, who wait for it, hold nothing."""
    other = "5@0-3"
    entries = [waiting(3, 4, other, 1), *(waiting(rank, 4, seq=3) for rank in range(3))]
    assert blamed(dumps(entries, {WORLD: [0, 1, 2, 3], other: [0, 1, 2, 3]})) == [(3, "alone")]


def test_the_last_one_in_a_broadcast_waits_for_nobody() -> None:
    sent = {"op": "broadcast", "name": "nccl:broadcast"}
    entries = [*history(), *(entry(rank, 3, seq=3, **sent) for rank in range(3)), waiting(3, 3, seq=3, **sent)]
    assert blamed(dumps(entries)) == [(3, "stalled")]


def test_an_overwritten_ring_is_not_absence() -> None:
    """Rank 2's ring begins after the others enqueued, and holds nothing of the group: it cannot be told."""
    own = "6@2"
    newer = [entry(2, 5_000 + n, own, n) for n in range(3)]
    found = dumps(
        [*history((0, 1, 3)), *(waiting(rank, 3, seq=3) for rank in (0, 1, 3)), *newer],
        {
            WORLD: [0, 1, 2, 3],
            own: [2],
        },
    )
    assert found["culprits"] == []
    assert found["groups"][0]["unknown"] == "2"
    assert found["verdict"].startswith("Culprit unknown: 3 ranks have pending calls")
    assert any("do not show whether some members" in note for note in found["notes"])


def test_a_ring_that_lost_old_entries_still_shows_the_newest() -> None:
    entries = [entry(2, 5_000 + n, seq=1_000 + n) for n in range(3)]
    entries += [waiting(rank, 1_003, seq=1_003) for rank in (0, 1, 3)]
    assert blamed(dumps(entries)) == [(2, "never arrived")]


def test_a_member_without_a_dump() -> None:
    found = dumps([*history((0, 1, 2)), *(waiting(rank, 3, seq=3) for rank in (0, 1, 2))], ranks=(0, 1, 2))
    assert blamed(found) == [(3, "no dump")]
    assert found["culprits"][0]["waiting"] == 3
    assert set(found["culprits"][0]["last"].values()) == {None}
    assert any("No dump from rank 3" in note for note in found["notes"])


def test_nothing_pending() -> None:
    found = dumps(history())
    assert found["verdict"] == "No hang is visible: nothing is pending on 4 ranks."
    assert (found["culprits"], found["groups"], found["mismatches"]) == ([], [], [])
    assert dumps([])["verdict"].startswith("No hang is visible")


def test_operations_of_a_coalesced_call_follow_the_call() -> None:
    """Their own entries stay `scheduled` for ever; the entry of the call tells."""
    batch = [
        transfer(0, 3, WORLD, "send 0->1", p2p_seq=1),
        transfer(0, 4, WORLD, "recv 0<-1", p2p_seq=1),
        transfer(0, 5, WORLD, "coalesced", p2p_seq=1, op=None, state="completed"),
    ]
    assert dumps([*history(), *batch])["verdict"].startswith("No hang is visible")
    batch[2]["state"] = "scheduled"
    assert blamed(dumps([*history(), *batch])) == [(1, "never arrived")]


def test_gloo_dumps_list_no_members() -> None:
    """Works that are over have no state, and the default group is that of all ranks."""
    unlisted = {"group_id": None, "group_name": "0", "name": "gloo:all_reduce"}
    entries = [entry(rank, 0, **unlisted, state=None) for rank in range(3)]
    entries += [waiting(rank, 1, seq=1, **unlisted) for rank in range(2)]
    run = MemoryRun(flight=entries, ranks=[{"rank": rank, "formats": "flight_recorder"} for rank in range(3)])
    with run:
        assert blamed(hang(run).to_json()) == [(2, "never arrived")]


def test_several_origins_and_how_many_wait_for_each() -> None:
    groups = {TP: [0, 1], "2@2-3": [2, 3]}
    entries = [entry(rank, 0, TP) for rank in (0, 1)] + [entry(rank, 0, "2@2-3") for rank in (2, 3)]
    found = dumps([*entries, waiting(0, 1, TP, 1), waiting(3, 1, "2@2-3", 1)], groups)
    assert [(row["rank"], row["waiting"]) for row in found["culprits"]] == [(1, 1), (2, 1)]
    assert found["verdict"].endswith("2 other ranks wait for them.")


def test_a_transfer_without_a_peer_blames_nobody() -> None:
    """Both ranks are in an all-reduce behind a transfer that does not say with whom."""
    entries = [transfer(rank, 0, TP, "send") for rank in (0, 1)] + [waiting(rank, 1, TP, 4) for rank in (0, 1)]
    found = dumps([*history(range(2)), *entries], {TP: [0, 1]}, range(2))
    assert found["culprits"] == []
    assert found["verdict"].startswith("Culprit unknown: 2 ranks have pending calls")
    assert any(note.startswith("Left out: 2 pending transfers with an unknown peer") for note in found["notes"])


def nothing_or(*values: Any) -> st.SearchStrategy[Any]:
    return st.none() | st.sampled_from(values)


junk = st.fixed_dictionaries(
    {
        "rank": st.integers(0, 3),
        "record": nothing_or(0, 1, 2, 500),
        "group_id": nothing_or(WORLD, TP),
        "group_name": nothing_or("0", "x@y"),
        "seq": nothing_or(0, 1, 2),
        "p2p_seq": nothing_or(0, 1),
        "op": nothing_or("all_reduce", "send", "recv", "broadcast"),
        "name": st.sampled_from(["nccl:all_reduce", "nccl:send 0->1", "nccl:recv 9<-99999999999", "nccl:coalesced"]),
        "is_p2p": nothing_or(True, False),
        "state": nothing_or("scheduled", "started", "completed"),
        "created": nothing_or(5, 7),
        "bytes_in": nothing_or(4, 8),
    }
)


@settings(max_examples=30, deadline=None)
@given(st.lists(junk, max_size=12))
def test_junk_breaks_nothing(rows: list[dict[str, Any]]) -> None:
    found = dumps(rows, {WORLD: [0, 1, 2, 3], TP: [0, 1]})
    assert all(row["why"] and row["rank"] in range(4) for row in found["culprits"])


def test_without_dumps() -> None:
    with MemoryRun(ranks=[{"rank": 0, "formats": "kineto"}]) as run, pytest.raises(UsageError) as error:
        hang(run)
    for name in ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE", "TORCH_NCCL_DUMP_ON_TIMEOUT"):
        assert name in str(error.value)
