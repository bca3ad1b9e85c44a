from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lostflops.core.errors import UnknownCost
from lostflops.predict.costs.collective_times import CollectiveTimes
from lostflops.predict.costs.curve import Constant, Curve, CurvePiece
from lostflops.predict.costs.times import OPS, CommGroup
from lostflops.predict.costs.topology import read_topology

ALPHA, BETA = 20_000.0, 0.5
"""Of one step, and of a byte on a link."""
FIRST, LAST = 1 << 10, 1 << 26
H100 = read_topology("dgx-h100")


@dataclass
class Fake:
    curves: dict
    backend: str | None = "gloo"
    date: str | None = "2026-01-31T12:00:00Z"


def line(alpha: float, beta: float, spread: float = 0.03) -> Curve:
    interval = (Constant(alpha, 0.9 * alpha, 1.1 * alpha), Constant(beta, 0.9 * beta, 1.1 * beta))
    shape = ((0.1 * alpha) ** 2, (0.1 * beta) ** 2, 0.0)
    return Curve((CurvePiece(FIRST, LAST, *interval, spread, 2 * spread, shape),))


def ring(rounds: int, ranks: int) -> Curve:
    return line(rounds * (ranks - 1) * ALPHA, rounds * (ranks - 1) / ranks * BETA)


def measured(*groups: CommGroup) -> Fake:
    """Every group with the exact times of rings."""
    curves = {}
    for group in groups:
        where = (group.level, group.ranks, group.hosts)
        curves |= {(op, *where): ring(1, group.ranks) for op in ("all_gather", "reduce_scatter", "all_to_all")}
        curves["all_reduce", *where] = ring(2, group.ranks)
        curves["broadcast", *where] = line(ALPHA, BETA)
    return Fake(curves)


def times(*groups: CommGroup, **others) -> CollectiveTimes:
    return CollectiveTimes.of(calibration=measured(*groups), **others)


def truth(rounds: int, size: int, ranks: int) -> float:
    return rounds * (ranks - 1) * (ALPHA + BETA * size / ranks)


SIZES = st.integers(1, 1 << 32)


@given(SIZES)
def test_what_was_measured_is_read_as_it_is(size: int) -> None:
    time = times(CommGroup(4)).time("all_reduce", size, CommGroup(4))
    assert time.ns == pytest.approx(truth(2, size, 4))
    assert (time.algorithm, time.source) == ("ring", "calibration of 2026-01-31")
    assert bool(time.reach) == (not FIRST <= size <= LAST)


@given(SIZES, st.integers(2, 4096))
def test_a_ring_is_carried_to_other_sizes_of_group(size: int, ranks: int) -> None:
    time = times(CommGroup(4)).time("all_reduce", size, CommGroup(ranks))
    assert time.ns == pytest.approx(truth(2, size, ranks), rel=1e-3, abs=ranks * ranks)
    assert ("from 4 ranks on 1 host" in time.reach) == (ranks != 4)


@given(
    st.sampled_from(["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast"]), SIZES, st.integers(1, 9)
)
def test_more_bytes_never_take_less_and_the_interval_holds_the_value(op, size: int, power: int) -> None:
    known = times(CommGroup(4))
    one, more = (known.time(op, each, CommGroup(1 << power)) for each in (size, 2 * size))
    assert one.ns <= more.ns
    assert one.low <= one.ns <= one.high


def width(time) -> float:
    return (time.high - time.low) / time.ns


def test_intervals_widen_with_distance_in_size_and_in_ranks() -> None:
    known = times(CommGroup(4))
    sizes = [width(known.time("all_reduce", LAST << power, CommGroup(4))) for power in range(6)]
    assert sizes == sorted(sizes)
    assert sizes[0] < sizes[1] < sizes[5]
    small = [width(known.time("all_reduce", FIRST >> power, CommGroup(4))) for power in range(6)]
    assert small == sorted(small)
    ranks = [width(known.time("all_reduce", 1 << 20, CommGroup(4 << power))) for power in range(6)]
    assert ranks == sorted(set(ranks))


@pytest.mark.parametrize("ranks", [2, 64])
def test_latency_that_steps_do_not_multiply_is_in_the_interval(ranks: int) -> None:
    known = times(CommGroup(8))
    launch = known.time("all_reduce", FIRST, CommGroup(8)).ns
    small, large = (known.time("all_reduce", size, CommGroup(ranks)) for size in (FIRST, LAST))
    assert small.low < launch < small.high
    assert width(large) < 1.5, "bytes are not launched"


