"""What grows from step to step, told from what merely stays: blocks made by hand over steps of 100."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from tests.account.memory.made import Block, memory

from lostflops.account.memory.growth import Grown, Holder, StepMoments, growing, growth_of, says, table
from lostflops.account.memory.owners import Owner
from memory_run import MemoryRun

KIB = 1024
Made = Callable[[int, int], list[Block]]
"""Blocks of a step that begins at a time."""


def steps(count: int) -> StepMoments:
    return StepMoments(tuple(range(8, 8 + count)), np.arange(count) * 100)


def act(begin: int, stop: int | None = None, size: int = KIB, op: str = "aten::linear", module: str = "net") -> Block:
    return Block(Owner.ACTIVATIONS, size, begin + 10, stop, module, op, phase="forward")


def found(of: Made, count: int = 3, before: Sequence[Block] = (), held: dict[int, Holder] | None = None) -> list[Grown]:
    blocks = [block for step in range(count) for block in of(step, 100 * step)]
    weights = Block(Owner.PARAMETERS, 100 * KIB)
    made = memory(weights, *before, *blocks, closed=100 * count)
    return growing(made, steps(count), held or {})


def test_a_list_that_keeps_one_activation_a_step() -> None:
    (one,) = found(lambda _, begin: [act(begin)])
    assert (one.op, one.module, one.owner, one.count) == ("aten::linear", "net", Owner.ACTIVATIONS, 1)
    assert (one.left, one.a_step, one.steps) == ((KIB, 2 * KIB, 3 * KIB), KIB, (8, 9, 10))


def test_shapes_that_vary_grow_all_the_same() -> None:
    (one,) = found(lambda step, begin: [act(begin, size=KIB * (3, 1, 2, 5)[step])], count=4)
    assert (one.left, one.a_step) == ((3 * KIB, 4 * KIB, 6 * KIB, 11 * KIB), 2 * KIB)


def until_next(step: int, begin: int) -> list[Block]:
    """What a loop's variables hold: gone when the next step has computed its own; shapes grow by chance."""
    return [act(begin, begin + 120 if step < 2 else None, size=KIB * (step + 1))]


def two_ago(step: int, begin: int) -> list[Block]:
    return [act(begin, begin + 220 if step < 1 else None)]


def once(step: int, begin: int) -> list[Block]:
    """Optimizer's state in the first step, a rebuilt bucket in the second, and what is in use at the end."""
    made = [
        [Block(Owner.OPTIMIZER, 200 * KIB, begin + 80, op="aten::zeros_like")],
        [Block(Owner.COMMUNICATION, 100 * KIB, begin + 60, op="aten::empty")],
        [act(begin, op="aten::empty"), act(begin)],
    ]
    return made[step]


def state_bit_by_bit(step: int, begin: int) -> list[Block]:
    """Experts that are first used in different steps."""
    return [Block(Owner.OPTIMIZER, 50 * KIB, begin + 80, op="aten::zeros_like")]


def cache_that_fills(step: int, begin: int) -> list[Block]:
    return [act(begin, op="aten::cos")] if step < 2 else []


def one_off_buffers(step: int, begin: int) -> list[Block]:
    return [act(begin, op="aten::empty", module="") for _ in range((1, 2, 1)[step])]


def numbers(_: int, begin: int) -> list[Block]:
    return [act(begin, size=4, op="aten::detach")]


@pytest.mark.parametrize(
    "healthy", [until_next, two_ago, once, state_bit_by_bit, cache_that_fills, one_off_buffers, numbers]
)
def test_a_healthy_run_raises_nothing(healthy: Made) -> None:
    assert found(healthy) == []


def test_a_bounded_history_is_no_growth() -> None:
    """For each that comes, one from before the window goes."""
    before = [Block(Owner.UNATTRIBUTED, KIB, None, 100 * step + 20) for step in range(3)]
    assert found(lambda _, begin: [act(begin)], before=before) == []


def test_what_was_in_use_when_the_window_opened_hides_no_growth() -> None:
    before = [Block(Owner.UNATTRIBUTED, KIB, None, 20), Block(Owner.UNATTRIBUTED, KIB, None, 30)]
    assert len(found(lambda _, begin: [act(begin)], before=before)) == 1


def test_two_steps_do_not_tell() -> None:
    assert found(lambda _, begin: [act(begin)], count=2) == []


def test_the_holder_is_that_of_the_blocks() -> None:
    """Addresses are 4096 for the weights, then 8192 and so on."""
    (one,) = found(lambda _, begin: [act(begin)], held={8192: Holder("kept", "train.py:12")})
    assert (one.holder, one.is_by_graph) == (Holder("kept", "train.py:12"), False)
    assert says([one]) == (
        "Each of 3 steps leaves 1.02 kB on cpu of rank 0 that no later step frees, most of it from aten::linear of "
        "net, held by kept at train.py:12."
    )


def test_a_variable_that_the_next_step_sets_anew_holds_nothing() -> None:
    """The block of the last step is the third, behind the weights."""
    held = {4 * 4096: Holder("hidden", "")}
    (one,) = found(lambda _, begin: [act(begin)], held=held)
    assert one.holder is None


def test_a_graph_is_kept_by_what_holds_the_loss() -> None:
    """The losses are few bytes; the activations that their graphs keep have no tensor in Python."""
    held = {8192: Holder("losses", "train.py:31")}
    grown = found(lambda _, begin: [act(begin, size=4, op="aten::mean"), act(begin, size=9 * KIB)], held=held)
    (one,) = grown
    assert (one.op, one.holder, one.is_by_graph) == ("aten::linear", Holder("losses", "train.py:31"), True)
    assert says(grown).endswith("held by losses at train.py:31, with the graph that it belongs to.")


def test_nobody_is_suspected_where_several_could_be() -> None:
    held = {1: Holder("a", "train.py:1"), 2: Holder("b", "train.py:2")}
    (one,) = found(lambda _, begin: [act(begin)], held=held)
    assert one.holder is None


def rows(**more: Any) -> Any:
    starts = [{"rank": 0, "step": 8 + step, "start": 100 * step, "stop": 100 * step + 100} for step in range(3)]
    base = {"rank": 0, "device_type": 0, "device_index": -1, "bytes": KIB, "before": False, "time": 300}
    return MemoryRun(steps=starts, holdings=[base | one for one in more.get("holdings", [])])


def test_steps_and_holders_are_those_of_the_run() -> None:
    blocks = [act(100 * step) for step in range(3)]
    run = rows(
        holdings=[
            {"address": 4096, "name": "kept", "line": "train.py:12"},
            {"address": 8192, "name": "gone", "gone": 299},
            {"address": 12288, "name": "weight", "owner": "parameters"},
        ]
    )
    grown = growth_of(run, [memory(*blocks, closed=300)])
    told = table(grown).to_json()
    assert [(row["bytes_a_step"], row["name"], row["line"]) for row in told] == [(KIB, "kept", "train.py:12")]
    assert told[0]["left"] == [KIB, 2 * KIB, 3 * KIB]
    assert growth_of(run, [memory(*blocks, closed=299)]) == []


def test_nothing_is_said_of_nothing() -> None:
    assert says([]) == ""
    assert table([]).to_json() == []
