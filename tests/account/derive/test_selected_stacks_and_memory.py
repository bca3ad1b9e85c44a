"""Stacks and memory of random selections, against counting by hand on a run that recorded both."""

import random
from collections import Counter
from itertools import pairwise

import pytest
from tests.account.memory.recorded import Recorded
from tests.ui.made_run import recorded_run

from lostflops.account.align.one_clock import OneClock
from lostflops.account.derive import selected_memory, selection
from lostflops.account.derive.derive import derive
from lostflops.account.derive.selected_memory import SelectedMemory, select_memory
from lostflops.account.derive.selected_stacks import select_stacks
from lostflops.account.derive.selection import total_selection
from lostflops.account.derive.timeline import TimelineSpan
from lostflops.account.ledger.stack_totals import TOO_FEW, draw_stacks
from lostflops.account.memory.read import memories
from lostflops.store.run import Run
from lostflops.testing import SyntheticCluster, store
from memory_run import MemoryRun

SELECTIONS = 50
FAR = 2**62


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = recorded_run(tmp_path_factory.mktemp("selected"))
    derive(folder)
    with Run.open(folder) as opened:
        yield opened


@pytest.fixture(scope="module")
def choices(run):
    """Random edges of random ranks, each with its own, as on clocks that differ; many are times of rows."""
    span, chance = TimelineSpan.of(run, OneClock.of(run)), random.Random(11)
    known = [time for (time,) in run.rows("select time from memory union select time from samples order by time")]
    times = [-FAR, *known, *(time + 1 for time in known), FAR]
    times += [chance.randrange(span.start, span.stop) for _ in known]

    def edges():
        return tuple(sorted(chance.sample(times, 2)))

    return [{rank: edges() for rank in chance.sample(run.ranks, chance.randint(1, 4))} for _ in range(SELECTIONS)]


def cut_by_samples(stretches, samples, first, last):
    """Return samples and time of each stack of one rank and line: a piece of time goes to the next sample."""
    pieces = sorted((max(start, first), min(stop, last)) for start, stop in stretches)
    pieces = [(start, stop) for start, stop in pieces if start < stop]
    read = [(time, stack) for time, stack in samples if any(start <= time < stop for start, stop in pieces)]
    counts, times, missed = Counter(stack for _, stack in read), Counter(), 0
    for start, stop in pieces:
        cuts = [start, *(time for time, _ in read if start < time < stop), stop]
        for begin, end in pairwise(cuts):
            heirs = [stack for time, stack in read if time >= end] or [stack for _, stack in read[-1:]]
            if heirs:
                times[heirs[0]] += end - begin
            else:
                missed += end - begin
    return counts, times, missed


def expected_stacks(run, edges):
    found = {}
    for rank, (first, last) in edges.items():
        samples = run.rows(f"select time, stack from samples where rank = {rank} order by time")
        lines = {}
        for line, start, stop in run.rows(f"select line, start, stop from stretches where rank = {rank}"):
            lines.setdefault(line, []).append((start, stop))
        for line, stretches in lines.items():
            counts, times, missed = cut_by_samples(stretches, samples, first, last)
            for stack in counts:
                own = found.setdefault((line, *stack.split(";")), [0, 0])
                own[0] += counts[stack]
                own[1] += times[stack]
            if missed:
                found.setdefault((line, TOO_FEW), [0, 0])[1] += missed
    return {stack: tuple(sums) for stack, sums in found.items()}


def drawn(total):
    return {frames: (samples, ns) for frames, samples, ns in draw_stacks(total).items}


def test_stacks_have_the_samples_and_the_time_inside(run, choices):
    for edges in choices:
        expected, found = expected_stacks(run, edges), select_stacks(run, edges, is_stored=True)
        if any(samples for samples, _ in expected.values()):
            assert drawn(found) == expected
        else:
            assert found is None
    assert sum(select_stacks(run, edges, is_stored=True) is not None for edges in choices) > SELECTIONS // 2


def test_stacks_are_the_same_without_stored_stretches(run, choices):
    for edges in choices[:20]:
        assert select_stacks(run, edges, is_stored=False) == select_stacks(run, edges, is_stored=True)


def expected_memory(run, edges):
    """Walk through all events of each rank, in order."""
    for rank, (first, last) in edges.items():
        rows = run.sql(f"select time, bytes, allocated from memory where rank = {rank}").fetchall()
        rows.sort(key=lambda row: row[0])
        held = rows[0][2] - rows[0][1]
        made, inside = {"at_start": held, "allocated": 0, "freed": 0, "allocations": 0}, []
        for time, size, total in rows:
            if time < first:
                made["at_start"] = held = total
            elif time < last:
                held = total
                inside.append(total)
                made["allocated" if size > 0 else "freed"] += abs(size)
                made["allocations"] += size > 0
        yield SelectedMemory(rank=rank, device="cuda:0", peak=max([made["at_start"], *inside]), at_end=held, **made)


def test_memory_is_that_of_all_events_in_order(run, choices):
    for edges in choices:
        found = select_memory(run, edges)
        assert found == tuple(sorted(expected_memory(run, edges), key=lambda own: (-own.peak, own.rank)))
        assert all(own.at_start + own.allocated - own.freed == own.at_end for own in found)
        assert all(type(own.allocations) is int for own in found)
    assert any(own.peak == own.at_start > own.at_end for edges in choices for own in select_memory(run, edges))


