"""Windows that are found in memory are those that SQL finds."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lostflops.account.align.lane_events import Extent
from lostflops.account.align.one_clock import OneClock
from lostflops.core.errors import UsageError
from lostflops.core.pictures import Counter
from lostflops.show.serve.held_events import HeldEvents
from lostflops.show.serve.work import Stopped
from lostflops.store.run import Run

SPAN = 60_000_000


@pytest.fixture(scope="module")
def run(run_folder: Path):
    with Run.open(run_folder) as opened:
        yield opened


@pytest.fixture(scope="module")
def events(run: Run) -> list[tuple[int, ...]]:
    return run.sql("select rank, lane, event, start, dur from events where kind <> 'span'").fetchall()


def naive(events: list[tuple[int, ...]], ranks: tuple[int, ...], start: int, stop: int) -> list[tuple[int, int]]:
    """Rank and event in the order in which they are kept: lanes take turns, each with its longest first."""
    inside = [one for one in events if one[0] in ranks and one[3] < stop and one[3] + one[4] > start]
    turns = []
    for lane in {one[:2] for one in inside}:
        own = sorted((one for one in inside if one[:2] == lane), key=lambda one: (-one[4], one[2]))
        turns += [(place, *lane, one[2]) for place, one in enumerate(own)]
    return [(rank, event) for _, rank, _, event in sorted(turns)]


HELD = HeldEvents()
SQL_ALONE = HeldEvents(most=0)


@given(
    ranks=st.sampled_from([(0,), (1,), (0, 1)]),
    window=st.tuples(st.integers(-SPAN // 10, SPAN), st.integers(0, SPAN)),
    most=st.one_of(st.integers(0, 60), st.just(10_000)),
)
@settings(max_examples=60, deadline=None)
def test_events_are_those_of_a_naive_search(run, events, ranks, window, most) -> None:
    own_clocks = OneClock({})
    start, width = window
    begin = min(one[3] for one in events) + start
    found, held = HELD._longest(run, own_clocks, ranks, Extent(begin, begin + width), most)
    expected = naive(events, ranks, begin, begin + width)
    assert list(zip(found["rank"].tolist(), found["event"].tolist(), strict=True)) == expected[:most]
    assert held == len(expected)


@pytest.mark.parametrize("start", [0, SPAN // 3, SPAN * 9])
def test_windows_with_room_for_all_are_those_of_sql(run: Run, start: int) -> None:
    asked = (run, [0, 1], start, start + SPAN // 3, 10_000)
    assert HELD.within(*asked) == SQL_ALONE.within(*asked)


def test_ranks_make_room_for_others(run: Run) -> None:
    held = HeldEvents(most=400)
    for rank in (0, 1, 0):
        found = held.within(run, [rank], 0, SPAN, 50)
        assert sum(lane.events for lane in found.lanes) == 50
        assert list(held._ranks) == [rank]
    both = held.within(run, [0, 1], 0, SPAN * 9, 50)
    assert sum(lane.events for lane in both.lanes) + both.left_out == 738


def test_counters_of_windows_are_those_of_the_whole_time(run: Run) -> None:
    whole = HELD.within(run, [0, 1], 0, SPAN * 9, 50).counters
    assert [(one.row, one.name) for one in whole] == [
        (row, name) for row in (0, 1) for name in ("launch queue", "steps/s")
    ]
    for start in range(0, SPAN, SPAN // 7):
        part = HELD.within(run, [0, 1], start, start + SPAN // 9, 50).counters
        for one, other in zip(whole, part, strict=True):
            assert (one.row, one.name, one.thinned, other.thinned) == (other.row, other.name, "", "")
            for moment in range(start, start + SPAN // 9, SPAN // 400):
                assert value_at(one, moment) == value_at(other, moment)


def value_at(counter: Counter, moment: int) -> int:
    return next((value for at, value in reversed([*zip(counter.at, counter.value, strict=True)]) if at <= moment), -1)


def test_counters_are_read_once(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    held = HeldEvents()
    before = held.within(run, [0], 0, SPAN, 50)
    monkeypatch.setattr("lostflops.show.serve.held_events.read_counters", ended)
    assert held.within(run, [0], 0, SPAN, 50) == before
    with pytest.raises(Stopped):
        held.within(run, [1], 0, SPAN, 50)


def test_ranks_beyond_what_a_page_opens_have_no_counters(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lostflops.show.serve.held_events.MOST_RANKS", 1)
    assert HELD.within(run, [0], 0, SPAN, 50).counters
    assert HELD.within(run, [0, 1], 0, SPAN, 50).counters == ()


def test_counters_make_room_for_others(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lostflops.show.serve.held_events.MOST_POINTS", 10)
    held = HeldEvents()
    for rank in (0, 1, 0):
        held.within(run, [rank], 0, SPAN, 50)
        assert list(held._counters) == [rank]


@pytest.mark.parametrize("ranks", [[], [7], [0, -1]])
def test_ranks_that_are_not_there(run: Run, ranks: list[int]) -> None:
    with pytest.raises(UsageError):
        HeldEvents().within(run, ranks, 0, SPAN, 50)


@pytest.mark.parametrize("most", [1, 2, 7, 21, 50])
def test_sql_finds_no_more_events_than_there_is_room_for(run: Run, most: int) -> None:
    found = SQL_ALONE.within(run, [0, 1], 0, SPAN * 9, most)
    assert 0 < len(found.start) <= most
    assert found.left_out + len(found.start) == 738


def test_a_window_that_was_ended_early_leaves_nothing_half_known(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    held = HeldEvents()
    for name in ("extent", "ArrivalSizes.of", "read_counters"):
        with monkeypatch.context() as patched:
            patched.setattr(f"lostflops.show.serve.held_events.{name}", ended)
            with pytest.raises(Stopped):
                held.within(run, [0], 0, SPAN, 100)
    assert held.within(run, [0], 0, SPAN, 100) == HeldEvents().within(run, [0], 0, SPAN, 100)


def ended(*_: object) -> None:
    raise Stopped("this was ended")
