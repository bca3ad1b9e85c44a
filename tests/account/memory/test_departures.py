"""What was there before the window goes in its first step as its like goes in the second."""

import pytest
from tests.account.memory.recorded import Recorded

OUTPUT = 400


def steps(*, first_extra=0, sizes=(OUTPUT, OUTPUT)):
    """Each step makes an output, lets the last one go, and then makes the loss at its peak; an edge is at 50."""
    recorded = Recorded()
    for number in range(2):
        start = 100 * number
        recorded.step(number, start, start + 100)
        recorded.alloc(start + 10, 1_000 + number, OUTPUT)
        if not number and first_extra:
            recorded.alloc(start + 12, 5_000, first_extra)
            recorded.free(start + 13, 5_000)
        if number:
            recorded.free(start + 20, 1_000)
        recorded.alloc(start + 30, 3_000 + number, 100)
        recorded.free(start + 60, 3_000 + number)
    for place, size in enumerate(sizes[1:]):
        recorded.hold(-5, 9_000 + 1_000 * place, size, None, before=True, gone=50)
    return recorded


def totals_at_losses(recorded):
    found = recorded.read()
    return [int(found.total[found.time == time * 1_000][-1]) for time in (30, 130)]


def test_the_peak_of_the_first_step_is_that_of_the_second():
    assert totals_at_losses(steps()) == [500, 500]


@pytest.mark.parametrize("recorded", [steps(first_extra=8), steps(sizes=(OUTPUT, OUTPUT, OUTPUT))])
def test_where_steps_differ_it_is_there_until_it_was_seen_gone(recorded):
    held = sum(row["bytes"] for row in recorded.holdings)
    assert totals_at_losses(recorded) == [held + 500, 500]


def test_what_was_still_there_when_others_were_gone_went_after_that():
    recorded = steps()
    recorded.hold(-5, 20_000, 7, None, before=True, gone=40)
    assert totals_at_losses(recorded) == [907, 500]
