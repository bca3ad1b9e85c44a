"""Each planted loss stands on its line, and the line is empty without it."""

from dataclasses import replace

import pytest

from lostflops.testing import HostCosts, Losses, SyntheticCluster

CLEAN = SyntheticCluster(ranks=2, steps=3)
PLANTED = {
    "idle.data": Losses(data=5_000_000),
    "idle.sync": Losses(sync=True),
    "idle.alloc": Losses(alloc=1_000_000),
    "idle.python": Losses(python=5_000_000),
    "copy": Losses(copy_bytes=10_000_000),
    "idle.host": Losses(launch_factor=50),
}


@pytest.mark.parametrize(("line", "losses"), PLANTED.items(), ids=PLANTED.keys())
def test_planted_loss_is_on_its_line(line: str, losses: Losses) -> None:
    clean, sick = CLEAN.generate().truth, replace(CLEAN, losses=losses).generate().truth
    assert clean.lines[line] == 0
    assert sick.lines[line] > 0
    # Any stall makes some idle.host, while the queue fills again; `.item()` copies.
    others = {"idle.data", "idle.sync", "idle.alloc"} - {line}
    assert all(sick.lines[other] == 0 for other in others)
    if line not in {"idle.python", "idle.host"}:
        assert sick.lines["idle.python"] == 0


def test_a_launch_bound_phase_is_python_only_where_threads_change() -> None:
    """When autograd's first kernel ends a gap, its thread had run no op yet, whatever the main thread did."""
    lines = replace(CLEAN, losses=Losses(launch_factor=50)).generate().truth.lines
    assert 0 < lines["idle.python"] < lines["idle.host"] // 20


def test_copy_is_exposed_in_full() -> None:
    truth = replace(CLEAN, losses=Losses(copy_bytes=10_000_000)).generate().truth
    assert truth.lines["copy"] == 2 * 3 * 10_000_000 // 25


def test_allocation_is_lost_in_full() -> None:
    truth = replace(CLEAN, losses=Losses(alloc=1_000_000)).generate().truth
    assert truth.lines["idle.alloc"] == 2 * 3 * 1_000_000


def test_data_is_lost_but_for_what_the_host_ran_ahead() -> None:
    """A slow host gains no lead, so that the stall is idle in full, apart from kernels still queued."""
    slow_host = HostCosts(dispatch=200_000)
    clean = replace(CLEAN, host=slow_host)
    truth = replace(clean, losses=Losses(data=5_000_000, steps=(11,))).generate().truth
    stalled = [step.lines["idle.data"] for rank in truth.ranks for step in rank.steps]
    # A gap belongs to the step before the event that ends it.
    assert stalled[1::3] == stalled[2::3] == [0, 0]
    assert all(4_800_000 <= ns <= 5_000_000 for ns in stalled[0::3])


def test_losses_strike_chosen_ranks_only() -> None:
    truth = replace(CLEAN, losses=Losses(python=5_000_000, ranks=(1,))).generate().truth
    first, second = (rank.lines for rank in truth.ranks)
    assert first["idle.python"] == 0 < second["idle.python"]
    assert first["comm.wait"] > second["comm.wait"]


def test_slow_launches_leave_the_device_to_the_host() -> None:
    truth = replace(CLEAN, host=HostCosts(dispatch=100_000)).generate().truth
    assert truth.lines["idle.host"] > truth.lines["compute"]


def test_stream_gap_is_dependency() -> None:
    assert CLEAN.generate().truth.lines["idle.dependency"] == 0
    assert replace(CLEAN, kernel_gap=900).generate().truth.lines["idle.dependency"] > 0


def test_flops_of_a_step() -> None:
    step = CLEAN.generate().truth.ranks[0].steps[0]
    assert step.flops == 4 * 2 * 3 * (2 * 1024 * 512 * 512)
