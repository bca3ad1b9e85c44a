"""What claims get of the ledger."""

from hypothesis import given
from hypothesis import strategies as st

from lostflops.core.results import Evidence
from lostflops.explain.advise.claim import Claim, Gain
from lostflops.explain.advise.diagnose import share_out_time

LEDGER = {0: {"comm.wait": 100, "idle.sync": 50}, 1: {"comm.wait": 80, "idle.sync": 0}}
PLACES = [(0, "comm.wait"), (0, "idle.sync"), (1, "comm.wait"), (1, "idle.sync"), (2, "compute")]


def claim(taken: dict[tuple[int, str], int], confidence: float = 0.8) -> Claim:
    gain = Gain(0.1, 0.05, 0.2, "a guess")
    return Claim(
        cause="sync",
        what="It waits.",
        taken=taken,
        evidence=(Evidence("seen"),),
        confidence=confidence,
        certain_if="more",
        fix="less",
        gain=gain,
    )


def test_the_surest_is_served_first() -> None:
    unsure, sure = claim({(0, "comm.wait"): 100}, 0.5), claim({(0, "comm.wait"): 70}, 0.9)
    assert share_out_time([unsure, sure], LEDGER) == [{(0, "comm.wait"): 30}, {(0, "comm.wait"): 70}]


def test_of_equals_the_largest_is() -> None:
    small, large = claim({(0, "idle.sync"): 10}), claim({(0, "idle.sync"): 45})
    assert share_out_time([small, large], LEDGER) == [{(0, "idle.sync"): 5}, {(0, "idle.sync"): 45}]


@given(
    st.lists(
        st.tuples(
            st.dictionaries(st.sampled_from(PLACES), st.integers(0, 200), max_size=4), st.floats(0, 1, allow_nan=False)
        ),
        max_size=6,
    )
)
def test_nothing_is_given_twice(asked: list[tuple[dict[tuple[int, str], int], float]]) -> None:
    claims = [claim(taken, confidence) for taken, confidence in asked]
    got = share_out_time(claims, LEDGER)
    for place in PLACES:
        held = LEDGER.get(place[0], {}).get(place[1], 0)
        wanted = sum(one.taken.get(place, 0) for one in claims)
        given_out = sum(part.get(place, 0) for part in got)
        assert given_out == min(held, wanted)
    assert all(ns <= one.taken[place] for one, part in zip(claims, got, strict=True) for place, ns in part.items())