def test_a_selection_has_both_on_the_clock_of_each_rank(run, monkeypatch):
    monkeypatch.setattr(OneClock, "own", lambda _, rank, times: times + 1_000_000 * rank)
    span = TimelineSpan.of(run, OneClock.of(run))
    start, stop = 2_000_000, 14_000_000
    edges = {rank: (span.start + start + 1_000_000 * rank, span.start + stop + 1_000_000 * rank) for rank in (1, 3)}
    found = total_selection(run, (1, 3), start, stop)
    assert drawn(found.stacks) == expected_stacks(run, edges)
    assert set(found.memory) == set(expected_memory(run, edges))
    monkeypatch.setattr(selection, "has_stretches", lambda *_: False)
    assert total_selection(run, (1, 3), start, stop) == found


def test_stacks_of_sampled_ranks_close_with_the_ledger(run):
    found = total_selection(run)
    assert found.stacks.lines == found.lines
    assert sum(ns for _, ns in drawn(found.stacks).values()) == found.total


def test_a_run_without_samples_and_memory_has_neither(tmp_path):
    with Run.open(store(SyntheticCluster(ranks=2, steps=2).generate(), tmp_path / "run")) as plain:
        found = total_selection(plain)
    assert (found.stacks, found.memory) == (None, ())


def memory_row(rank, time, size, total, *, kind=1, index=0):
    place = {"device_type": kind, "device_index": index}
    return {"rank": rank, "time": time, **place, "bytes": size, "allocated": total}


def run_of(rows, **more):
    """Ranks with a stream, whose memory has these rows."""
    ranks = sorted({row["rank"] for row in rows})
    streams = [{"rank": rank, "lane": 1, "kind": "stream"} for rank in ranks]
    return MemoryRun(memory=rows, lanes=streams, ranks=[{"rank": rank, "device_index": 0} for rank in ranks], **more)


def test_memory_is_that_of_the_device_of_the_rank():
    rows = [
        *(memory_row(0, 10, 7, 7, kind=0, index=-1), memory_row(0, 10, 5, 105), memory_row(0, 20, -5, 100)),
        *(memory_row(1, 12, 50, 90, kind=6, index=1), memory_row(1, 14, -50, 40, kind=6, index=1)),
        *(memory_row(2, 12, 500, 900, index=1), memory_row(2, 13, 1, 901, index=1), memory_row(2, 18, 4, 4)),
        memory_row(3, 12, 8, 8, kind=0, index=-1),
    ]
    with run_of(rows) as made:
        found = select_memory(made, {0: (11, 20), 1: (0, 12), 2: (18, 19), 3: (0, 99), 4: (0, 99)})
    assert [(own.rank, own.device, own.at_start, own.peak, own.at_end) for own in found] == [
        (0, "cuda:0", 105, 105, 105),
        (1, "cuda:1", 40, 40, 40),
        (2, "cuda:0", 0, 4, 4),
    ]
    assert [(own.allocated, own.freed, own.allocations) for own in found] == [(0, 0, 0), (0, 0, 0), (4, 0, 1)]


def test_events_at_one_time_keep_their_order():
    sizes = [3, -1, 4, -1, -5, 9]
    rows = [memory_row(0, 10, size, sum(sizes[: place + 1])) for place, size in enumerate(sizes)]
    with run_of(rows) as made:
        [inside], [after] = (select_memory(made, {0: edges}) for edges in ((10, 11), (11, 12)))
    assert (inside.at_start, inside.peak, inside.at_end) == (0, 9, 9)
    assert (after.at_start, after.peak, after.at_end) == (9, 9, 9)


def cpu_job():
    """Parameters of 500 bytes from before, and four blocks that are allocated every 20 us, and freed from 91 us on."""
    job = Recorded("cpu")
    job.step(0, 0, 100)
    job.hold(0, 10_000, 500, "parameters", before=True)
    for place in range(4):
        job.span("aten::mm", 10 + 20 * place, 15 + 20 * place)
        job.alloc(11 + 20 * place, 16 + place, 100 * (place + 1))
    for place in range(4):
        job.free(91 + place, 16 + place)
    return job


@pytest.mark.parametrize(
    ("first", "last", "totals", "sums"),
    [
        (-FAR, FAR, (500, 1500, 500), (1000, 1000, 4)),
        (31_000, 71_000, (600, 1100, 1100), (500, 0, 2)),
        (71_001, 93_001, (1500, 1500, 900), (0, 600, 0)),
        (0, 5, (500, 500, 500), (0, 0, 0)),
    ],
)
def test_memory_of_a_cpu_counts_what_was_registered_too(first, last, totals, sums):
    with cpu_job().run() as made:
        [found] = select_memory(made, {0: (first, last)})
        [memory] = memories(made)
    assert (found.device, found.at_start, found.peak, found.at_end) == ("cpu", *totals)
    assert (found.allocated, found.freed, found.allocations) == sums
    assert first > -FAR or found.peak == memory.peak_bytes


def test_totals_that_are_not_recorded_are_summed_on_few_ranks(monkeypatch):
    rows = [memory_row(0, 10, 8, None), memory_row(0, 11, 8, 16), memory_row(1, 10, 2, 2)]
    edges = {0: (11, 99), 1: (0, 99)}
    with run_of(rows) as made:
        assert [(own.rank, own.at_start, own.peak) for own in select_memory(made, edges)] == [(0, 8, 16), (1, 0, 2)]
        monkeypatch.setattr(selected_memory, "MOST_SUMMED", 0)
        found = select_memory(made, edges)
    assert [own.rank for own in found] == [1, 0]
    unknown = dict.fromkeys(("at_start", "peak", "at_end"))
    assert found[1] == SelectedMemory(rank=0, device="cuda:0", **unknown, allocated=8, freed=0, allocations=1)
