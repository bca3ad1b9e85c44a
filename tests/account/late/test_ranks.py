"""Who is named, why, and how sure: on profiles whose answer is plain."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.account.late.hand_made import Found, compared, profile

from lostflops.account.late.comparison import compare
from lostflops.account.late.judge import judge
from lostflops.account.late.ranks import Judgement, find
from lostflops.account.late.timed import TimedLateness
from lostflops.account.late.words import cost_of, latecomers, nobody

BASE = {"compute": 700, "comm.transfer": 100, "comm.wait": 200}


def named(profiles, evidence=None, timed=None, **how):
    found, _ = find(compared(profiles, **how), profiles, {}, evidence or Found(), *([timed] if timed else []))
    return found


def said(profiles, cohorts=None):
    comparison = compared(profiles, cohorts)
    found, verdict = find(comparison, profiles, {}, Found())
    return nobody(Judgement(tuple(profiles), comparison, tuple(found), {}, verdict))


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
    assert (found.late.late_steps, found.late.steps, found.is_late) == (3, 3, True)


def test_two_slow_ranks_largest_charge_first():
    profiles = job(8, 2, 5)
    profiles[0] = profile(0, BASE, {5: 600})
    assert [(one.rank, one.charged) for one in named(profiles)] == [(5, 2100), (2, 1500)]


def test_nobody_is_late():
    assert named(job(8)) == []
    assert said(job(8)) == "No rank is late. 3 steps suffice to find a rank that is 2.0% late."


def test_alone_nobody_is_late():
    assert named(job(1, 0)) == []
    assert said(job(1, 0)).startswith("Every rank does different work")
    apart = {0: [0], 1: [1]}
    assert find(compared(job(2, 1), apart), job(2, 1), {}, Found())[0] == []
    assert said(job(2, 1), apart).startswith("Every rank does different work")


@pytest.mark.parametrize("profiles", [[], [profile(0, [])], [profile(r, {}) for r in range(4)], [profile(0, {})]])
def test_nothing_recorded(profiles):
    assert named(profiles) == []
    slowest, _, _ = cost_of(compared(profiles))
    assert not slowest
    assert said(profiles)


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
    assert latecomers([found]).startswith("Rank 1 is late by 200 ns per step (20.0% of a step), in all 3 steps: ")
    assert f"({line})." in latecomers([found])


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


def test_nobody_waited_for_it():
    """More time of its own, that others waited for somebody else: it did not hold them up."""
    profiles = [profile(rank, BASE, {2: 600}) for rank in range(3)]
    profiles.append(profile(3, {**BASE, "compute": 800}))
    assert named(profiles) == []


def test_missing_records_accuse_nobody():
    profiles = job(4, 1, line="idle.dependency")
    assert [one.rank for one in named(profiles)] == [1]
    assert named(profiles, dark=[1]) == []


def test_the_window_of_a_trace_has_no_steps():
    lines = {**BASE, "idle.host": 300, "comm.wait": 0}
    profiles = [profile(0, [lines], numbers=[-1]), *(profile(r, [BASE], {0: 300}, numbers=[-1]) for r in (1, 2))]
    (found,) = named(profiles)
    assert (found.rank, found.late.steps, found.in_steps, found.is_late) == (0, 1, False, False), (
        "one step proves nothing"
    )
    assert said([profile(r, [BASE], numbers=[-1]) for r in range(2)]).startswith("Inconclusive")


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
    assert "Work is uneven" in said(profiles)
    assert "rank 0" not in said(profiles), "no rank is late, so none is named"


@given(st.permutations(range(8)), st.integers(1, 1000))
def test_names_and_units_do_not_matter(order, factor):
    """Who is slow is found whatever its number; times of another unit change no name."""
    plain = named(job(8, 3, 6))
    rows = {rank: {**BASE, "compute": 900, "comm.wait": 0} if rank in (3, 6) else BASE for rank in range(8)}
    profiles = []
    for rank, name in enumerate(order):
        steps = {line: ns * factor for line, ns in rows[rank].items()}
        waited = {} if rank in (3, 6) else {order[3]: 300 * factor, order[6]: 300 * factor}
        profiles.append(profile(name, steps, waited))
    found = named(profiles)
    assert sorted(one.rank for one in found) == sorted((order[3], order[6]))
    for one in found:
        assert (one.excess, one.charged, one.line) == (200 * factor, plain[0].charged * factor, "compute")
        assert (one.kind, one.cause) == (plain[0].kind, plain[0].cause)


def timed(rows, step=1000.0):
    return TimedLateness(judge(np.array(rows, float), range(len(rows)), range(len(rows[0])), step))


def window(*excess):
    """Profiled steps of two ranks, of which rank 1 computes so much longer in each."""
    slow = [{**BASE, "compute": 700 + more, "comm.wait": 0} for more in excess]
    return [profile(0, [BASE] * len(excess), {1: sum(max(more, 0) for more in excess)}), profile(1, slow)]


ALWAYS = timed([[0] * 33, [200] * 32 + [0]])
NEVER = timed([[0] * 33, [0] * 33])


def test_collectives_of_one_step_prove_nothing():
    """One step, two ranks, eight collectives to which rank 1 comes last: a coin that was thrown once."""
    (found,) = named(window(400))
    assert not found.is_late


def test_a_rank_that_is_faster_in_one_of_two_steps_is_not_late():
    assert named(window(400, -300)) == []


def test_many_timed_steps_decide_and_the_window_shows_the_line():
    assert named(window(400, -150, 20)) == []
    (found,) = named(window(400, -150, 20), timed=ALWAYS)
    assert (found.rank, found.line, found.is_late, found.is_timed) == (1, "compute", True, True)
    assert (found.late.late_steps, found.late.steps) == (32, 33)
    assert [one.is_late for one in named(window(*[200, 210, 190, 205] * 8))] == [True]
    assert named(window(*[200, 210, 190, 205] * 8), timed=NEVER) == [], "the job as a whole denies it"


def test_timed_steps_on_clocks_that_are_not_exact_do_not_overrule_the_window():
    seen = window(*[200, 210, 190, 205] * 8)
    unsure = judge(np.zeros((2, 33)), range(2), range(33), 1000.0, resolution=400.0)
    assert [one.is_late for one in named(seen, timed=TimedLateness(unsure))] == [True]


def test_a_suspicion_of_timed_steps_must_show_in_the_profiled_ones():
    varying = timed([[0] * 32, np.random.default_rng(0).normal(150, 200, 32)])
    assert [one.rank for one in varying.verdict.suspected] == [1]
    assert named(window(400, -380, 20), timed=varying) == []
    assert [one.rank for one in named(window(*[200, 210, 190, 205] * 4), timed=varying)] == [1]


def test_the_last_step_of_a_device_does_not_show_what_comes_after_it():
    steps = [{**BASE, "idle.data": 400, "comm.wait": 0}] * 3 + [BASE]
    profiles = [*(profile(rank, [BASE] * 4, {3: 1200}) for rank in range(3)), profile(3, steps)]
    cohorts = dict.fromkeys(range(4), range(4))
    assert named(profiles) == [], "a CPU waits within its steps"
    found, _ = find(compare(profiles, cohorts, frozenset(), on_device=True), profiles, {}, Found())
    assert [(one.rank, one.is_late, one.late.ns) for one in found] == [(3, True, pytest.approx(400))]


def test_a_longer_window_decides_against_few_timed_steps():
    few = timed([[0] * 18, [0, 0] + [200] * 16])
    assert named(window(*([400, -390] * 20)), timed=few) == []


def test_a_rank_that_does_more_work_need_not_come_last():
    profiles = window(*[200] * 8)
    profiles[1] = profile(1, [{**BASE, "compute": 900, "comm.wait": 0}] * 8, pieces=140)
    assert [one.cause for one in named(profiles, timed=NEVER)] == ["more_work"]


def test_a_rank_that_waits_for_data_now_and_then_is_late_if_it_also_waits_next_to_the_window():
    """Two workers of a loader starve it every second step; in the job as a whole it is hardly ever last."""
    steps = [{**BASE, "idle.data": 400 * (at % 2), "comm.wait": 0} for at in range(32)]
    profiles = [profile(0, [BASE] * 32, {1: 6400}), profile(1, steps)]
    assert named(profiles, timed=NEVER) == []
    (found,) = named(profiles, timed=TimedLateness(NEVER.verdict, waits={1: 0.2}))
    assert (found.cause, found.waits_for_data) == ("late_data", 0.2)


def test_a_rank_that_another_held_up_is_not_blamed():
    """Both come late to their collectives; only rank 1 has extra time of its own."""
    profiles = [*window(*[200] * 8), profile(2, [BASE] * 8), profile(3, [BASE] * 8)]
    late = timed([[0] * 33, [200] * 33, [200] * 33, [0] * 33])
    assert [one.rank for one in late.verdict.late] == [1, 2]
    assert [one.rank for one in named(profiles, timed=late)] == [1]
