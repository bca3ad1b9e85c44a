"""Programs are simulated with several groups, two workers each, stalls and drops; a match must be the truth."""

import random
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lostflops.ingest.join.gloo_order import FlightEntries, GlooEvents, match

KINDS = [("all_reduce", 8), ("all_reduce", 8), ("all_reduce", 4), ("barrier", None)]


@dataclass
class Work:
    group: str
    seq: int
    op: str
    size: int | None
    created: int
    lane: int = -1
    start: int = -1
    stop: int = -1


def run_program(rng: random.Random, works: int, groups: int, waits: float, kinds=KINDS) -> list[Work]:
    clock = 1000
    done: list[Work] = []
    sequence = [0] * groups
    free = [[0, 0] for _ in range(groups)]
    last_taken = [0] * groups
    for _ in range(works):
        group = rng.randrange(groups)
        sequence[group] += 1
        op, size = rng.choice(kinds)
        clock += rng.randint(1, 30)
        work = Work(f"g{group}", sequence[group], op, size, clock)
        taken = max(clock + rng.randint(0, 20), last_taken[group] + 1, min(free[group]))
        last_taken[group] = taken
        worker = rng.choice([w for w in (0, 1) if free[group][w] <= taken])
        work.lane = 10 * group + worker
        work.start = taken + rng.choice([0, 1, 2, 5, 60])
        work.stop = work.start + rng.randint(1, 80)
        free[group][worker] = work.stop
        done.append(work)
        if rng.random() < waits:
            clock = max(clock, work.stop + 1)
    return done


def columns(events: list[Work], entries: list[Work], records: list[int]) -> tuple[GlooEvents, FlightEntries]:
    return (
        GlooEvents(
            [w.op for w in events],
            [w.size for w in events],
            [w.lane for w in events],
            [w.start for w in events],
            [w.stop for w in events],
        ),
        FlightEntries(
            records,
            [f"gloo:{w.op}" for w in entries],
            [w.op for w in entries],
            [0 if w.size is None else w.size for w in entries],
            [w.group for w in entries],
            [w.seq for w in entries],
            [w.created for w in entries],
        ),
    )


def matched(events, entries, profiled_from, until=None, records=None):
    return match(*columns(events, entries, records or list(range(len(entries)))), profiled_from, until)


@settings(max_examples=600, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    works=st.integers(1, 40),
    groups=st.integers(1, 4),
    waits=st.sampled_from([0.0, 0.5, 0.9, 1.0]),
    lost_events=st.sampled_from([0.0, 0.0, 0.05, 0.3]),
    damage=st.sampled_from(["none", "prefix", "suffix", "interior"]),
)
def test_a_match_is_never_wrong(*, seed, works, groups, waits, lost_events, damage):
    rng = random.Random(seed)
    program = run_program(rng, works, groups, waits)
    profiled_from = rng.choice([0, rng.choice(program).created])
    events = sorted(
        (w for w in program if w.created >= profiled_from and rng.random() >= lost_events), key=lambda w: w.start
    )
    cut = rng.randrange(works)
    kept = {
        "none": range(works),
        "prefix": range(cut, works),
        "suffix": range(cut + 1),
        "interior": [i for i in range(works) if not cut <= i < cut + rng.randint(1, 3)] or [0],
    }[damage]
    entries = [program[i] for i in kept]
    for event, entry in zip(events, matched(events, entries, profiled_from, records=list(kept)), strict=True):
        assert entry == -1 or entries[entry] is event


@settings(max_examples=200, deadline=None)
@given(seed=st.integers(0, 2**32), works=st.integers(1, 60), groups=st.integers(1, 4))
def test_a_complete_record_of_a_waiting_program_is_matched_entirely(seed, works, groups):
    rng = random.Random(seed)
    program = run_program(rng, works, groups, waits=1.0)
    profiled_from = rng.choice(program).created
    events = [w for w in program if w.created >= profiled_from]
    entries = matched(events, program, profiled_from, until=program[-1].stop)
    assert [program[entry] for entry in entries] == events


def test_without_a_later_entry_the_last_event_stays_open():
    program = run_program(random.Random(1), 5, 1, waits=1.0)
    assert matched(program, program, 0) == [0, 1, 2, 3, -1]


def test_overlapping_works_of_one_group_are_told_apart_by_size():
    works = [Work("g", 1, "all_reduce", 8, 10, 1, 22, 50), Work("g", 2, "all_reduce", 4, 11, 2, 20, 40)]
    events = [works[1], works[0]]
    assert matched(events, works, 0, until=100) == [1, 0]


def test_two_works_that_idle_workers_may_have_swapped_stay_open():
    works = [Work("g", 1, "all_reduce", 8, 10, 1, 20, 40), Work("g", 2, "all_reduce", 8, 11, 2, 22, 50)]
    assert matched(works, works, 0, until=100) == [-1, -1]


def test_a_busy_worker_keeps_the_order():
    works = [
        Work("g", 1, "all_reduce", 4, 10, 1, 20, 40),
        Work("g", 2, "all_reduce", 8, 11, 2, 22, 50),
        Work("g", 3, "all_reduce", 8, 12, 1, 42, 60),
    ]
    assert matched(works, works, 0, until=100) == [0, 1, 2]


def test_the_same_work_on_two_groups_at_once_is_told_apart_by_the_threads():
    works = [
        Work("a", 1, "all_reduce", 4, 10, 1, 20, 30),
        Work("b", 1, "broadcast", 8, 11, 2, 21, 31),
        Work("a", 2, "all_reduce", 8, 40, 1, 51, 60),
        Work("b", 2, "all_reduce", 8, 41, 2, 50, 61),
    ]
    events = sorted(works, key=lambda w: w.start)
    assert [works[entry] for entry in matched(events, works, 0, until=100)] == events


@pytest.mark.parametrize("first_record", [0, 4])
def test_a_ring_that_lost_part_of_the_window_matches_nothing(first_record):
    program = run_program(random.Random(3), 12, 1, waits=1.0)
    records = list(range(first_record, first_record + 8))
    assert set(matched(program, program[4:], 0, until=10**6, records=records)) == {-1}


def test_a_lost_event_leaves_those_before_it_matched():
    program = [Work("g", n + 1, "all_reduce", 8, 100 * n, 1, 100 * n + 5, 100 * n + 9) for n in range(6)]
    events = program[:3] + program[4:]
    assert matched(events, program, 0, until=1000) == [0, 1, 2, -1, -1]


def test_transfers_between_two_ranks_are_not_in_the_recorder():
    works = [Work("g", 1, "send", 8, 10, 1, 20, 30), Work("g", 1, "all_reduce", 8, 40, 2, 50, 60)]
    assert matched(works, works[1:], 0, until=100) == [-1, 0]


def test_a_long_trace_is_matched_quickly():
    program = run_program(random.Random(5), 20_000, 3, waits=1.0)
    assert matched(program, program, 0, until=program[-1].stop) == list(range(20_000))
