"""Step edges and phases against hand-made histories; the clock is the test's own."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lostflops.collect.steps import BACKWARD, DATA, FORWARD, OPTIMIZER, ClockedStep, StepClock


class Loop:
    """A training loop that takes as long as it is told."""

    def __init__(self) -> None:
        self.now = 0
        self.steps: list[ClockedStep] = []
        self.clock = StepClock(self.steps.append)

    def idle(self, lasts: int) -> None:
        self.now += lasts

    def phase(self, phase: int, lasts: int) -> None:
        self.clock.enter(phase, self.now)
        self.now += lasts
        self.clock.leave(self.now)

    def update(self, optimizer: int, lasts: int, *, skipped: bool = False) -> None:
        self.clock.optimizer_begins(optimizer, self.now)
        self.now += lasts
        self.clock.optimizer_ended(optimizer, self.now, skipped=skipped)


def times(step: ClockedStep) -> tuple[int, int, list[int]]:
    return step.start, step.stop, step.phases


def repeated(rounds: int, body: Callable[[Loop], None]) -> list[ClockedStep]:
    loop = Loop()
    for _ in range(rounds):
        body(loop)
    return loop.steps


def test_a_step_runs_from_update_to_update() -> None:
    def body(loop: Loop) -> None:
        loop.phase(DATA, 10)
        loop.phase(FORWARD, 20)
        loop.idle(5)
        loop.phase(BACKWARD, 40)
        loop.update(1, 7)
        loop.idle(3)

    first, second = repeated(3, body)[:2]
    assert times(first) == (0, 82, [10, 25, 40, 7])
    assert times(second) == (82, 167, [10, 25, 40, 7])
    assert [first.number, second.number] == [0, 1]


def test_the_first_step_is_told_when_its_optimizer_steps_again_and_the_others_at_once() -> None:
    loop = Loop()
    loop.update(1, 5)
    assert loop.steps == []
    loop.update(1, 5)
    assert [step.number for step in loop.steps] == [0, 1]
    loop.update(1, 5)
    assert [step.number for step in loop.steps] == [0, 1, 2]


def test_accumulated_gradients_are_one_step_with_several_microbatches() -> None:
    def body(loop: Loop) -> None:
        for _ in range(4):
            loop.phase(FORWARD, 2)
            loop.phase(BACKWARD, 3)
        loop.update(1, 1)

    steps = repeated(3, body)
    assert [step.microbatches for step in steps] == [4, 4, 4]
    assert [step.phases for step in steps] == [[0, 8, 12, 1]] * 3


def test_several_optimizers_end_a_step_once_with_the_last_of_the_round() -> None:
    def body(loop: Loop) -> None:
        loop.phase(BACKWARD, 10)
        loop.update(1, 2)
        loop.phase(BACKWARD, 20)
        loop.update(2, 3)
        loop.idle(5)

    steps = repeated(4, body)
    assert [times(step) for step in steps[:3]] == [
        (0, 35, [0, 0, 30, 5]),
        (35, 75, [0, 0, 30, 5]),
        (75, 115, [0, 0, 30, 5]),
    ]


def test_an_optimizer_that_no_longer_steps_does_not_end_all_steps() -> None:
    loop = Loop()
    for _ in range(3):
        loop.update(1, 1)
        loop.update(2, 1)
    before = len(loop.steps)
    for _ in range(5):
        loop.update(1, 1)
    assert len(loop.steps) >= before + 4


def test_nested_phases_count_for_the_outermost() -> None:
    loop = Loop()
    loop.clock.enter(BACKWARD, 0)
    loop.now = 4
    loop.phase(FORWARD, 6)
    loop.phase(BACKWARD, 2)
    loop.clock.leave(20)
    assert loop.clock.step.phases == [0, 0, 20, 0]
    assert loop.steps == []


def test_passes_of_an_optimizers_closure_count_as_what_they_are() -> None:
    loop = Loop()
    for _ in range(2):
        loop.clock.optimizer_begins(1, loop.now)
        loop.idle(1)
        loop.phase(FORWARD, 10)
        loop.idle(2)
        loop.phase(BACKWARD, 20)
        loop.idle(4)
        loop.clock.optimizer_ended(1, loop.now)
    assert [times(step) for step in loop.steps] == [(0, 37, [0, 10, 20, 7]), (37, 74, [0, 10, 20, 7])]
    assert [step.microbatches for step in loop.steps] == [1, 1]


def test_a_skipped_update_is_told_with_explicit_edges_too() -> None:
    loop = Loop()
    loop.clock.is_explicit = True
    loop.update(1, 2, skipped=True)
    loop.clock.end(loop.now)
    loop.update(1, 2)
    loop.clock.end(loop.now)
    assert [step.skipped for step in loop.steps] == [True, False]


def test_a_step_whose_optimizers_step_in_the_backward_pass_ends_with_that_pass() -> None:
    loop = Loop()
    for _ in range(3):
        loop.phase(FORWARD, 5)
        loop.clock.enter(BACKWARD, loop.now)
        for optimizer in range(4):
            loop.update(optimizer, 2)
        loop.clock.leave(loop.now)
        loop.idle(1)
    assert [step.phases for step in loop.steps] == [[0, 5, 8, 0]] * 3


def test_an_optimizer_in_the_backward_pass_ends_no_step_where_another_does() -> None:
    loop = Loop()
    for _ in range(10):
        loop.clock.enter(BACKWARD, loop.now)
        loop.update(1, 2)
        loop.clock.leave(loop.now)
        loop.update(2, 3)
    assert [step.phases for step in loop.steps[-5:]] == [[0, 0, 2, 3]] * 5


def test_optimizers_that_are_made_anew_for_each_step_do_not_add_up() -> None:
    loop = Loop()
    for optimizer in range(1000):
        loop.update(optimizer, 1)
    assert len(loop.steps) >= 9


def test_a_forward_call_that_no_backward_follows_lasts_until_it_returns() -> None:
    loop = Loop()
    loop.phase(FORWARD, 10)
    loop.idle(100)
    loop.phase(DATA, 1)
    loop.phase(FORWARD, 5)
    loop.idle(3)
    loop.phase(BACKWARD, 1)
    assert loop.clock.step.phases == [1, 18, 1, 0]


def test_explicit_edges_overrule_optimizers() -> None:
    loop = Loop()
    loop.clock.is_explicit = True
    for _ in range(3):
        loop.update(1, 2)
        loop.update(1, 2)
        loop.idle(1)
        loop.clock.end(loop.now)
    assert [step.phases[OPTIMIZER] for step in loop.steps] == [4, 4, 4]


def test_a_phase_open_at_an_explicit_edge_is_split_there() -> None:
    loop = Loop()
    loop.clock.is_explicit = True
    loop.clock.enter(DATA, 0)
    loop.clock.end(10)
    loop.clock.leave(25)
    loop.clock.end(30)
    assert [step.phases[DATA] for step in loop.steps] == [10, 15]


def test_skipped_updates_are_marked_and_still_end_their_step() -> None:
    loop = Loop()
    for skipped in (False, True, False):
        loop.phase(BACKWARD, 1)
        loop.update(1, 1, skipped=skipped)
    assert [step.skipped for step in loop.steps] == [False, True, False]


@pytest.mark.parametrize("phase", [DATA, FORWARD, BACKWARD, OPTIMIZER])
def test_leaving_what_was_never_entered_changes_nothing(phase: int) -> None:
    loop = Loop()
    loop.clock.leave(5)
    loop.phase(phase, 3)
    assert sum(loop.clock.step.phases) == 3


@given(
    st.lists(
        st.tuples(st.sampled_from(["data", "forward", "backward", "update", "update2", "idle"]), st.integers(0, 50)),
        max_size=60,
    )
)
def test_steps_follow_each_other_and_their_phases_fit(history: list[tuple[str, int]]) -> None:
    loop = Loop()
    for what, lasts in history:
        if what == "idle":
            loop.idle(lasts)
        elif what.startswith("update"):
            loop.update(1 if what == "update" else 2, lasts)
        else:
            loop.phase(["data", "forward", "backward"].index(what), lasts)
    for step in loop.steps:
        assert 0 <= sum(step.phases) <= step.stop - step.start
        assert min(step.phases) >= 0
    for before, after in zip(loop.steps, loop.steps[1:], strict=False):
        assert (after.number, after.start) == (before.number + 1, before.stop)
