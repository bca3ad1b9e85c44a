"""Rank against rank: who has the highest peak, and which owner makes the difference."""

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.account.memory.made import step
from tests.account.memory.test_peak import made_memory

from lostflops.account.memory.blocks import RankMemory
from lostflops.account.memory.owners import OWNERS, Owner
from lostflops.account.memory.peak import peak_of
from lostflops.account.memory.rank_peaks import PeakSpread, ranks


def test_the_owner_that_makes_the_difference():
    peaks = [peak_of(step(rank=rank, saved=saved, batch=batch)) for rank, saved, batch in ((0, 400, 64), (1, 500, 96))]
    spread = PeakSpread.of(peaks)
    assert (spread.highest.rank, spread.lowest.rank, spread.bytes) == (1, 0, 3 * 100 + 100 + 32)
    assert spread.owner == (Owner.ACTIVATIONS, 300)
    assert spread.in_words() == "Rank 1 holds 432 B more than rank 0: activations 300 B more."
    assert [row[0] for row in ranks(peaks).rows] == [1, 0]


def test_ranks_that_are_alike_are_not_told_apart():
    peaks = [peak_of(step(rank=rank)) for rank in range(4)]
    spread = PeakSpread.of(peaks)
    assert (spread.bytes, spread.owner, spread.in_words()) == (0, None, "")
    assert [row[0] for row in ranks(peaks).rows] == [0, 1, 2, 3]


@settings(max_examples=20)
@given(st.tuples(made_memory(rank=0), made_memory(rank=1), made_memory(rank=2)))
def test_every_row_sums_to_its_peak(made: tuple[RankMemory, ...]):
    for row in ranks([peak_of(one) for one in made]).to_json():
        assert sum(row["owners"].values()) == row["bytes"] == made[row["rank"]].peak_bytes
        assert len(row["owners"]) == len(OWNERS)
