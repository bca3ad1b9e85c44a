"""What changes do to memory made by hand, of which the truth can be reckoned."""

from dataclasses import replace

import numpy as np
import pytest
from tests.account.memory.made import Block, memory, step

from lostflops.account.memory.owners import CODE, Owner
from lostflops.core.errors import NotApplicable
from lostflops.predict.whatif.change import Facts, HeldParameter
from lostflops.predict.whatif.changes import CHANGES
from lostflops.predict.whatif.memory_edits.editing import resize_blocks, select_owned_blocks
from lostflops.predict.whatif.memory_edits.sharded_parameters import fully_sharded
from lostflops.predict.whatif.peak_memory import at_peak

WEIGHT, SAVED = 300, 400
BY_NAME = {change.name: change for change in CHANGES}
HELD = tuple(HeldParameter(f"layers.{n}.linear.weight", WEIGHT, WEIGHT, 75, 4, True, None) for n in range(3))
FACTS = Facts(times=None, held=HELD, replicas=4)


def remember(name: str, value: str, made=None, facts: Facts = FACTS):  # type: ignore[no-untyped-def]
    remembers = BY_NAME[name].remember
    assert remembers is not None
    found = remembers(step() if made is None else made, value, facts)
    found.memory.self_check()
    return found


def owners(made) -> dict[str, int]:  # type: ignore[no-untyped-def]
    return {name: size for name, size in at_peak(made).items() if size}


def test_states_of_the_fullest_rank_are_left() -> None:
    """Three parameters on four ranks: the fullest updates one."""
    found = remember("zero", "1")
    assert owners(step())["optimizer_state"] == 6 * WEIGHT
    assert owners(found.memory)["optimizer_state"] == 2 * WEIGHT
    assert step().peak_bytes - found.memory.peak_bytes == 4 * WEIGHT


def test_a_sharded_run_holds_shards_and_what_is_gathered() -> None:
    """Rows of 75 are cut into 19 and padded to 76; at the peak, when the last layer's backward begins, that layer is
    gathered, its buffer about to be freed or the next one's filled."""
    sharded = remember("zero", "3").memory
    part = 19 * 4
    found = owners(sharded)
    assert found["parameters"] == 3 * part
    assert found["optimizer_state"] == 6 * part
    assert found["activations"] == 3 * SAVED
    assert found["communication"] == 2 * 4 * part


def test_over_gloo_a_unit_more_may_be_there() -> None:
    found = remember("zero", "3", facts=replace(FACTS, backend="gloo"))
    assert found.doubt * (step().peak_bytes - found.memory.peak_bytes) == pytest.approx(WEIGHT)
    assert remember("zero", "3", facts=replace(FACTS, backend="nccl")).doubt == 0.1


def test_more_ranks_of_a_sharded_run_hold_less_each() -> None:
    own = tuple(one._replace(bytes=38 * 4) for one in HELD)
    facts = replace(FACTS, held=own, replicas=2)
    made = step(weight=38 * 4)
    found = remember("world_size", "4", made, facts)
    assert owners(found.memory)["parameters"] == 3 * 19 * 4
    assert owners(found.memory)["activations"] == 3 * SAVED


@pytest.mark.parametrize("op", ["aten::_foreach_sqrt", "aten::sqrt"])
def test_what_an_update_allocates_is_cut_once(op: str) -> None:
    """Rows of 75 on two ranks are 38, on four 19."""
    own = tuple(one._replace(bytes=38 * 4) for one in HELD)
    passing = Block(Owner.TEMPORARIES, 38 * 4, 1, 2, op=op, phase="optimizer", step=1)
    found = remember("world_size", "4", memory(passing), replace(FACTS, held=own, replicas=2))
    assert found.memory.peak_bytes == 19 * 4


def test_states_that_are_dealt_out_are_dealt_out_again() -> None:
    """A rank of two has the states of two layers of three; of four it has one's."""
    made = step()
    gone = np.flatnonzero(select_owned_blocks(made, Owner.OPTIMIZER))[2:]
    found = remember("world_size", "4", resize_blocks(made, gone, 0), replace(FACTS, replicas=2, layout=None))
    assert owners(found.memory)["optimizer_state"] == 2 * WEIGHT
    with pytest.raises(NotApplicable, match="already"):
        remember("zero", "1", resize_blocks(made, gone, 0))


