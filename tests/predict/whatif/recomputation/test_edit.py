"""A memory with modules run again, on figures that can be counted by hand."""

from __future__ import annotations

from tests.predict.whatif.recomputation.made import Layer, trained

from lostflops.account.memory.owners import CODE, Owner
from lostflops.predict.whatif.recomputation.edit import recompute_modules
from lostflops.predict.whatif.recomputation.kept import find_kept_blocks
from lostflops.predict.whatif.recomputation.options import options


def two(**more):
    """Parameters 100, batch 8, layers that keep 40 and 30 inside and give 10 each, a loss of 4."""
    return trained([Layer("a", [40], **more), Layer("b", [30], **more)])


def peaks(memory, calls):
    have = options(memory, calls)
    return {tuple(calls.modules[at] for at in chosen): have.peak(chosen) for chosen in ((), (0,), (1,), (0, 1))}


def test_what_a_module_keeps_goes_and_comes_back_one_module_at_a_time():
    memory, calls = two()
    assert memory.peak_bytes == 100 + 8 + 40 + 10 + 30 + 10 + 4
    # Without a's 40 the peak stays at the loss. Without b's 30 it is when b has made its result and still holds them.
    assert peaks(memory, calls) == {(): 202, ("a",): 162, ("b",): 198, ("a", "b"): 158}


def test_what_is_needed_on_the_way_is_needed_again():
    memory, calls = two(passing=25)
    edited = recompute_modules(memory, find_kept_blocks(memory, calls), (0, 1))
    edited.self_check()
    # b runs again beside a's result: 100 + 8 + 10, its 30 and the 25 on the way.
    assert edited.peak_bytes == 173


def test_a_result_that_the_module_keeps_too_stays_for_what_follows():
    memory, calls = two(needed_by="itself")
    (first, second) = find_kept_blocks(memory, calls)
    assert memory.blocks.bytes[first.dropped].tolist() == [40]
    assert memory.blocks.bytes[first.result].tolist() == [10]
    assert memory.blocks.bytes[second.result].tolist() == [10]
    assert peaks(memory, calls)["a",] == 162


def test_an_input_that_nobody_else_keeps_stays():
    memory, calls = trained([Layer("a", [40], needed_by="nobody"), Layer("b", [30], gradient=50)])
    found = peaks(memory, calls)
    assert found[()] == 100 + 8 + 40 + 30 + 50
    # While b's backward runs its 30 are there again, and the 10 that it was given still are.
    assert found["b",] == 100 + 8 + 40 + 30 + 50 + 10


def test_what_comes_back_belongs_to_activations_of_backward():
    memory, calls = two()
    edited = recompute_modules(memory, find_kept_blocks(memory, calls), (0,))
    held = edited.by_owner()[:, CODE[Owner.ACTIVATIONS]]
    assert held.max() == 10 + 30 + 10 + 4
    assert edited.total[-1] == memory.total[-1]
    assert (edited.time[1:] >= edited.time[:-1]).all()


def test_what_backward_needs_nothing_of_is_not_run_again():
    """The last 30 of b are made after the last thing that backward needs, and stay as they are."""
    memory, calls = two()
    calls.cut[1] = calls.start[1]
    (_, second) = find_kept_blocks(memory, calls)
    assert not second.dropped.size
    assert not second.made.size
