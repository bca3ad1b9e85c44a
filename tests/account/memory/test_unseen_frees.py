"""Buffers of gloo that are freed where the profiler does not look."""

from tests.account.memory.made import Block, memory

from lostflops.account.memory.owners import CODE, Owner
from lostflops.account.memory.unseen_frees import with_unseen_frees

BUFFER = {"phase": "backward", "op": "c10d::_reduce_scatter_base_"}


def test_a_buffer_lives_as_long_as_the_same_one_of_another_step() -> None:
    made = memory(
        Block(Owner.PARAMETERS, 100),
        Block(Owner.COMMUNICATION, 40, 10, None, step=1, **BUFFER),
        Block(Owner.ACTIVATIONS, 5, 20, 25, phase="forward", step=2),
        Block(Owner.COMMUNICATION, 40, 30, 35, step=2, **BUFFER),
    )
    found = with_unseen_frees(made)
    found.self_check()
    assert (made.peak_bytes, found.peak_bytes) == (180, 140)
    assert found.by_owner()[:, CODE[Owner.COMMUNICATION]].tolist() == [0, 40, 0, 0, 40, 0]
    assert "1 communication buffer (40 B)" in found.notes[-1]


def test_where_none_was_seen_freed_it_is_gone_with_its_step() -> None:
    made = memory(
        Block(Owner.COMMUNICATION, 40, 10, None, step=1, **BUFFER),
        Block(Owner.ACTIVATIONS, 5, 15, 16, phase="backward", step=1),
        Block(Owner.ACTIVATIONS, 5, 20, 25, phase="forward", step=2),
        Block(Owner.COMMUNICATION, 40, 30, None, step=2, **BUFFER),
    )
    found = with_unseen_frees(made)
    found.self_check()
    assert found.by_owner()[:, CODE[Owner.COMMUNICATION]].tolist() == [0, 40, 40, 40, 0, 0, 40]


def test_what_one_step_alone_allocates_may_be_meant_to_stay() -> None:
    made = memory(
        Block(Owner.COMMUNICATION, 40, 10, None, step=1, **BUFFER),
        Block(Owner.ACTIVATIONS, 5, 20, 25, phase="forward", step=2),
    )
    assert with_unseen_frees(made) is made


def test_devices_tell_their_totals_themselves() -> None:
    on_device = memory(
        Block(Owner.COMMUNICATION, 40, 10, None, step=1, **BUFFER),
        Block(Owner.COMMUNICATION, 40, 30, 35, step=2, **BUFFER),
        device="cuda:0",
    )
    assert with_unseen_frees(on_device) is on_device
