"""A memory closes, and its peak is where most was allocated."""

import numpy as np
import pytest
from tests.account.memory.made import step

from lostflops.account.memory.blocks import BEFORE, Blocks, RankMemory
from lostflops.account.memory.owners import ABOUT, CODE, OWNERS, Owner


def made() -> RankMemory:
    """100 bytes of parameters from before, 40 of activations while events 0 to 2, 20 of temporaries at event 1."""
    none = np.zeros(3, np.int64)
    born, died = np.array([BEFORE, 0, 1]), np.array([4, 3, 2])
    time = np.array([10, 20, 30, 40])
    edges = np.concatenate([[0], time, [50]])
    owner = np.array([CODE[one] for one in (Owner.PARAMETERS, Owner.ACTIVATIONS, Owner.TEMPORARIES)])
    blocks = Blocks(
        born=born,
        died=died,
        start=edges[born + 1],
        stop=edges[died + 1],
        bytes=np.array([100, 40, 20]),
        address=np.array([1, 2, 3]),
        owner=owner,
        module=none,
        op=none,
        line=none,
        phase=none,
        step=none,
    )
    total = np.array([147, 167, 147, 107])
    return RankMemory(
        rank=0,
        device="cpu",
        opened=0,
        closed=50,
        time=time,
        total=total,
        base=107,
        unknown=7,
        reserved=none[:0],
        blocks=blocks,
        texts=("",),
    )


def test_owners_sum_to_the_total_at_every_event():
    memory = made()
    memory.self_check()
    held = memory.by_owner()
    assert held.shape == (5, len(OWNERS))
    assert held[:, CODE[Owner.ACTIVATIONS]].tolist() == [0, 40, 40, 40, 0]
    assert held[:, CODE[Owner.UNATTRIBUTED]].tolist() == [7] * 5


def test_the_peak_is_after_the_event_that_makes_most():
    memory = made()
    assert (memory.peak, memory.peak_bytes) == (1, 167)
    assert memory.alive(1).tolist() == [0, 1, 2]
    assert memory.alive(BEFORE).tolist() == [0]


def test_a_total_that_owners_do_not_sum_to_is_refused():
    memory = made()
    memory.total[2] += 1
    with pytest.raises(AssertionError, match="1 of 4 events"):
        memory.self_check()


def test_every_owner_is_explained():
    assert set(ABOUT) == set(OWNERS)


def test_memory_made_by_hand_closes():
    held = step(layers=3, weight=300, saved=400, batch=64)
    peak = dict(zip(OWNERS, held.by_owner()[held.peak + 1].tolist(), strict=True))
    assert {owner: size for owner, size in peak.items() if size} == {
        Owner.PARAMETERS: 900,
        Owner.OPTIMIZER: 1800,
        Owner.ACTIVATIONS: 1200,
        Owner.TEMPORARIES: 400,
        Owner.BATCHES: 64,
    }
