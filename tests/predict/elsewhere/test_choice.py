import random
from itertools import product
from statistics import NormalDist

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lostflops.predict.elsewhere.choice import NINE_OF_TEN, chances_of_least, frontier

PLACES = st.integers(0, 6)


@pytest.mark.parametrize(("values", "halves"), [([10.0, 11.0], [1.0, 2.0]), ([5.0, 5.0], [0.5, 3.0])])
def test_two_devices_are_compared_as_the_normal_distribution_says(values: list[float], halves: list[float]) -> None:
    spread = ((halves[0] / NINE_OF_TEN) ** 2 + (halves[1] / NINE_OF_TEN) ** 2) ** 0.5
    exact = NormalDist().cdf((values[1] - values[0]) / spread)
    assert chances_of_least(values, halves)[0] == pytest.approx(exact, abs=0.005)


def test_several_devices_are_compared_as_brute_force_says() -> None:
    values, halves = [10.0, 10.5, 11.0, 30.0], [1.0, 2.0, 3.0, 0.1]
    chance = random.Random(1)
    wins = [0, 0, 0, 0]
    for _ in range(50_000):
        drawn = [chance.gauss(value, half / NINE_OF_TEN) for value, half in zip(values, halves, strict=True)]
        wins[drawn.index(min(drawn))] += 1
    found = chances_of_least(values, halves).tolist()
    assert found == pytest.approx([count / 50_000 for count in wins], abs=0.01)
    assert sum(found) == pytest.approx(1)
    assert found[3] == 0


def test_devices_that_only_wait_for_the_host_are_equally_likely() -> None:
    """Whatever their kernels take, no step gets below the pace of the host: a wide interval is no chance to win."""
    found = chances_of_least([10.0, 10.0, 10.0, 30.0], [1.0, 5.0, 0.0, 0.1], [10.0] * 4).tolist()
    assert found[2] > found[0] == pytest.approx(found[1], abs=0.01)
    assert sum(found) == pytest.approx(1)
    assert found[3] == 0


def test_the_same_question_has_the_same_answer() -> None:
    assert chances_of_least([1, 1.1], [0.2, 0.2]).tolist() == chances_of_least([1, 1.1], [0.2, 0.2]).tolist()


@given(st.lists(st.tuples(PLACES, PLACES), max_size=12))
def test_the_frontier_is_what_no_other_point_beats(points: list[tuple[int, int]]) -> None:
    def beats(one: tuple[int, int], other: tuple[int, int]) -> bool:
        return one != other and one[0] <= other[0] and one[1] <= other[1]

    beaten = {at for at, other in product(range(len(points)), points) if beats(other, points[at])}
    assert frontier(points) == [at for at in range(len(points)) if at not in beaten]
