"""Two ranks side by side where no number tells: offsets, drift, holes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lostflops.account.align.sequences import Sequence, Shift, fits, in_order, line, nearest, pair

EPOCH = 1_700_000_000_000_000_000
Ends = list[int] | tuple[int, ...]
SAME_CLOCK = Shift(0.0, 0.0, 0)


def sequence(
    ends: Ends, *, length: int = 10_000, ahead: int = 0, size: int = 100, step: int = -1, barrier: bool = True
) -> Sequence:
    stop = np.array(ends, np.int64) + EPOCH + ahead
    same = np.ones(stop.size, np.int64)
    return Sequence(same, size * same, step * same, same == int(barrier), stop - length, stop)


def pairs(a: Sequence, b: Sequence, known: Shift | None = None, *, loosely: bool = True) -> list[tuple[int, int]]:
    """Ends of what was paired, in µs after the epoch by the clock of `a`; for `b` as if it were ahead by nothing."""
    found = pair(a, b, known, loosely=loosely)
    return [] if found is None else list(zip(found[0].tolist(), found[1].tolist(), strict=True))


class TestLine:
    TIMES = EPOCH + 10**7 * np.arange(50)

    def test_a_constant(self) -> None:
        shift = line(self.TIMES, np.full(50, 123_456))
        assert (shift.offset, shift.drift) == (123_456.0, 0.0)
        assert (shift.remove(self.TIMES) == self.TIMES - 123_456).all()

    @pytest.mark.parametrize("ppm", [-100, -3, 50, 100])
    def test_a_slope(self, ppm: int) -> None:
        ahead = -700_000 + (self.TIMES - EPOCH) * ppm // 10**6
        shift = line(self.TIMES, ahead)
        assert shift.drift * 1e6 == pytest.approx(ppm, abs=0.001)
        assert np.abs(shift.remove(self.TIMES) - (self.TIMES - ahead)).max() <= 2

    def test_outliers_do_not_move_it(self) -> None:
        ahead = np.full(50, 1_000)
        ahead[::4] += 10**8
        shift = line(self.TIMES, ahead)
        assert (shift.offset, shift.drift) == (1_000.0, 0.0)

    def test_no_slope_is_steeper_than_clocks_can_be(self) -> None:
        ahead = (self.TIMES - EPOCH) // 1_000
        assert abs(line(self.TIMES, ahead).drift) <= 200e-6

    def test_noise_is_no_slope(self) -> None:
        ahead = np.random.default_rng(0).integers(-5_000, 5_000, 50)
        assert line(self.TIMES, ahead).drift == 0.0

    def test_three_points_have_none(self) -> None:
        assert line(self.TIMES[:3], np.array([0, 1_000, 2_000])).drift == 0.0

    def test_nothing(self) -> None:
        none = np.empty(0, np.int64)
        assert line(none, none).remove(np.array([5])).tolist() == [5]


def test_fits() -> None:
    a, b, c = sequence([1]), sequence([1], size=200), sequence([1], size=-1)
    one = np.zeros(1, np.int64)
    assert not fits(a, b, one, one).any()
    assert fits(a, c, one, one).all()
    assert fits(c, b, one, one).all()
    early, late = sequence([1], step=3), sequence([1], step=4)
    assert not fits(early, late, one, one).any()
    assert fits(early, late, one, one, by_step=False).all()
    assert fits(early, a, one, one).all()


@pytest.mark.parametrize("size", [1, 2, 5])
def test_nearest_is_the_nearest(size: int) -> None:
    generator = np.random.default_rng(size)
    times, wanted = generator.integers(0, 100, size), generator.integers(-20, 120, 50)
    found = nearest(times, wanted)
    assert (np.abs(times[found] - wanted) == np.abs(times[:, np.newaxis] - wanted).min(axis=0)).all()


class TestInOrder:
    ENDS = (100_000, 380_000, 450_000, 810_000)

    def test_the_same_at_any_offset(self) -> None:
        assert in_order(sequence(self.ENDS), sequence(self.ENDS, ahead=-(10**9)))

    def test_not_of_other_calls(self) -> None:
        assert not in_order(sequence(self.ENDS), sequence(self.ENDS, size=200))
        assert not in_order(sequence(self.ENDS), sequence(self.ENDS[1:]))
        assert not in_order(sequence([]), sequence([]))

    def test_not_where_a_hole_shows(self) -> None:
        a, b = sequence([100_000, 450_000, 810_000]), sequence([100_000, 380_000, 810_000])
        assert not in_order(a, b)
        assert not in_order(a, b, loosely=True)

    def test_loosely_where_all_run_together(self) -> None:
        """Ends are 30 µs apart in turns, which is much at this pace; but each call runs beside its partner."""
        a = sequence([100_000, 180_000, 260_000, 340_000], length=50_000)
        b = sequence([130_000, 150_000, 290_000, 310_000], length=50_000)
        assert not in_order(a, b)
        assert in_order(a, b, loosely=True)


class TestPair:
    def test_a_steady_pace_on_one_clock(self) -> None:
        """One rank misses the first, the other the last: orders and ends agree with a clock that is one call ahead,
        but of ranks on one host it is known not to be."""
        every = [100_000 * i for i in range(1, 11)]
        assert pairs(sequence(every[1:]), sequence(every[:-1]), SAME_CLOCK) == [(i, i + 1) for i in range(8)]

    def test_calls_without_pause_on_one_clock(self) -> None:
        every = [100_000 * i for i in range(1, 11)]
        a = sequence(every[:1] + every[2:], length=100_000)
        b = sequence(every[:-2] + every[-1:], length=100_000)
        expected = [(0, 0), *((i, i + 1) for i in range(1, 7)), (8, 8)]
        assert pairs(a, b, SAME_CLOCK) == expected

    def test_calls_without_pause_on_two_clocks(self) -> None:
        """Two holes, nothing between the calls, and no pace."""
        every = np.cumsum([90, 100, 120, 95, 80, 130, 100, 70, 110, 100]) * 1_000
        lengths = np.diff(every, prepend=0)

        def part(lost: int, ahead: int) -> Sequence:
            kept = np.delete(np.arange(10), lost)
            stop = every[kept] + EPOCH + ahead
            same = np.ones(9, np.int64)
            return Sequence(same, same, -same, same > 0, stop - lengths[kept], stop)

        found = pairs(part(1, 0), part(8, 5_000_000))
        assert found == [(0, 0), *((i, i + 1) for i in range(1, 7)), (8, 8)]

    def test_nothing_fits(self) -> None:
        assert pair(sequence([1, 2]), sequence([1, 2], size=7)) is None
        assert pair(sequence([]), sequence([1])) is None
        assert pair(sequence([1]), sequence([])) is None

    def test_steps_that_one_rank_counts_otherwise(self) -> None:
        ends = [100_000, 380_000, 450_000, 810_000]
        assert pairs(sequence(ends, step=3), sequence(ends, step=4)) == [(i, i) for i in range(4)]

    def test_order_alone_tells_of_what_ends_apart(self) -> None:
        """Of broadcasts; of barriers only where some clock lets each run at the same time as its partner."""
        early, late = [10_000, 20_000, 30_000], [3_000_000, 9_000_000, 9_500_000]
        assert pairs(sequence(early, barrier=False), sequence(late, barrier=False)) == [(0, 0), (1, 1), (2, 2)]
        assert pairs(sequence(early), sequence(late)) != [(0, 0), (1, 1), (2, 2)]
        long = sequence([9_000_000, 18_000_000, 27_000_000], length=8_900_000)
        loose = sequence([3_000_000, 9_900_000, 26_500_000], length=1_000)
        assert pairs(long, loose) == [(0, 0), (1, 1), (2, 2)]

    @settings(deadline=None, derandomize=True, max_examples=200)
    @given(st.data())
    def test_any_losses_offset_and_drift(self, data: st.DataObject) -> None:
        """Of calls without a pace, up to a third lost on each side: nothing is paired wrongly or left out."""
        count = data.draw(st.integers(6, 40))
        pauses = data.draw(st.permutations(range(count)))
        ends = np.cumsum(30_000 + 50_000 * np.array(pauses))
        lost = st.sets(st.integers(0, count - 1), max_size=count // 3)
        kept = [np.array(sorted(set(range(count)) - data.draw(lost)), np.int64) for _ in range(2)]
        ppm = data.draw(st.integers(-50, 50))
        ahead = data.draw(st.integers(-(10**9), 10**9))
        sides = [ends[kept[0]], ends[kept[1]] + ends[kept[1]] * ppm // 10**6 + ahead]
        a, b = (sequence(side.tolist(), length=20_000) for side in sides)
        found = pairs(a, b)
        both = np.intersect1d(*kept)
        right = [(kept[0][i], kept[1][j]) for i, j in found]
        assert all(one == other for one, other in right)
        assert len(right) == both.size


def test_calls_that_begin_together_in_either_order() -> None:
    """Two threads take up a large and a small one at once; on one rank the small one is first in the last step. Ends of
    all lie far apart, as on a busy host."""
    rng = np.random.default_rng(1)
    begun = np.repeat(10**8 * np.arange(1, 9), 2) + np.tile([0, 2_000], 8) + EPOCH
    sizes = np.tile([300, 100], 8)

    def busy(order: list[int]) -> Sequence:
        stop = begun + 30 * 10**6 + rng.integers(0, 8 * 10**6, 16)
        own = np.ones(16, np.int64)
        return Sequence(own, sizes[order], -own, own == 1, begun, stop[order])

    swapped = [*range(14), 15, 14]
    expected = [(i, swapped.index(i)) for i in range(16)]
    assert pairs(busy(list(range(16))), busy(swapped), SAME_CLOCK) == expected
