"""Who is named, why, and how sure: on profiles whose answer is plain."""

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.account.blame.hand_made import Found, compared, profile

from lostflops.account.blame.charges import charges
from lostflops.account.blame.sayings import cost_of, latecomers, unevenness
from lostflops.account.blame.stragglers import LastArrivals, chance, find
from lostflops.account.ledger.profile import WaitedFor

BASE = {"compute": 700, "comm.transfer": 100, "comm.wait": 200}
NEVER = LastArrivals(0, 30, 0.25)


def named(profiles, last=None, evidence=None, **how):
    return find(compared(profiles, **how), profiles, last or {}, evidence or Found())


def job(size, *slow, line="compute", by=200, waited=True):
    """Ranks of which some have more on a line; the others wait as much less, evenly for the slow ones."""
    return [
        profile(rank, {**BASE, line: BASE.get(line, 0) + by, "comm.wait": 0})
        if rank in slow
        else profile(rank, BASE, {late: 600 // len(slow) for late in slow} if waited and slow else ())
        for rank in range(size)
    ]


@pytest.mark.parametrize("size", [2, 3, 8, 64])
def test_a_slow_rank_among_equals(size):
    (found,) = named(job(size, size - 1))
    assert (found.rank, found.kind, found.line, found.cause) == (size - 1, "persistent", "compute", "slow_kernels")
    assert (found.excess, found.line_excess, found.charged) == (200, 600, 600 * (size - 1))
    assert (found.slow_steps, found.steps, found.wall) == (3, 3, 1000)


def test_two_slow_ranks_largest_charge_first():
    profiles = job(8, 2, 5)
    profiles[0] = profile(0, BASE, {5: 600})
    assert [(one.rank, one.charged) for one in named(profiles)] == [(5, 2100), (2, 1500)]


def test_nobody_is_late():
    assert named(job(8)) == []
    assert unevenness(compared(job(8))).startswith("No rank is late: the slowest of 8 ranks takes 0.0% of a step")


def test_alone_nobody_is_late():
    assert named(job(1, 0)) == []
    assert unevenness(compared(job(1, 0))).startswith("Every rank does different work")
    apart = {0: [0], 1: [1]}
    assert find(compared(job(2, 1), apart), job(2, 1), {}, Found()) == []
    assert unevenness(compared(job(2, 1), apart)).startswith("Every rank does different work")


@pytest.mark.parametrize("profiles", [[], [profile(0, [])], [profile(r, {}) for r in range(4)], [profile(0, {})]])
def test_nothing_recorded(profiles):
    assert named(profiles) == []
    slowest, _, _ = cost_of(compared(profiles))
    assert not slowest
    assert unevenness(compared(profiles))


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        ("compute", "slow_kernels"),
        ("idle.data", "late_data"),
        ("idle.alloc", "allocation"),
        ("idle.host", "host_stall"),
        ("idle.python", "host_stall"),
        ("idle.sync", "host_stall"),
        ("idle.compile", "host_stall"),
        ("idle.dependency", "device_queue"),
        ("copy", "copies"),
    ],
)
def test_each_cause(line, cause):
    (found,) = named(job(4, 1, line=line))
    assert (found.line, found.cause, found.line_excess) == (line, cause, 600)
    assert f"({line}, 200 ns more per step than its peers)" in latecomers([found])


def test_the_line_that_exceeds_most():
    profiles = job(4, 1, line="idle.host", by=150)
    more = {**BASE, "idle.host": 150, "idle.data": 149, "comm.wait": 0}
    profiles[1] = profile(1, more)
    (found,) = named(profiles)
    assert (found.line, found.excess, found.line_excess) == ("idle.host", 299, 450)


def test_more_kernels_are_more_work():
    profiles = job(4, 1)
    profiles[1] = profile(1, {**BASE, "compute": 900, "comm.wait": 0}, pieces=129)
    assert named(profiles)[0].cause == "more_work"
    profiles[1] = profile(1, {**BASE, "compute": 900, "comm.wait": 0}, pieces=105)
    assert named(profiles)[0].cause == "slow_kernels"


def test_more_flops_in_as_many_kernels_are_more_work():
    assert named(job(4, 1), evidence=Found(flops={1: 0.28}))[0].cause == "more_work"
    assert named(job(4, 1), evidence=Found(flops={1: 0.02}))[0].cause == "slow_kernels"


def test_late_in_some_steps():
    slow = {**BASE, "idle.python": 1000}
    others = [profile(rank, [BASE] * 8, {3: 900}) for rank in range(3)]
    for hit, kind in ((1, "transient"), (3, "transient"), (4, "persistent"), (8, "persistent")):
        (found,) = named([*others, profile(3, [slow] * hit + [BASE] * (8 - hit))])
        assert (found.rank, found.kind, found.slow_steps, found.steps) == (3, kind, hit, 8)
        assert found.line_excess == 1000 * hit


def test_nobody_waited_for_it():
    """More time of its own, that others waited for somebody else: it did not hold them up."""
    profiles = [profile(rank, BASE, {2: 600}) for rank in range(3)]
    profiles.append(profile(3, {**BASE, "compute": 800}))
    assert named(profiles) == []


def test_what_may_be_chance_is_not_named():
    """A little slower than the others, which vary by as much, and not the last more often than any."""
    profiles = job(4, 1, by=40)
    for rank, by in ((2, (0, 60, -60)), (3, (-60, 0, 60))):
        profiles[rank] = profile(rank, [{**BASE, "compute": BASE["compute"] + more} for more in by])
    profiles[0] = profile(0, BASE, {1: 600, 2: 10_000})
    assert named(profiles, {1: NEVER}) == []
    assert [one.rank for one in named(profiles, {1: LastArrivals(25, 30, 0.25)})] == [1]
    assert [one.rank for one in named(profiles, {1: LastArrivals(1, 1, 0.25)})] == [1], "one collective proves nothing"


