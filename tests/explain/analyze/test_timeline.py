"""All ranks on one clock: a made cluster whose clocks are off, against its tables and what was declared."""

from collections import Counter, defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lostflops.account.align.longest_events import share
from lostflops.account.align.one_clock import OneClock
from lostflops.account.ledger.lines import LINES
from lostflops.core.errors import UsageError
from lostflops.explain.analyze.timeline import timeline
from lostflops.show.serve.held_events import HeldEvents
from lostflops.store.run import Run
from lostflops.testing import Clock, Straggler, SyntheticCluster, store

CLUSTER = SyntheticCluster(
    ranks=4,
    ranks_per_host=1,
    steps=3,
    stragglers=(Straggler(2, "slow_kernels", factor=1.6),),
    clocks={1: Clock(700_000_000, 20.0), 2: Clock(-350_000_000, -30.0), 3: Clock(5_000_000)},
)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    with Run.open(store(CLUSTER.generate(), tmp_path_factory.mktemp("timeline") / "run", host_names=True)) as opened:
        yield opened


@pytest.fixture(scope="module")
def answer(run):
    return timeline(run)


def items(events):
    """Rows of events, each with its rank and the place that `launch` counts."""
    first = 0
    for lane in events.lanes:
        for place in range(first, first + lane.events):
            yield lane.row, place
        first += lane.events


def test_the_strips_show_who_waits_for_the_slow_rank(answer):
    (strips,) = answer.blocks
    wait = 1 + LINES.index("comm.wait")
    waits = {name: codes.count(wait) / strips.bins for name, codes in strips.rows}
    assert waits["rank 2"] < 0.02
    assert all(share > 0.1 for name, share in waits.items() if name != "rank 2")
    assert [number for number, _ in strips.marks] == [10, 11, 12]
    assert "on one clock" in answer.verdict
    # Steps of all ranks begin together, though their clocks differ by a second.
    assert strips.stop - strips.start < 20_000_000


def test_clocks_that_are_not_tied_tell_no_beginning_of_steps(run, monkeypatch):
    monkeypatch.setattr(OneClock, "of", lambda _: OneClock({}))
    apart = timeline(run)
    assert "each rank on its own clock" in apart.verdict
    assert apart.blocks[0].marks == ()


def test_collectives_end_together_on_all_ranks(answer):
    events = answer.blocks[0].events
    place_of = {(row, events.event[place]): place for row, place in items(events)}
    told = events.meetings
    ends = defaultdict(list)
    for meeting, row, event in zip(told.meeting, told.row, told.event, strict=True):
        place = place_of[row, event]
        ends[meeting].append(events.start[place] + events.dur[place])
    assert [len(each) for each in ends.values()] == [4] * 6
    assert all(max(each) - min(each) < 1000 for each in ends.values())


def test_meetings_tell_arrivals_and_waits(run, answer):
    told = answer.blocks[0].events.meetings
    found = sorted(zip(told.row, told.event, told.wait, told.dur, strict=True))
    expected = run.sql(
        "select rank, event, wait, stop - start from arrivals join collectives using (rank, event) order by all"
    ).fetchall()
    assert found == expected
    assert told.left_out == 0
    assert Counter(told.row)[2] > 0


def test_every_event_is_kept_where_there_is_room(run, answer):
    events = answer.blocks[0].events
    found = sorted((row, events.event[at], events.names[events.name[at]], events.dur[at]) for row, at in items(events))
    kinds = Counter(events.kinds[kind] for kind in events.kind)
    assert found == run.sql("select rank, event, name, dur from events where kind <> 'span' order by all").fetchall()
    expected = run.sql("select kind, count(*) from events where kind <> 'span' group by kind").fetchall()
    assert kinds == dict(expected)
    assert events.left_out == 0
    assert min(events.start) == 0


def test_a_kernel_is_tied_to_the_call_that_launched_it(run, answer):
    events = answer.blocks[0].events
    at = {(row, events.event[place]): place for row, place in items(events)}
    rows = run.sql(
        "select k.rank, k.event, min(r.event) from events k join events r using (rank, correlation) "
        "where k.kind in ('kernel', 'comm') and r.kind = 'runtime' and k.correlation is not null group by 1, 2"
    ).fetchall()
    assert len(rows) > 100
    assert all(events.launch[at[rank, kernel]] == 1 + at[rank, call] for rank, kernel, call in rows)
    assert sum(launch > 0 for launch in events.launch) == len(rows)


def test_without_room_the_longest_of_each_lane_are_kept(run, answer):
    limited = timeline(run, most=400)
    whole, few = answer.blocks[0].events, limited.blocks[0].events
    assert len(few.start) <= 400
    assert len(few.start) + few.left_out == len(whole.start)
    assert [(lane.row, lane.name) for lane in few.lanes] == [(lane.row, lane.name) for lane in whole.lanes]
    kept = {(row, few.event[at]) for row, at in items(few)}
    spans = defaultdict(lambda: ([], []))
    first = 0
    for lane in whole.lanes:
        for at in range(first, first + lane.events):
            spans[lane][(lane.row, whole.event[at]) not in kept].append(whole.dur[at])
        first += lane.events
    # Durations count in steps of a fifth: what is left out is hardly longer than the shortest that is kept.
    assert all(max(out) <= 1.2 * min(held) + 1 for held, out in spans.values() if out and held)
    assert any("left out" in note for note in limited.notes)


def test_names_count_as_room(run):
    events = timeline(run, room=3000).blocks[0].events
    assert sum(map(len, events.names)) + 10 * len(events.start) <= 3000
    assert events.start


def test_a_window_has_what_touches_it(run, answer):
    strips = answer.blocks[0]
    whole = strips.events
    start, stop = (strips.stop - strips.start) // 3, (strips.stop - strips.start) // 2
    part = HeldEvents(most=0).within(run, [1, 3], start, stop, 100_000)
    found = sorted((row, part.event[at], part.start[at]) for row, at in items(part))
    expected = sorted(
        (row, whole.event[at], whole.start[at])
        for row, at in items(whole)
        if row in (1, 3) and whole.start[at] < stop and whole.start[at] + whole.dur[at] > start
    )
    # Clocks are turned back to a ns: an event that ends at the very edge may be in or out.
    assert abs(len(found) - len(expected)) <= 2
    assert len(set(found) & set(expected)) >= len(expected) - 2
    assert len(expected) > 50


def test_a_window_says_how_much_is_left_out(run):
    part = HeldEvents(most=0).within(run, [0], 0, 10**12, 50)
    ((held,),) = run.sql("select count(*) from events where rank = 0 and kind <> 'span'").fetchall()
    assert len(part.start) <= 50
    assert len(part.start) + part.left_out == held


def test_a_window_with_nothing_in_it_is_empty(run):
    part = HeldEvents(most=0).within(run, [0], 10**14, 10**14 + 1, 50)
    assert (len(part.start), part.left_out, len(part.meetings.row)) == (0, 0, 0)


def test_unknown_ranks_are_refused(run):
    with pytest.raises(UsageError, match="no rank 9"):
        HeldEvents(most=0).within(run, [0, 9], 0, 1000, 50)


@given(st.lists(st.integers(0, 30), max_size=6), st.integers(0, 60))
def test_lanes_share_the_room(held, most):
    room = share(held, most)
    assert sum(min(own, room) for own in held) <= most
    assert sum(min(own, room + 1) for own in held) > most or room >= max(held, default=0)
