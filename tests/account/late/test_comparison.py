"""Ranks beside those that do the same work, by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.account.late.hand_made import compared, profile

from lostflops.account.late.comparison import OWN_LINES
from lostflops.account.ledger.lines import LINES

BASE = {"compute": 700, "comm.transfer": 100, "comm.wait": 200}
SLOW = {"compute": 900, "comm.transfer": 100, "comm.wait": 0}


def line(found, rank, name):
    return found.lines[found.place(rank), OWN_LINES.index(name)]


@pytest.mark.parametrize("size", [2, 3, 4, 64])
def test_one_slow_rank(size):
    slow = size // 2
    found = compared([profile(rank, SLOW if rank == slow else BASE) for rank in range(size)])
    assert found.wall.tolist() == [1000.0] * size
    assert found.excess.tolist() == [200.0 if rank == slow else 0.0 for rank in range(size)]
    assert line(found, slow, "compute") == 200
    assert found.by_step[slow].tolist() == [200.0] * 3


def test_two_slow_ranks_of_four():
    """The lower median is that of the two that are not slow."""
    found = compared([profile(rank, SLOW if rank in (1, 2) else BASE) for rank in range(4)])
    assert found.excess.tolist() == [0, 200, 200, 0]


def test_alone_nothing_exceeds():
    found = compared([profile(5, SLOW)])
    assert (found.ranks.tolist(), found.excess.tolist(), found.own.tolist()) == ([5], [0.0], [900.0])


def test_communication_and_what_nothing_explains_are_not_own_time():
    others = {"comm.transfer": 50, "comm.wait": 50, "comm.bubble": 50, "idle.bubble": 50, "unexplained": 50}
    found = compared([profile(0, {"compute": 500}), profile(1, {"compute": 250, **others})])
    assert found.own.tolist() == [500, 250]
    assert found.excess.tolist() == [250, 0]
    assert set(OWN_LINES) == set(LINES) - set(others)


def test_cohorts_are_apart():
    """Stages of a pipeline: those of the second have more to do, and that is nobody's fault."""
    profiles = [profile(rank, {"compute": 500 if rank < 2 else 900}) for rank in range(4)]
    cohorts = {0: [0, 1], 1: [0, 1], 2: [2, 3], 3: [2, 3]}
    assert compared(profiles, cohorts).excess.tolist() == [0] * 4
    assert compared(profiles, cohorts).cohort.tolist() == [0, 0, 1, 1]
    assert compared(profiles).excess.tolist() == [0, 0, 400, 400]


def test_a_rank_that_misses_the_long_step_is_not_the_yardstick():
    first, usual = {"compute": 3000}, {"compute": 1000}
    found = compared([profile(0, [first, usual, usual]), profile(1, [usual, usual], numbers=[1, 2])])
    assert found.excess.tolist() == [0, 0]
    assert found.steps.tolist() == [0, 1, 2]
    assert np.isnan(found.by_step[:, 0]).all()
    assert found.by_step[:, 1:].tolist() == [[0, 0], [0, 0]]


def test_the_last_step_of_a_rank_is_no_yardstick_where_others_go_on():
    """It ends with its last event, and lacks the pause that the others have behind it."""
    whole, cut = {"compute": 700, "idle.python": 300}, {"compute": 700}
    found = compared([profile(0, [whole] * 4), profile(1, [whole, whole, cut]), profile(2, [whole, whole, cut])])
    assert found.excess.tolist() == [0, 0, 0]
    assert np.isnan(found.by_step).sum(axis=1).tolist() == [2, 2, 2]
    same = compared([profile(0, [whole, whole, cut]), profile(1, [whole, whole, whole])])
    assert same.excess.tolist() == [0, 100]


def test_without_a_step_in_common_means_are_compared():
    found = compared([profile(0, BASE), profile(1, SLOW, numbers=[7, 8, 9])])
    assert found.excess.tolist() == [0, 200]