def test_the_nearest_group_is_carried_and_seen_errors_widen() -> None:
    fake = measured(CommGroup(2), CommGroup(8))
    exact = CollectiveTimes.of(calibration=fake).time("all_reduce", 1 << 20, CommGroup(16))
    assert "from 8 ranks" in exact.reach
    fake.curves["all_reduce", "host", 8, 1] = ring(8, 8)
    slow = CollectiveTimes.of(calibration=fake).time("all_reduce", 1 << 20, CommGroup(16))
    assert slow.ns == pytest.approx(4 * exact.ns)
    assert width(slow) > 2 * width(exact), "a ring that is four times too slow between measured groups"


def test_bytes_too_are_less_sure_with_each_doubling_of_ranks() -> None:
    known = times(CommGroup(4))
    for doublings in (1, 2, 5):
        time = known.time("all_reduce", LAST, CommGroup(4 << doublings))
        assert time.high / time.ns >= 1.15**doublings
        assert time.ns / time.low >= 1.15**doublings


def test_as_many_ranks_in_a_host_come_before_as_many_ranks() -> None:
    known = times(CommGroup(8, 4), CommGroup(32, 4))
    assert "from 32 ranks on 4 hosts" in known.time("all_reduce", 1 << 20, CommGroup(16, 2)).reach
    assert "from 8 ranks on 4 hosts" in known.time("all_reduce", 1 << 20, CommGroup(32, 16)).reach


def test_groups_that_are_close_and_far_apart_in_time_are_no_reason_to_fail() -> None:
    fake = measured(CommGroup(512), CommGroup(513))
    fake.curves["all_reduce", "host", 513, 1] = ring(513, 20)
    time = CollectiveTimes.of(calibration=fake).time("all_reduce", 1 << 20, CommGroup(1024))
    assert 20 < time.high / time.ns < 1000


def test_a_group_with_other_numbers_of_ranks_in_a_host_may_have_other_numbers_of_adapters() -> None:
    known = times(CommGroup(16, 2))
    alike, thin = (known.time("all_reduce", LAST, group) for group in (CommGroup(32, 4), CommGroup(32, 16)))
    assert thin.high / thin.ns > 4 > alike.high / alike.ns
    assert thin.ns / thin.low > 4 > alike.ns / alike.low


def test_what_is_put_together_says_so_and_holds_that_the_backend_does_it_otherwise() -> None:
    known = times(CommGroup(4), CommGroup(2, 2))
    time = known.time("all_reduce", 1 << 26, CommGroup(8, 2))
    assert "8 ranks on 2 hosts composed of" in time.reach
    around_one_ring = 2 * 7 / 8 * BETA * (1 << 26)
    assert time.low < around_one_ring < time.high
    assert width(known.time("all_reduce", 1 << 26, CommGroup(8, 2), "hierarchical")) < width(time)


