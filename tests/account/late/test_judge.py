"""The judge of late ranks on series whose truth is known: who is named, how often by chance, and how often in vain."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lostflops.account.late.judge import integrated_autocorrelation, judge
from lostflops.testing.rank_noise import NOISES

STEP = 100e6


def verdict(times, **how):
    times = np.asarray(times, float)
    return judge(times, range(len(times)), range(times.shape[1]), STEP, **how)


def quiet(ranks, steps, seed=0, noise=0.01):
    return STEP * (1 + noise * np.random.default_rng(seed).normal(size=(ranks, steps)))


def late_by(share, ranks=4, steps=40, rank=2, since=0, **how):
    times = quiet(ranks, steps, **how)
    times[rank, since:] += share * STEP
    return times


def test_a_late_rank_by_how_much_and_in_how_many_steps() -> None:
    (late,) = verdict(late_by(0.2)).late
    assert (late.rank, late.late_steps, late.steps, late.since) == (2, 40, 40, None)
    assert late.share == pytest.approx(0.2, abs=3 * late.error / STEP)
    assert late.say("it is tired").startswith("Rank 2 is late by 20.")
    assert late.say("it is tired").endswith(" of a step), in all 40 steps: it is tired.")


def test_since_some_step() -> None:
    (late,) = verdict(late_by(0.1, steps=200, since=120)).late
    assert late.since == pytest.approx(120, abs=1)
    assert late.steps == 200 - late.since
    assert not verdict(late_by(0.1, steps=200)[:, ::-1]).late[0].since


def test_what_is_over_is_not_late() -> None:
    assert not verdict(late_by(0.1, steps=200, since=100)[:, ::-1]).late


def test_what_happens_now_and_then_is_not_lateness() -> None:
    times = quiet(4, 200)
    times[2, ::4] += 0.4 * STEP
    assert not verdict(times).late
    times[2, 1::4] += 0.4 * STEP
    assert verdict(times).late


def test_two_of_four_and_one_of_two() -> None:
    times = late_by(0.1)
    times[3] += 0.05 * STEP
    assert [one.rank for one in verdict(times).late] == [2, 3]
    assert [one.rank for one in verdict(late_by(0.1, ranks=2, rank=1)).late] == [1]


def test_ranks_are_compared_with_ranks_that_do_the_same_work() -> None:
    times = quiet(4, 40)
    times[2:] += STEP
    assert not verdict(times, cohort=(0, 0, 1, 1)).late
    assert not verdict(times, cohort=(0, 1, 2, 3)).ranks
    times[3] += 0.1 * STEP
    assert [one.rank for one in verdict(times, cohort=(0, 0, 1, 1)).late] == [3]


def test_less_than_a_hundredth_of_a_step_or_than_can_be_measured_is_not_late() -> None:
    assert not verdict(late_by(0.009, noise=0.0)).late
    assert verdict(late_by(0.011, noise=0.0)).late
    assert not verdict(late_by(0.2), resolution=0.3 * STEP).late


def test_peers_that_differ_for_good_name_nobody() -> None:
    """Without the comparison with how much peers differ, the slowest of them would be late."""
    times = quiet(16, 400) + 0.01 * STEP * np.linspace(-1.5, 1.5, 16)[:, np.newaxis]
    assert not verdict(times).late


def test_one_step_shows_nothing_and_three_may() -> None:
    assert not verdict(late_by(0.5, steps=1)).late
    assert not verdict(late_by(0.5, steps=2)).late
    assert verdict(late_by(0.5, steps=3)).late


def test_a_rank_that_is_late_in_every_step_is_late_however_much_that_varies() -> None:
    times = quiet(8, 8, noise=0.001)
    times[4] += STEP * np.array([0.15, 0.27, 0.27, 0.27, 0.39, 0.15, 0.27, 0.39])
    found = verdict(times)
    assert [one.rank for one in found.late] == [4]
    assert found.late[0].error > 0.03 * STEP, "by how much it is late remains unsure"
    assert found.power.smallest < 0.02, "and its lateness says nothing about the noise of the others"
    times[4, 3] = STEP
    assert not verdict(times).late, "seven of eight steps may be chance"
    assert not verdict(times[:, 5:]).late, "and so may all of three"


def test_suspicions_are_corrected_for_the_number_of_ranks() -> None:
    """One of 20 healthy jobs of any size may have one."""
    rng = np.random.default_rng(3)
    jobs = [verdict(STEP * (1 + 0.3 * rng.normal(size=(16, 40)))) for _ in range(100)]
    assert sum(bool(one.suspected) for one in jobs) <= 8


def test_a_suspicion_names_the_steps_that_would_settle_it() -> None:
    found = verdict(late_by(0.1, steps=12, noise=0.06))
    (one,) = found.suspected
    assert not found.late
    assert one.more_steps is not None
    assert verdict(late_by(0.1, steps=12 + one.more_steps, noise=0.06)).late


def test_unknown_steps_are_left_out() -> None:
    times = late_by(0.1)
    times[0, :10] = np.nan
    times[1, 1:] = np.nan
    (late,) = verdict(times).late
    assert (late.rank, late.steps) == (2, 30)
    assert {one.rank for one in verdict(times).ranks} == {0, 2, 3}
    assert verdict(np.full((3, 4), np.nan)).power is None


@given(st.permutations(range(6)), st.floats(0.001, 1000))
def test_names_and_units_do_not_matter(order: list[int], unit: float) -> None:
    times = late_by(0.1, ranks=6)
    found = judge(times[order] * unit, order, range(40), STEP * unit)
    assert [one.rank for one in found.late] == [2]
    assert found.late[0].share == pytest.approx(verdict(times).late[0].share)


def test_steps_that_follow_each_other_count_for_less() -> None:
    rng = np.random.default_rng(1)
    series = np.zeros((8, 4000))
    for at in range(1, 4000):
        series[:, at] = 0.8 * series[:, at - 1] + rng.normal(size=8)
    assert integrated_autocorrelation(series) == pytest.approx(9, rel=0.2)
    assert integrated_autocorrelation(rng.normal(size=(8, 4000))) == pytest.approx(1, abs=0.1)


def test_of_100_jobs_without_a_late_rank_at_most_1_names_one() -> None:
    rng = np.random.default_rng(7)
    sizes = [(ranks, steps) for ranks in (4, 8, 32) for steps in (20, 60, 200)]
    named = [
        verdict(STEP * (1 + noise(rng, *size))).late for noise in NOISES.values() for size in sizes for _ in range(2)
    ]
    assert len(named) > 100
    assert sum(map(bool, named)) <= 1


@pytest.mark.parametrize("noise", ["even", "heavy tails", "autocorrelated"])
def test_a_rank_that_is_2_percent_late_is_found_once_the_steps_suffice(noise: str) -> None:
    rng = np.random.default_rng(3)
    for ranks in (4, 16):
        steps = verdict(STEP * (1 + NOISES[noise](rng, ranks, 60))).power.steps_for(0.02)
        times = STEP * (1 + NOISES[noise](rng, ranks, round(1.2 * steps)))
        times[1] += 0.02 * STEP
        found = verdict(times)
        assert found.power.steps_for(0.02) is not None
        if found.power.steps_for(0.02) <= times.shape[1]:
            assert [one.rank for one in found.late] == [1]
            assert found.power.say().endswith("suffice to find a rank that is 2.0% late.")


def test_few_steps_that_all_show_a_large_excess() -> None:
    """Three steps may be disturbed by chance; four that all show far more than peers ever differ name the rank."""
    times = quiet(4, 4, noise=0.001)
    times[2] += STEP * np.array([0.7, 0.3, 0.35, 0.4])
    assert [one.rank for one in verdict(times).late] == [2]
    assert [(one.rank, one.more_steps) for one in verdict(times[:, :3]).suspected] == [(2, 1)]
    assert [one.rank for one in verdict(times[1:3]).suspected] == [1], "one peer does not show how peers differ"
    times[2, 0] -= STEP * 0.7
    assert not verdict(times).late


@pytest.mark.parametrize(("ranks", "steps"), [(2, 4), (3, 4), (4, 4), (2, 8)])
@pytest.mark.parametrize(("correlation", "noise"), [(0.0, 0.15), (0.0, 0.3), (0.9, 0.2)])
def test_few_noisy_steps_name_no_rank(ranks: int, steps: int, correlation: float, noise: float) -> None:
    """Of a healthy job, whose steps may be disturbed for as long as they were recorded."""
    chance = np.random.default_rng(7)
    named = 0
    for _ in range(200):
        times = chance.normal(size=(ranks, steps))
        for at in range(1, steps):
            times[:, at] = correlation * times[:, at - 1] + (1 - correlation**2) ** 0.5 * times[:, at]
        named += bool(verdict(STEP * (1 + noise * times)).late)
    assert named <= 4
