"""A planted straggler costs time, and the waits are charged to it."""

from dataclasses import replace

import pytest

from lostflops.testing import Straggler, SyntheticCluster

HEALTHY = SyntheticCluster(ranks=4, steps=3)
STRAGGLERS = [
    Straggler(2, "slow_kernels", factor=1.5),
    Straggler(2, "more_work", factor=1.4),
    Straggler(2, "late_data", delay=5_000_000),
    Straggler(2, "host_stall", delay=5_000_000),
    Straggler(2, "allocation", delay=1_000_000),
]


@pytest.mark.parametrize("straggler", STRAGGLERS, ids=lambda s: s.cause)
def test_straggler_is_charged(straggler: Straggler) -> None:
    truth = replace(HEALTHY, stragglers=(straggler,)).generate().truth
    (planted,) = truth.stragglers
    assert (planted.rank, planted.cause) == (2, straggler.cause)
    assert planted.cost == truth.wall - HEALTHY.generate().truth.wall > 0
    for rank in truth.ranks:
        if rank.rank == 2:
            assert rank.lines["comm.wait"] < min(o.lines["comm.wait"] for o in truth.ranks if o is not rank)
        else:
            assert max(rank.late_ranks, key=lambda late: rank.late_ranks[late]) == 2
    assert planted.charged == sum(rank.late_ranks.get(2, 0) for rank in truth.ranks) > 0


CAUSE_LINES = {"late_data": "idle.data", "host_stall": "idle.python", "allocation": "idle.alloc"}


@pytest.mark.parametrize("straggler", STRAGGLERS, ids=lambda s: s.cause)
def test_cause_shows_on_the_stragglers_own_ledger(straggler: Straggler) -> None:
    truth = replace(HEALTHY, stragglers=(straggler,)).generate().truth
    line = CAUSE_LINES.get(straggler.cause, "compute")
    own, other = truth.ranks[2], truth.ranks[0]
    assert own.lines[line] > 1.2 * other.lines[line]
    more_kernels = own.device_window.kernels > other.device_window.kernels
    more_flops = own.steps[0].flops > other.steps[0].flops
    assert more_kernels is more_flops is (straggler.cause == "more_work")


def test_only_the_chosen_steps_are_slow() -> None:
    straggler = Straggler(1, "slow_kernels", factor=2.0, steps=(11,))
    waits = [s.late_ranks.get(1, 0) for s in replace(HEALTHY, stragglers=(straggler,)).generate().truth.ranks[0].steps]
    assert waits[1] > 100_000 > max(waits[0], waits[2])


def test_two_stragglers_have_their_own_costs() -> None:
    slow, slower = Straggler(0, "slow_kernels", factor=1.2), Straggler(3, "slow_kernels", factor=1.5)
    costs = {s.rank: s.cost for s in replace(HEALTHY, stragglers=(slow, slower)).generate().truth.stragglers}
    # Removing the milder one buys little while the worse one holds everybody up.
    assert costs[3] > 10 * abs(costs[0])


def test_a_stall_that_the_host_had_run_ahead_of_costs_nothing() -> None:
    stall = Straggler(1, "host_stall", delay=1_000, steps=(12,))
    (planted,) = replace(HEALTHY, stragglers=(stall,)).generate().truth.stragglers
    assert planted.cost == 0