def test_a_rank_without_steps_is_left_out():
    found = compared([profile(0, SLOW), profile(1, []), profile(2, SLOW)])
    assert found.ranks.tolist() == [0, 2]
    assert found.excess.tolist() == [0, 0]


def test_missing_records_look_like_queued_work():
    """Of the rank that misses a collective, its time stands on idle.dependency: without that it is like the others."""
    hidden = {"compute": 700, "idle.dependency": 300}
    profiles = [profile(rank, hidden if rank == 1 else BASE) for rank in range(4)]
    assert compared(profiles).excess.tolist() == [0, 300, 0, 0]
    told = compared(profiles, dark=[1])
    assert told.excess.tolist() == [0] * 4
    assert line(told, 1, "idle.dependency") == 0
    assert np.abs(told.by_step).max() == 0


def test_missing_records_do_not_hide_slow_kernels():
    hidden = {"compute": 900, "idle.dependency": 100}
    found = compared([profile(rank, hidden if rank == 1 else BASE) for rank in range(4)], dark=[1])
    assert found.excess.tolist() == [0, 200, 0, 0]


def test_those_with_all_records_are_the_yardstick():
    """Two ranks of five miss records and have less time of their own."""
    short = {"compute": 400, "comm.wait": 600}
    profiles = [profile(rank, short if rank < 3 else BASE) for rank in range(5)]
    assert compared(profiles, dark=[0, 1, 2]).excess.tolist() == [0, 0, 0, 0, 0]
    assert compared(profiles).excess.tolist() == [0, 0, 0, 300, 300]


def test_more_kernels():
    found = compared([profile(rank, BASE, pieces=150 if rank == 2 else 100) for rank in range(4)])
    assert found.pieces.tolist() == [0, 0, 0.5, 0]


def test_the_window_of_a_trace():
    found = compared([profile(rank, [SLOW if rank else BASE], numbers=[-1]) for rank in range(2)])
    assert found.steps.tolist() == [-1]
    assert found.excess.tolist() == [0, 200]


@pytest.mark.parametrize("profiles", [[], [profile(0, [])], [profile(0, {}), profile(1, {})]])
def test_nothing_to_compare(profiles):
    found = compared(profiles)
    assert not np.isnan(found.excess).any()
    assert not np.isnan(found.pieces).any()
    assert found.excess.sum() == 0


TIMES = st.dictionaries(st.sampled_from(LINES), st.integers(0, 10**9), max_size=4)
RANKS = st.lists(st.lists(TIMES, min_size=2, max_size=2), min_size=1, max_size=6)


@given(RANKS, st.randoms(use_true_random=False))
def test_who_is_called_what_does_not_matter(rows, random):
    names = list(range(len(rows)))
    random.shuffle(names)
    before = compared([profile(rank, steps) for rank, steps in enumerate(rows)])
    after = compared([profile(name, steps) for name, steps in zip(names, rows, strict=True)])
    for attribute in ("own", "excess", "lines", "wall", "by_step"):
        assert np.array_equal(getattr(after, attribute)[names], getattr(before, attribute))


@given(RANKS, st.integers(2, 1000))
def test_excess_scales_with_time(rows, factor):
    before = compared([profile(rank, steps) for rank, steps in enumerate(rows)])
    longer = [[{line: ns * factor for line, ns in step.items()} for step in steps] for steps in rows]
    after = compared([profile(rank, steps) for rank, steps in enumerate(longer)])
    assert np.allclose(after.excess, factor * before.excess)
    assert np.allclose(after.lines, factor * before.lines)


@given(RANKS, st.sampled_from(OWN_LINES), st.integers(0, 10**9))
def test_what_all_of_a_cohort_have_more_is_no_excess(rows, line, more):
    before = compared([profile(rank, steps) for rank, steps in enumerate(rows)])
    longer = [[{**step, line: step.get(line, 0) + more} for step in steps] for steps in rows]
    after = compared([profile(rank, steps) for rank, steps in enumerate(longer)])
    assert np.allclose(after.excess, before.excess)
    assert np.allclose(after.by_step, before.by_step)