@given(SIZES)
def test_hierarchical_is_the_sum_of_its_parts(size: int) -> None:
    known = times(CommGroup(4), CommGroup(2, 2))
    time = known.time("all_reduce", size, CommGroup(8, 2))
    parts = (
        known.time("reduce_scatter", size, CommGroup(4)).ns,
        known.time("all_reduce", -(-size // 4), CommGroup(2, 2)).ns,
        known.time("all_gather", size, CommGroup(4)).ns,
    )
    assert time.ns == pytest.approx(sum(parts))
    assert (time.algorithm, time.source) == ("hierarchical", "calibration of 2026-01-31")


def test_hierarchical_on_one_host_is_that_host() -> None:
    known = times(CommGroup(4))
    assert known.time("all_reduce", 1 << 20, CommGroup(4), "hierarchical") == known.time(
        "all_reduce", 1 << 20, CommGroup(4)
    )


def test_the_world_as_measured_comes_before_its_parts() -> None:
    known = times(CommGroup(4), CommGroup(2, 2), CommGroup(8, 2))
    assert known.time("all_reduce", 1 << 20, CommGroup(8, 2)).algorithm == "ring"
    assert known.time("all_reduce", 1 << 20, CommGroup(16, 4)).algorithm == "ring"
    assert known.time("all_reduce", 1 << 20, CommGroup(8, 2), "hierarchical").algorithm == "hierarchical"


def test_a_tree_takes_fewer_steps_than_the_ring_it_is_derived_from() -> None:
    known = times(CommGroup(4))
    tree = known.time("all_reduce", 1 << 10, CommGroup(64), "tree")
    assert tree.ns == pytest.approx(12 * ALPHA + 2 * BETA * (1 << 10), rel=1e-3)
    assert "tree from a measured ring" in tree.reach
    assert known.crossover("all_reduce", CommGroup(64))[0] == (1 << 10, "tree")
    assert known.crossover("all_reduce", CommGroup(64))[-1][1] == "ring"
    assert [time.algorithm for time in known.choices("all_reduce", 1 << 10, CommGroup(64))] == ["tree", "ring"]


def test_nccl_goes_over_to_trees_where_rings_get_long() -> None:
    fake = measured(CommGroup(2, 2))
    fake.backend = "nccl"
    known = CollectiveTimes.of(calibration=fake)
    assert known.time("all_reduce", 1 << 10, CommGroup(2, 2)).algorithm == "ring/tree", "the log does not tell"
    either, tree = (known.time("all_reduce", 1 << 10, CommGroup(2, 2), name) for name in (None, "tree"))
    assert tree.high == pytest.approx(1.5 * either.high)
    assert "measured with ring or tree" in tree.reach
    assert [time.algorithm for time in known.choices("all_reduce", 1 << 10, CommGroup(2, 2))] == ["ring", "tree"]
    small, large = (known.time("all_reduce", size, CommGroup(512, 512)) for size in (1 << 10, 1 << 34))
    assert (small.algorithm, large.algorithm) == ("tree", "ring")
    assert small.ns < known.time("all_reduce", 1 << 10, CommGroup(512, 512), "ring").ns / 50
    assert known.time("all_gather", 1 << 10, CommGroup(512, 512)).algorithm == "ring"


def test_a_calibration_comes_before_what_was_learned_and_that_before_nccl() -> None:
    learned = measured(CommGroup(4), CommGroup(2, 2))
    known = CollectiveTimes.of(calibration=measured(CommGroup(4)), learned=learned, topology=H100)
    assert known.time("all_reduce", 1 << 20, CommGroup(8)).source == "calibration of 2026-01-31"
    assert known.time("all_reduce", 1 << 20, CommGroup(4, 4)).source == "learned from the run's own collectives"
    assert known.time("all_reduce", 1 << 20, CommGroup(8, 2)).source == "learned from the run's own collectives"
    assert "NCCL" in known.time("send_recv", 1 << 20, CommGroup(2)).source


def test_nccl_alone() -> None:
    known = CollectiveTimes.of(topology=H100)
    assert known.time("all_reduce", 1 << 30, CommGroup(16, 2), "hierarchical").algorithm == "hierarchical"
    assert known.time("all_reduce", 1 << 30, CommGroup(16, 2), "ring").algorithm == "ring"
    assert {time.algorithm for time in known.choices("all_reduce", 1 << 20, CommGroup(16, 2))} == {
        "ring", "tree", "nvls_tree", "hierarchical",
    }  # fmt: skip


def test_sends_are_read_from_pairs_then_from_the_ring() -> None:
    pair = {("send_recv", "pair.across", 2, 2): line(ALPHA, BETA), ("send_recv", "ring", 4, 1): line(3 * ALPHA, BETA)}
    known = CollectiveTimes.of(calibration=Fake(pair))
    assert known.time("send_recv", 1 << 20, CommGroup(2, 2)).ns == pytest.approx(ALPHA + BETA * (1 << 20))
    assert known.time("send_recv", 1 << 20, CommGroup(2)).ns == pytest.approx(3 * ALPHA + BETA * (1 << 20))


def test_in_a_broadcast_of_gloo_the_children_of_a_rank_share_its_link() -> None:
    time = times(CommGroup(2)).time("broadcast", 1 << 20, CommGroup(8))
    assert time.ns == pytest.approx(3 * ALPHA + (3 + 2 + 1) * BETA * (1 << 20))
    assert time.algorithm == "tree"


@pytest.mark.parametrize("op", OPS)
def test_what_nothing_tells_is_not_made_up(op) -> None:
    with pytest.raises(UnknownCost, match=r"nothing was measured.*calibrate on two hosts.*--topology"):
        CollectiveTimes.of().time(op, 1, CommGroup(8, 2))
    with pytest.raises(UnknownCost, match="host of 4"):
        times(CommGroup(4)).time(op, 1, CommGroup(8, 2))
    assert times().time(op, 1 << 20, CommGroup(1)).ns == 0
