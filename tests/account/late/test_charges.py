"""Whose fault a wait is, on groups small enough to think through."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.account.late.hand_made import compared, one_cohort, profile

from lostflops.account.late.charges import charges, charges_by_line
from lostflops.account.ledger.profile import WaitedFor

STEPS = 3
SLOW, BASE = {"compute": 900, "comm.transfer": 100}, {"compute": 700, "comm.transfer": 100, "comm.wait": 200}
TENSOR, DATA, PIPE = "1@{}-{}", "2@{}-{}/2", "3@0-2"


def waits(group, late, ns, *, is_transfer=False):
    return WaitedFor(group, late, is_transfer, STEPS * ns)


def charged(profiles, origins, cohorts=None):
    return np.rint(charges(profiles, compared(profiles, cohorts), origins)).astype(int).tolist()


def test_the_last_is_charged():
    profiles = [profile(0, BASE, {2: 600}), profile(1, BASE, {2: 540, 0: 60}), profile(2, SLOW), profile(3, BASE)]
    for origins in ([], [2]):
        assert charged(profiles, origins) == [60, 0, 1140, 0]


def test_who_waited_in_the_same_group_did_not_inherit():
    """Rank 0 waits for rank 2, and later rank 1 for rank 0: in one group that is rank 0's own."""
    profiles = [profile(0, BASE, {2: 600}), profile(1, BASE, {0: 90, 2: 510}), profile(2, SLOW)]
    assert charged(profiles, [2]) == [90, 0, 1110]


def tensor_and_data():
    """Ranks 0 and 1 share tensors, 2 and 3 likewise; 0 and 2 average gradients, 1 and 3 too. Rank 1 is slow: rank 0
    waits for it, and comes late to rank 2."""
    first, data = TENSOR.format(0, 1), (DATA.format(0, 2), DATA.format(1, 3))
    return [
        profile(0, BASE, [waits(first, 1, 200)]),
        profile(1, SLOW),
        profile(2, BASE, [waits(data[0], 0, 200)]),
        profile(3, BASE, [waits(data[1], 1, 200)]),
    ]


COHORTS = {0: [0, 2], 2: [0, 2], 1: [1, 3], 3: [1, 3]}


def test_a_messenger_passes_its_charge_on():
    profiles = tensor_and_data()
    assert charged(profiles, [], COHORTS) == [600, 1200, 0, 0]
    assert charged(profiles, [1], COHORTS) == pytest.approx([0, 1800, 0, 0], abs=5)


def test_what_a_messenger_did_not_inherit_it_keeps():
    """Rank 0 waited 50 for rank 1 and was 200 late: three quarters are its own doing."""
    profiles = tensor_and_data()
    profiles[0] = profile(0, BASE, [waits(TENSOR.format(0, 1), 1, 50)])
    assert charged(profiles, [1], COHORTS) == pytest.approx([450, 900, 0, 0], abs=10)


def test_a_chain_of_three_stages():
    """Two pipelines of three stages. Rank 1 of the first stage is slow; each later stage of its pipeline waits for the
    one before, and comes late to its twin of the other pipeline."""
    profiles = [profile(0, BASE, [waits("2@0-1", 1, 200)]), profile(1, SLOW)]
    for stage in (1, 2):
        left, right = 2 * stage, 2 * stage + 1
        profiles.append(profile(left, BASE, [waits(f"2@{left}-{right}", right, 200)]))
        profiles.append(profile(right, BASE, [waits("3@1-5/2", right - 2, 200, is_transfer=True)]))
    cohorts = {rank: [rank - rank % 2, rank - rank % 2 + 1] for rank in range(6)}
    direct, passed = charged(profiles, [], cohorts), charged(profiles, [1], cohorts)
    assert direct == [0, 1200, 0, 1200, 0, 600]
    assert passed == pytest.approx([0, 3000, 0, 0, 0, 0], abs=30)


def test_the_bubble_that_every_pipeline_has_is_not_charged_to_the_origin():
    """Every stage waits as long as its twin: nothing is inherited."""
    profiles = [
        profile(0, BASE),
        profile(1, SLOW),
        profile(2, BASE, [waits("3@0-2/2", 0, 150, is_transfer=True)]),
        profile(3, BASE, [waits("3@1-3/2", 1, 150, is_transfer=True)]),
    ]
    assert charged(profiles, [1], {0: [0, 1], 1: [0, 1], 2: [2, 3], 3: [2, 3]}) == [450, 450, 0, 0]


def test_two_origins_keep_their_own():
    profiles = tensor_and_data()
    profiles[2] = profile(2, SLOW, [waits(DATA.format(0, 2), 0, 200)])
    profiles[3] = profile(3, BASE, [waits(TENSOR.format(2, 3), 2, 100), waits(DATA.format(1, 3), 1, 100)])
    assert charged(profiles, [1, 2], COHORTS) == pytest.approx([0, 1500, 300, 0], abs=5)


def test_ranks_that_are_not_compared_are_left_out():
    profiles = [profile(0, BASE, {7: 600, 1: 30}), profile(1, BASE), profile(2, [], {1: 50})]
    assert charged(profiles, []) == [0, 30]


def test_nothing_waited():
    assert charged([], []) == []
    assert charged([profile(0, BASE), profile(1, BASE)], [1]) == [0, 0]


WAITS = st.lists(
    st.tuples(st.integers(0, 5), st.integers(0, 5), st.sampled_from("abc"), st.booleans(), st.integers(0, 10**6)),
    max_size=20,
)


@given(WAITS, st.sets(st.integers(0, 5)), st.lists(st.integers(0, 1000), min_size=6, max_size=6))
def test_no_wait_is_lost_or_made(rows, origins, own):
    waited = [[WaitedFor(g, late, p2p, ns) for r, late, g, p2p, ns in rows if r == rank] for rank in range(6)]
    profiles = [profile(rank, {"compute": own[rank]}, waited[rank]) for rank in range(6)]
    found = charges(profiles, compared(profiles, one_cohort(profiles)), sorted(origins))
    assert (found >= -1e-6).all()
    assert found.sum() == pytest.approx(sum(row[-1] for row in rows))
    by_line = charges_by_line(profiles, compared(profiles, one_cohort(profiles)), sorted(origins))
    for line, is_transfer in (("comm.wait", False), ("comm.bubble", True)):
        assert by_line[line].sum() == pytest.approx(sum(row[-1] for row in rows if row[3] is is_transfer))


def test_a_line_is_charged_to_the_rank_that_began_the_delay():
    """Rank 2 is slow; rank 0 waits for it in one group, so that rank 1 waits for rank 0 in another."""
    first, second = TENSOR.format(0, 2), DATA.format(0, 1)
    profiles = [
        profile(0, BASE, [waits(first, 2, 200)]),
        profile(1, BASE, [waits(second, 0, 200)]),
        profile(2, SLOW),
    ]
    found = charges_by_line(profiles, compared(profiles, one_cohort(profiles)), [2])
    assert found["comm.wait"].tolist() == pytest.approx([0, 0, 1200], abs=5)
    assert found["comm.bubble"].sum() == 0
