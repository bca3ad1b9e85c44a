import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.account.memory.made import Block, memory
from tests.predict.fit import jobs
from tests.predict.fit.jobs import job

from lostflops.account.memory.owners import Owner
from lostflops.predict.fit.peaks import LEAST, peaks
from lostflops.predict.fit.room import HEADROOM, room


def test_a_peak_lies_in_its_interval_where_a_line_falls_below_zero() -> None:
    """Activations of 100 bytes a sample less 500: at one sample none, and not what others hold less."""

    def made(batch: int):  # type: ignore[no-untyped-def]
        kept = Block(Owner.ACTIVATIONS, 100 * batch - 500, 10, 20, op="a", phase="forward", step=1)
        return memory(Block(Owner.PARAMETERS, 1000), kept)

    found = peaks((16, 32, 64), [made(batch) for batch in (16, 32, 64)])
    low, height = found.at(1).low, found.at(1)
    assert height.bytes == sum(height.owners.values()) == 1000
    assert low is not None
    assert height.high is not None
    assert low <= height.bytes <= height.high
    assert found.largest(900, is_sure=True) == found.largest(900, is_sure=False) == 0


def test_peaks_at_other_sizes_are_exact_though_the_moment_of_the_peak_changes() -> None:
    sizes = (20, 40, 160)
    found = peaks(sizes, [job(size) for size in sizes])
    assert found.measured == tuple(jobs.peak(size) for size in sizes)
    assert found.error == pytest.approx(0, abs=1e-9)
    for batch in (1, 30, 90, 91, 200, 5000):
        height = found.at(batch)
        assert height.bytes == jobs.peak(batch)
        assert (height.low, height.high) == (round(height.bytes * (1 - LEAST)), round(height.bytes * (1 + LEAST)))
        assert sum(height.owners.values()) == height.bytes
    assert found.at(10).moment.phase == "optimizer"
    assert found.at(500).moment.site == (1, "b", "aten::mm")
    assert found.at(500).owners[Owner.ACTIVATIONS] == 2 * jobs.SAVED * 500
    assert found.at(500).owners[Owner.PARAMETERS] == jobs.WEIGHT


def test_one_line_through_peaks_would_miss() -> None:
    """What the moments are for."""
    sizes = (20, 40, 160)
    slope, fixed = np.polyfit(sizes, [jobs.peak(size) for size in sizes], 1)
    assert abs((fixed + slope * 90) / jobs.peak(90) - 1) > 0.05


@given(st.integers(1, 10**6))
def test_the_largest_batch_is_the_last_that_fits(capacity: int) -> None:
    found = peaks((20, 40, 160), [job(size) for size in (20, 40, 160)])
    largest, sure = (found.largest(capacity, is_sure=is_sure) for is_sure in (False, True))
    assert largest is not None
    assert sure is not None
    assert sure <= largest
    assert sure == 0 or round(jobs.peak(sure) * (1 + LEAST)) <= capacity
    assert largest == 0 or jobs.peak(largest) <= capacity
    assert jobs.peak(largest + 1) > capacity


def test_what_is_no_line_is_told() -> None:
    sizes = (20, 40, 80)
    found = peaks(sizes, [job(size, extra=3 * size**2) for size in sizes])
    assert found.error is not None
    assert found.error > 0.05
    assert not found.is_linear


def test_a_small_bend_widens_the_interval_to_hold_what_was_measured() -> None:
    sizes, steps = (64, 128, 256), {64: 0, 128: 60, 256: 20}
    found = peaks(sizes, [job(size, extra=steps[size]) for size in sizes])
    assert found.is_linear
    for size, held in zip(sizes, found.measured, strict=True):
        height = found.at(size)
        assert height.low is not None
        assert height.high is not None
        assert height.low < held < height.high
    near, far = found.at(256), found.at(2560)
    assert (far.high - far.low) / far.bytes > 0.005  # type: ignore[operator]
    assert near.high - near.low < far.high - far.low  # type: ignore[operator]


def test_two_sizes_have_no_interval() -> None:
    found = peaks((20, 160), [job(20), job(160)])
    assert found.error is None
    assert found.at(90).bytes == jobs.peak(90)
    assert found.at(90).high is None


def test_allocations_that_differ_between_sizes_are_laid_by_phase() -> None:
    """An op that only the large batch has: the phase's own peak is what remains comparable."""
    site = {"phase": "forward", "step": 0}
    small = memory(Block(Owner.PARAMETERS, 100), Block(Owner.ACTIVATIONS, 10, 1, 9, op="aten::small", **site))
    large = memory(Block(Owner.PARAMETERS, 100), Block(Owner.ACTIVATIONS, 20, 1, 9, op="aten::large", **site))
    found = peaks((1, 2), [small, large])
    assert [moment.site for moment in found.moments] == [(0, "", "")]
    assert found.at(4).bytes == 140


def test_memory_that_does_not_grow_has_no_largest_batch() -> None:
    still = memory(Block(Owner.PARAMETERS, 100), Block(Owner.TEMPORARIES, 10, 1, 9, phase="optimizer", step=0))
    found = peaks((1, 2), [still, still])
    assert found.largest(111, is_sure=False) is None
    assert found.largest(109, is_sure=False) == 0


def test_room_of_an_accelerator_leaves_the_context_and_what_the_allocator_cannot_use() -> None:
    made = [job(size, device="cuda:0", reserved=0.25) for size in (20, 40)]
    found = room(10 << 30, made, [], is_accelerator=False)
    assert found.bytes == pytest.approx(((10 << 30) - HEADROOM) / 1.25, rel=1e-3)


def test_room_of_a_cpu_leaves_what_the_process_held_beside() -> None:
    made = [job(20), job(40)]
    found = room(1 << 20, made, [jobs.peak(20) + 5000, jobs.peak(40) + 4000], is_accelerator=False)
    assert found.bytes == (1 << 20) - 5000
    assert "5.00 kB" in found.basis


def test_a_process_that_grows_more_than_its_tensors_leaves_less_room() -> None:
    """Scratch of libraries is in no tensor: here as much again as three quarters of the tensors."""
    sizes = (100, 200, 400)
    process = [round(1.75 * jobs.peak(size)) + 5000 for size in sizes]
    found = room(1 << 20, [job(size) for size in sizes], process, is_accelerator=False)
    assert found.slack == pytest.approx(0.75, rel=1e-3)
    assert found.overhead == pytest.approx(5000, abs=2)
    assert found.bytes == pytest.approx(((1 << 20) - 5000) / 1.75, rel=1e-3)
