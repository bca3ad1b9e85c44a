"""Edited memory closes, and its peak is that of a naive sweep."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.account.memory.made import Block, memory

from lostflops.account.memory.blocks import BEFORE, RankMemory
from lostflops.account.memory.owners import CODE, OWNERS, Owner
from lostflops.predict.whatif.memory_edits.editing import (
    New,
    add_blocks,
    change_lifetimes,
    resize_blocks,
    scale_blocks,
    select_owned_blocks,
    without,
)

SMALL = st.builds(
    lambda owner, size, start, life: Block(owner, size, start, None if start is None or life is None else start + life),
    st.sampled_from(OWNERS),
    st.integers(1, 100),
    st.none() | st.integers(0, 20),
    st.none() | st.integers(1, 20),
)


def peak(made: RankMemory) -> int:
    """By summing what is alive after every event."""
    blocks = made.blocks
    held = [
        sum(
            size
            for born, died, size in zip(blocks.born, blocks.died, blocks.bytes, strict=True)
            if born <= event < died
        )
        for event in range(BEFORE, made.time.size)
    ]
    return int(max(held)) + made.unknown


@given(st.lists(SMALL, min_size=1, max_size=8), st.integers(0, 9), st.floats(0.1, 3))
def test_totals_are_those_of_a_naive_sweep(blocks: list[Block], unknown: int, factor: float) -> None:
    made = memory(*blocks, unknown=unknown)
    first = np.arange(len(made.blocks)) == 0
    new = New(np.array([BEFORE]), np.array([made.time.size]), np.array([50]), Owner.COMMUNICATION)
    for changed in (
        scale_blocks(made, first, factor),
        without(made, first),
        add_blocks(made, new),
        resize_blocks(made, first, 7),
    ):
        changed.self_check()
        assert changed.peak_bytes == peak(changed)
    assert add_blocks(made, new).peak_bytes == made.peak_bytes + 50


def test_a_block_can_live_longer() -> None:
    made = memory(Block(Owner.GRADIENTS, 10, 5, 6), Block(Owner.ACTIVATIONS, 20, 8, 9))
    assert made.peak_bytes == 20
    longer = change_lifetimes(made, np.array([0]), died=np.array([4]))
    longer.self_check()
    assert longer.peak_bytes == 30
    assert longer.blocks.stop.tolist() == [100, 9]


def test_what_would_live_at_no_event_is_left_out() -> None:
    made = memory(Block(Owner.PARAMETERS, 10), Block(Owner.ACTIVATIONS, 20, 8, 9))
    new = New(np.array([1, 0]), np.array([1, 1]), np.array([50, 0]), Owner.TEMPORARIES)
    assert len(add_blocks(made, new).blocks) == 2


def test_owners_are_told_apart() -> None:
    made = memory(Block(Owner.PARAMETERS, 10), Block(Owner.ACTIVATIONS, 20, 8, 9))
    assert select_owned_blocks(made, Owner.ACTIVATIONS).tolist() == [False, True]
    assert made.blocks.owner[0] == CODE[Owner.PARAMETERS]
    with pytest.raises(KeyError):
        select_owned_blocks(made, "nobody")  # type: ignore[arg-type]