def test_frozen_modules_have_no_states() -> None:
    frozen = Block(Owner.PARAMETERS, 50, module="embedding")
    made = memory(frozen, Block(Owner.PARAMETERS, 40, module="head"), Block(Owner.OPTIMIZER, 80, module="head"))
    held = (
        HeldParameter("embedding.weight", 50, 50, 5, 4, False, None),
        HeldParameter("head.weight", 40, 40, 5, 4, True, None),
    )
    found = remember("world_size", "8", made, replace(FACTS, held=held))
    assert found.memory.peak_bytes == 170


def test_replicas_hold_what_replicas_did() -> None:
    found = remember("world_size", "16")
    assert (found.memory.peak_bytes, found.doubt) == (step().peak_bytes, 0)


def test_states_in_8_bits_have_scales() -> None:
    held = (HeldParameter("a", 40_000, 40_000, 100, 4, True, None), HeldParameter("b", 400, 400, 100, 4, True, None))
    made = memory(
        Block(Owner.OPTIMIZER, 40_000), Block(Owner.OPTIMIZER, 400), Block(Owner.ACTIVATIONS, 5, 1, 2, phase="forward")
    )
    found = remember("optimizer", "8bit", made, replace(FACTS, held=held))
    assert owners(found.memory)["optimizer_state"] == 10_000 + 40 * 4 + 400


@pytest.mark.parametrize("size", [10_000, 80_000])
def test_states_of_another_dtype_than_parameters_are_not_taken_for_it(size: int) -> None:
    """In 8 bits already, or in 32 beside parameters in 16."""
    held = (HeldParameter("a", 40_000, 40_000, 100, 4, True, None),)
    with pytest.raises(NotApplicable, match="dtype of optimizer states"):
        remember("optimizer", "8bit", memory(Block(Owner.OPTIMIZER, size)), replace(FACTS, held=held))


def test_states_that_an_earlier_change_dealt_out_are_put_in_8_bits() -> None:
    held = (HeldParameter("a", 40_000, 40_000, 100, 4, True, None),)
    facts = replace(FACTS, held=held, memory=memory(Block(Owner.OPTIMIZER, 40_000)))
    found = remember("optimizer", "8bit", memory(Block(Owner.OPTIMIZER, 20_000)), facts)
    assert found.memory.peak_bytes == 5_000 + 20 * 4


def test_one_pass_allocates_nothing_on_the_way() -> None:
    made = memory(Block(Owner.PARAMETERS, 10), Block(Owner.TEMPORARIES, 90, 1, 2, phase="optimizer"))
    assert made.peak_bytes == 100
    assert remember("optimizer", "fused", made).memory.peak_bytes == 10


def test_sums_of_gradients_stay_while_microbatches_pass() -> None:
    found = remember("accumulate", "2").memory
    assert owners(found)["gradients"] == 3 * WEIGHT
    assert found.peak_bytes == step().peak_bytes + 3 * WEIGHT


@pytest.mark.parametrize("stage", ["2", "3"])
def test_shards_of_all_steps_are_not_added_up(stage: str) -> None:
    """What an earlier change put in is of no step, so that sums would hold those of the whole window."""
    with pytest.raises(NotApplicable, match="earlier change"):
        remember("accumulate", "2", remember("zero", stage).memory)


def test_a_shorter_life_of_gradients_is_all_that_the_second_stage_gives() -> None:
    found = remember("zero", "2").memory
    held = found.by_owner()[:, CODE[Owner.GRADIENTS]]
    assert held.max() == WEIGHT + 2 * WEIGHT // 4
    assert held[found.peak + 1] == 0


