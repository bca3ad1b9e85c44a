"""Columns of a timeline lose no peak, and owners sum to the total in each."""

from hypothesis import given
from hypothesis import strategies as st
from tests.account.memory.made import Block, memory, step
from tests.account.memory.test_peak import made_memory

from lostflops.account.memory.blocks import RankMemory
from lostflops.account.memory.owners import Owner
from lostflops.account.memory.timeline import timeline


def fullest(made: RankMemory, start: float, stop: float, *, is_last: bool) -> int:
    """The most that was allocated from start on and before stop, by walking through the events."""
    before, held = made.base, []
    at_start = [total for time, total in zip(made.time, made.total, strict=True) if time == start]
    for time, total in zip(made.time.tolist(), made.total.tolist(), strict=True):
        if time < start:
            before = total
        elif time < stop or is_last:
            held.append(total)
    return max(held if at_start and start > made.opened else [before, *held])


@given(made_memory(), st.sampled_from([1, 5, 20, 100]))
def test_a_column_is_its_fullest_moment(made: RankMemory, columns: int):
    drawn = timeline(made, ((1, 0, 100),), columns=columns)
    width = 100 // columns
    assert list(drawn.total) == [
        fullest(made, at * width, (at + 1) * width, is_last=at == columns - 1) for at in range(columns)
    ]
    assert max(drawn.total) == made.peak_bytes
    assert all(at * width <= time for at, time in enumerate(drawn.at))


def test_owners_over_time():
    made = memory(
        Block(Owner.PARAMETERS, 100), Block(Owner.ACTIVATIONS, 40, 25, 74), Block(Owner.TEMPORARIES, 9, 50, 51)
    )
    drawn = timeline(made, ((3, 0, 60), (4, 60, 100), (5, 300, 400)), columns=4)
    assert drawn.total == (100, 140, 149, 100)
    assert dict(drawn.rows)["activations"] == (0, 40, 40, 0)
    assert dict(drawn.rows)["temporaries"] == (0, 0, 9, 0)
    assert drawn.rows[0] == ("parameters", (100,) * 4)
    assert drawn.marks == ((3, 0), (4, 60))
    assert drawn.top == 50


def test_json_of_a_timeline_sums():
    found = timeline(step(layers=5)).to_json()
    assert len(found["bytes"]) == len(found["at_ns"]) == 50
    assert [sum(held) for held in zip(*found["owners"].values(), strict=True)] == found["bytes"]


def test_a_window_shorter_than_its_columns():
    drawn = timeline(memory(Block(Owner.BATCHES, 5, 1, 2), closed=3), ((1, 0, 3),))
    assert drawn.total == (0, 5, 0)


def test_nothing_is_drawn_of_what_is_outside_of_steps_and_events():
    drawn = timeline(memory(Block(Owner.BATCHES, 5, 40, 59)), ((1, 41, 50),), columns=2)
    assert (drawn.start, drawn.stop, drawn.total) == (40, 60, (5, 5))
    assert timeline(memory(Block(Owner.BATCHES, 5))).total == (5,) * 50
