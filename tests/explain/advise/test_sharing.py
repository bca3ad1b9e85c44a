"""What claims get of the ledger."""

from hypothesis import given
from hypothesis import strategies as st

from lostflops.core.estimate import Strength
from lostflops.core.results import Evidence
from lostflops.explain.advise.claim import Claim
from lostflops.explain.advise.diagnose import share_out_time

LEDGER = {0: {"comm.wait": 100, "idle.sync": 50}, 1: {"comm.wait": 80, "idle.sync": 0}}
PLACES = [(0, "comm.wait"), (0, "idle.sync"), (1, "comm.wait"), (1, "idle.sync"), (2, "compute")]


def claim(taken: dict[tuple[int, str], int], strength: Strength = Strength.STRONG) -> Claim:
    return Claim(
        cause="sync",
        what="It waits.",
        taken=taken,
        evidence=(Evidence("seen"),),
        strength=strength,
        certain_if="more",
        fix="less",
    )


def test_the_surest_is_served_first() -> None:
    unsure, sure = claim({(0, "comm.wait"): 100}, Strength.FAIR), claim({(0, "comm.wait"): 70})
    assert share_out_time([unsure, sure], LEDGER) == [{(0, "comm.wait"): 30}, {(0, "comm.wait"): 70}]


def test_of_equals_the_largest_is() -> None:
    small, large = claim({(0, "idle.sync"): 10}), claim({(0, "idle.sync"): 45})
    assert share_out_time([small, large], LEDGER) == [{(0, "idle.sync"): 5}, {(0, "idle.sync"): 45}]


@given(
    st.lists(
        st.tuples(st.dictionaries(st.sampled_from(PLACES), st.integers(0, 200), max_size=4), st.sampled_from(Strength)),
        max_size=6,
    )
)
def test_nothing_is_given_twice(asked: list[tuple[dict[tuple[int, str], int], Strength]]) -> None:
    claims = [claim(taken, strength) for taken, strength in asked]
    got = share_out_time(claims, LEDGER)
    for place in PLACES:
        held = LEDGER.get(place[0], {}).get(place[1], 0)
        wanted = sum(one.taken.get(place, 0) for one in claims)
        given_out = sum(part.get(place, 0) for part in got)
        assert given_out == min(held, wanted)
    assert all(ns <= one.taken[place] for one, part in zip(claims, got, strict=True) for place, ns in part.items())