@pytest.mark.parametrize(
    ("follower", "small"),
    [("aten::dropout", 4096 // 32), *((f"aten::{op}", None) for op in ("linear", "addmm", "baddbmm", "einsum"))],
)
def test_masks_replace_what_only_a_relu_keeps(follower: str, small: int | None) -> None:
    made = memory(
        Block(Owner.ACTIVATIONS, 4096, 10, 60, op="aten::relu", phase="forward", step=1),
        Block(Owner.ACTIVATIONS, 8192, 20, 50, op=follower, phase="forward", step=1),
        Block(Owner.ACTIVATIONS, 8192, 30, 45, op="aten::linear", module="next", phase="forward", step=1),
        Block(Owner.TEMPORARIES, 100, 40, 41, phase="backward", step=1),
        Block(Owner.TEMPORARIES, 4096, 55, 70, phase="backward", step=1),
    )
    if small is None:
        with pytest.raises(NotApplicable, match="only for its own backward"):
            remember("encode", "relu_mask", made)
        return
    found = remember("encode", "relu_mask", made).memory
    assert made.peak_bytes - found.peak_bytes == 4096 - small
    late = found.by_owner()[found.time.tolist().index(55) + 1]
    assert late[CODE[Owner.TEMPORARIES]] == 2 * 4096
    assert late[CODE[Owner.ACTIVATIONS]] == small


def test_what_is_encoded_is_whole_only_while_it_is_read() -> None:
    """Of two alike steps: the last op of forward has none behind it there, and backward allocates nothing as large as
    what the first kept. A block that is gone before backward is not encoded."""
    blocks = []
    for number in (1, 2):
        at, ran = 100 * number, {"phase": "forward", "step": number}
        blocks += [
            Block(Owner.ACTIVATIONS, 8000, at + 10, at + 60, op="aten::contiguous", **ran),
            Block(Owner.ACTIVATIONS, 4096, at + 15, at + 18, op="aten::gelu", **ran),
            Block(Owner.ACTIVATIONS, 6000, at + 20, at + 50, op="aten::log_softmax", **ran),
            Block(Owner.TEMPORARIES, 10, at + 30, at + 31, phase="backward", step=number),
            Block(Owner.TEMPORARIES, 6000, at + 40, at + 45, phase="backward", step=number),
        ]
    made = memory(*blocks, closed=400)
    found = remember("encode", "bf16", made).memory
    held = found.by_owner().sum(axis=1)
    for begin in (100, 200):
        told = {time: held[found.time.tolist().index(begin + time) + 1] for time in (18, 30, 40)}
        assert told == {18: 8000 + 4000, 30: 4000 + 3000 + 10, 40: 4000 + 3000 + 6000 + 6000}


@pytest.mark.parametrize("value", ["relu_mask", "bf16", "fp8"])
def test_activations_under_autocast_are_not_taken_for_what_parameters_are(value: str) -> None:
    made = memory(
        Block(Owner.ACTIVATIONS, 4096, 10, 60, op="aten::relu", phase="forward", step=1),
        Block(Owner.ACTIVATIONS, 8192, 20, 50, op="aten::dropout", phase="forward", step=1),
        Block(Owner.TEMPORARIES, 4096, 55, 70, phase="backward", step=1),
    )
    remember("encode", value, made, replace(FACTS, dtype="fp32"))
    with pytest.raises(NotApplicable, match="matmuls run in bf16"):
        remember("encode", value, made, replace(FACTS, dtype="bf16"))


def test_a_prelu_needs_its_numbers() -> None:
    made = memory(
        Block(Owner.ACTIVATIONS, 4096, 10, 60, op="aten::prelu", phase="forward", step=1),
        Block(Owner.ACTIVATIONS, 8192, 20, 50, op="aten::dropout", phase="forward", step=1),
    )
    with pytest.raises(NotApplicable, match="only for its own backward"):
        remember("encode", "relu_mask", made)


def test_passes_that_are_not_told_apart_are_refused() -> None:
    made = memory(Block(Owner.PARAMETERS, 10), Block(Owner.GRADIENTS, 10, 1, 2))
    with pytest.raises(NotApplicable, match="cannot be distinguished"):
        fully_sharded(made, HELD, 2)


@pytest.mark.parametrize("name", ["recompute", "schedule", "compression"])
def test_what_is_not_known_is_not_said_to_be_nothing(name: str) -> None:
    remembers = BY_NAME[name].remember
    assert remembers is None or name == "recompute"


def test_what_moves_no_memory_says_why() -> None:
    found = remember("bucket_mb", "5")
    assert found.memory.peak_bytes == step().peak_bytes
    assert found.notes
