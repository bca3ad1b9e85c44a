"""Random programs of blocking calls in which one rank breaks: it is named, whoever waits for whom."""

from collections import Counter
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lostflops.account.flight.waits import components
from lostflops.explain.analyze.hang import hang
from memory_run import MemoryRun

RANKS = 5


@dataclass(frozen=True)
class Call:
    """A collective of `members`, or a transfer from the first to the second."""

    members: tuple[int, ...]
    is_transfer: bool

    @property
    def group(self) -> str:
        return "9" + "".join(map(str, self.members)) + "@" + ",".join(map(str, self.members))


members = st.sets(st.integers(0, RANKS - 1), min_size=2, max_size=RANKS).map(lambda ranks: tuple(sorted(ranks)))
calls = st.builds(lambda ranks, flag: Call(ranks, flag and len(ranks) == 2), members, st.booleans())
programs = st.lists(calls, min_size=1, max_size=12)


def play(program: list[Call], broken: int, after: int, is_stall: bool) -> list[dict[str, Any]]:
    """Entries of all ranks when nothing moves any more. `broken` stops before its call number `after`; or, in a stall,
    it makes that call and never completes it, while the others do."""
    entries: list[dict[str, Any]] = []
    held: set[int] = set()
    made: Counter[int] = Counter()
    numbers: Counter[str] = Counter()
    for call in program:
        if broken in call.members and made[broken] == after and not is_stall:
            held.add(broken)
        arriving = [rank for rank in call.members if rank not in held]
        is_complete = len(arriving) == len(call.members)
        for rank in arriving:
            stalls = is_stall and rank == broken and made[rank] == after
            entries.append(entry(call, numbers[call.group], rank, made[rank], is_complete and not stalls))
            made[rank] += 1
            if not is_complete or stalls:
                held.add(rank)
        numbers[call.group] += 1
    return entries


def entry(call: Call, number: int, rank: int, record: int, is_over: bool) -> dict[str, Any]:
    is_sender = rank == call.members[0]
    title = ("send 0->1" if is_sender else "recv 1<-0") if call.is_transfer else "all_reduce"
    return {
        "rank": rank,
        "record": record,
        "group_id": call.group,
        "seq": None if call.is_transfer else number,
        "p2p_seq": number if call.is_transfer else None,
        "op": title.split(maxsplit=1)[0],
        "name": f"nccl:{title}",
        "is_p2p": call.is_transfer,
        "state": "completed" if is_over else "scheduled",
        "created": record,
        "bytes_in": 4,
        "bytes_out": 4,
    }


def answer(program: list[Call], entries: list[dict[str, Any]]) -> list[tuple[int, str]]:
    groups = {call.group: call.members for call in program}
    rows = [
        {"group_id": group, "rank": rank, "position": position, "size": len(ranks), "name": group}
        for group, ranks in groups.items()
        for position, rank in enumerate(ranks)
    ]
    ranks = [{"rank": rank, "formats": "flight_recorder"} for rank in range(RANKS)]
    with MemoryRun(flight=entries, groups=rows, ranks=ranks) as run:
        return [(row["rank"], row["why"]) for row in hang(run).to_json()["culprits"]]


@pytest.mark.parametrize("is_full", [True, False], ids=["full", "active"])
@settings(max_examples=15, deadline=None)
@given(programs, st.integers(0, RANKS - 1), st.integers(0, 5))
def test_a_rank_that_stops(is_full: bool, program: list[Call], broken: int, after: int) -> None:
    entries = play(program, broken, after, is_stall=False)
    pending = [row for row in entries if row["state"] == "scheduled"]
    found = answer(program, entries if is_full else pending)
    assert found == ([(broken, "never arrived")] if pending else [])


@settings(max_examples=15, deadline=None)
@given(programs, st.integers(0, RANKS - 1), st.integers(0, 5))
def test_a_rank_whose_device_stops(program: list[Call], broken: int, after: int) -> None:
    collectives = [Call(call.members, is_transfer=False) for call in program]
    entries = play(collectives, broken, after, is_stall=True)
    is_broken = any(row["rank"] == broken and row["state"] == "scheduled" for row in entries)
    assert answer(collectives, entries) == ([(broken, "stalled")] if is_broken else [])


@given(st.dictionaries(st.integers(0, 7), st.lists(st.integers(0, 7), max_size=4), max_size=8))
def test_components(drawn: dict[int, list[int]]) -> None:
    """Against the definition: two nodes are together when each reaches the other; followers come first."""
    graph = {node: drawn.get(node, []) for node in {*drawn, *(each for row in drawn.values() for each in row)}}

    def reach(start: int) -> set[int]:
        seen, rest = {start}, [start]
        while rest:
            new = set(graph[rest.pop()]) - seen
            seen |= new
            rest += new
        return seen

    reached = {node: reach(node) for node in graph}
    found = components(graph)
    together = {frozenset(other for other in reached[node] if node in reached[other]) for node in graph}
    assert {frozenset(component) for component in found} == together
    assert sorted(node for component in found for node in component) == sorted(graph)
    place = {node: number for number, component in enumerate(found) for node in component}
    assert all(place[following] <= place[node] for node in graph for following in graph[node])