def test_who_does_not_count_passes_its_charge_on():
    """Rank 0 is a little slower than rank 2, which may be chance, and late to it because it waited for rank 1."""
    varied, even = ([{**BASE, "compute": 700 + more} for more in by] for by in ((0, 0, 120), (0, 60, -60)))
    profiles = [
        profile(0, varied, [WaitedFor("1@0-1", 1, False, 600)]),
        profile(1, {**BASE, "compute": 900, "comm.wait": 0}),
        profile(2, even, [WaitedFor("2@0-2/2", 0, False, 180)]),
        profile(3, BASE, [WaitedFor("2@1-3/2", 1, False, 2700)]),
    ]
    comparison = compared(profiles, {0: [0, 2], 2: [0, 2], 1: [1, 3], 3: [1, 3]})
    (found,) = find(comparison, profiles, {0: LastArrivals(1, 30, 0.5), 1: LastArrivals(29, 30, 0.5)}, Found())
    assert found.rank == 1
    assert found.charged == round(float(charges(profiles, comparison, [1])[1])) > 600 + 2700


def test_an_excess_beyond_doubt_needs_no_proof():
    assert [one.rank for one in named(job(4, 1, by=400), {1: NEVER})] == [1]


def test_small_excess_is_none():
    """3% of the step, and three times what the others differ by."""
    assert named(job(4, 1, by=24)) == []
    assert [one.rank for one in named(job(4, 1, by=25))] == [1]
    noisy = [profile(rank, {**BASE, "compute": 700 + 50 * rank}, {3: 100}) for rank in range(4)]
    assert named(noisy) == []


def test_missing_records_accuse_nobody():
    profiles = job(4, 1, line="idle.dependency")
    assert [one.rank for one in named(profiles)] == [1]
    assert named(profiles, dark=[1]) == []


def test_the_window_of_a_trace_has_no_steps():
    lines = {**BASE, "idle.host": 300, "comm.wait": 0}
    profiles = [profile(0, [lines], numbers=[-1]), *(profile(r, [BASE], {0: 300}, numbers=[-1]) for r in (1, 2))]
    (found,) = named(profiles)
    assert (found.rank, found.steps, found.in_steps) == (0, 1, False)
    assert "step" not in latecomers([found])
    assert "step" not in unevenness(compared([profile(r, [BASE], numbers=[-1]) for r in range(2)]))


def test_others_that_are_late_are_named_shortly():
    found = named(job(16, 1, 2, 3, 4, 5))
    assert latecomers(found).endswith("Also late: rank 2 (compute), rank 3 (compute), rank 4 (compute) and others.")
    assert latecomers(found[:2]).endswith("Also late: rank 2 (compute).")


def test_uneven_work():
    """In each step another rank has more to do."""
    rows = [[{**BASE, "compute": 900 if step == rank else 700} for step in range(4)] for rank in range(4)]
    profiles = [profile(rank, steps) for rank, steps in enumerate(rows)]
    assert named(profiles) == []
    assert cost_of(compared(profiles)) == (pytest.approx(200 / 1050), 0.25, 0)
    assert "No single rank is late, but work is uneven" in unevenness(compared(profiles))


@given(st.integers(1, 200), st.data(), st.integers(2, 64), st.integers(1, 4096))
def test_chance_is_the_exact_binomial_sum(of, data, size, ranks):
    times = data.draw(st.integers(0, of))
    p = Fraction(1, size)
    exact = sum(math.comb(of, k) * p**k * (1 - p) ** (of - k) for k in range(times, of + 1)) * ranks
    found = chance(LastArrivals(times, of, 1 / size), ranks)
    assert 0 < found <= 1
    assert found == pytest.approx(max(float(min(exact, Fraction(1))), 1e-300), rel=1e-5, abs=1e-300)


def test_chance_without_collectives_or_of_one_rank():
    assert chance(LastArrivals(0, 0, 1.0), 8) == 1
    assert chance(LastArrivals(5, 5, 1.0), 1) == 1


def test_chance_in_the_steps_of_a_month():
    """A fair coin, ten million times: the normal distribution tells, and few terms are summed."""
    of = 10_000_000
    for deviations, expected in ((0, 0.5), (2, 0.02275), (6, 9.866e-10)):
        times = of // 2 + round(deviations * math.sqrt(of) / 2)
        assert chance(LastArrivals(times, of, 0.5), 1) == pytest.approx(expected, rel=0.01)


@given(st.permutations(range(8)), st.integers(1, 1000))
def test_names_and_units_do_not_matter(order, factor):
    """Who is slow is found whatever its number; times of another unit change no name."""
    plain = named(job(8, 3, 6), {3: LastArrivals(9, 30, 0.125), 6: LastArrivals(9, 30, 0.125)})
    rows = {rank: {**BASE, "compute": 900, "comm.wait": 0} if rank in (3, 6) else BASE for rank in range(8)}
    profiles = []
    for rank, name in enumerate(order):
        steps = {line: ns * factor for line, ns in rows[rank].items()}
        waited = {} if rank in (3, 6) else {order[3]: 300 * factor, order[6]: 300 * factor}
        profiles.append(profile(name, steps, waited))
    found = named(profiles, {order[3]: LastArrivals(9, 30, 0.125), order[6]: LastArrivals(9, 30, 0.125)})
    assert sorted(one.rank for one in found) == sorted((order[3], order[6]))
    for one in found:
        assert (one.excess, one.charged, one.line) == (200 * factor, plain[0].charged * factor, "compute")
        assert (one.p_value, one.kind, one.cause) == (plain[0].p_value, plain[0].kind, plain[0].cause)
