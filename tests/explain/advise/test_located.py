"""A loss is located where the program spends time that a step does not need, whatever its cause."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from lostflops.core.units import format_percent
from lostflops.explain.advise.located import locate, without_named

CALL = "Module._call_impl torch/nn/modules/module.py:9"
FORWARD = f"main train.py:10;{CALL};Net.forward net.py:5;linear torch/nn/functional.py:2"
BACKWARD = "main train.py:12;Tensor.backward torch/_tensor.py:3"
UPDATE = "main train.py:13;profile_hook_step.<locals>.wrapper torch/optim/optimizer.py:5"


def total(**lines: dict[str, int]) -> Any:
    """Lines with the time of stacks in ms; each stack was sampled ten times. Names are lines with _ for the dot."""
    times = {name.replace("_", ".", 1): Counter(stacks) for name, stacks in lines.items()}
    whole = sum(stacks.total() for stacks in times.values())
    samples = {line: Counter(dict.fromkeys(stacks, 10)) for line, stacks in times.items()}
    ranks = [SimpleNamespace(rank=0)]
    return SimpleNamespace(samples=samples, sampled_ns=times, total_ns=whole, ranks=ranks, on_thread=[0])


def test_the_passes_of_a_step_are_no_loss() -> None:
    assert locate(total(compute={FORWARD: 300, BACKWARD: 600, UPDATE: 100})) == ()


def test_a_metric_is_located_with_what_it_calls() -> None:
    gather = "main train.py:11;Meter.add meter.py:7;_exception_logger.<locals>.wrapper torch/distributed/c10d_logger.py"
    stack = f"{gather}:83;all_gather_object torch/distributed/distributed_c10d.py:3000"
    [found] = locate(total(compute={FORWARD: 300, BACKWARD: 500}, comm_transfer={stack: 150}, idle_python={stack: 50}))
    assert found.what == (
        "20% of step time goes to Meter.add at meter.py:7, calling all_gather_object: comm.transfer 15%, "
        "idle.python 5%."
    )
    assert found.named == ("Meter.add meter.py:7", "main train.py:11")
    assert found.lines == {"comm.transfer": 150, "idle.python": 50}


def test_work_outside_of_the_passes_is_located_even_if_it_computes() -> None:
    average = "main train.py:14;Average.update average.py:8;add torch/_ops.py:3"
    [found] = locate(total(compute={FORWARD: 300, BACKWARD: 400, average: 300}))
    assert (found.place, found.share) == ("average.py:8", 0.3)


def test_of_two_forward_passes_the_smaller_one_is_a_loss() -> None:
    second = FORWARD.replace("train.py:10", "train.py:20")
    [found] = locate(total(compute={FORWARD: 300, second: 200, BACKWARD: 500}))
    assert found.share == 0.2
    assert found.what.startswith(
        "20% of step time is lost in the forward pass called at train.py:10 and train.py:20 (main)"
    )


def test_a_hook_inside_the_forward_pass_is_not_the_pass() -> None:
    hook = f"main train.py:10;{CALL};Net.forward net.py:5;{CALL};check_finite hooks.py:3"
    [found] = locate(total(compute={FORWARD: 300, BACKWARD: 500, hook: 200}))
    assert found.named == ("check_finite hooks.py:3", "Net.forward net.py:5")


def test_modules_that_make_up_a_pass_are_no_loss() -> None:
    """An encoder and a decoder, called in turn; a criterion of torch alone; a helper of the model; a small loss."""
    decoder = FORWARD.replace("train.py:10", "train.py:11").replace("Net.forward net.py", "Decoder.forward dec.py")
    criterion = f"main train.py:12;{CALL};mse_loss torch/nn/functional.py:3"
    helper = f"main train.py:10;{CALL};Net.forward net.py:5;Net.attend net.py:9;softmax torch/nn/functional.py:4"
    loss = "main train.py:13;cross_entropy torch/nn/functional.py:7"
    found = total(compute={FORWARD: 200, decoder: 200, criterion: 150, helper: 150, BACKWARD: 230, loss: 70})
    assert locate(found) == ()


def test_without_modules_nobody_knows_what_a_pass_is() -> None:
    step = "main train.py:4;model train.py:20;matmul torch/_ops.py:2"
    grad = "main train.py:5;grad torch/autograd/__init__.py:9"
    assert locate(total(compute={step: 600, grad: 400})) == ()


def test_code_that_was_generated_is_nobodys() -> None:
    code = f"call c{'a2b3' * 14}.py:185"
    found = locate(total(compute={f"main train.py:10;{CALL};{code}": 500, FORWARD: 100, BACKWARD: 400}))
    assert found == ()


def test_waits_in_a_pass_are_located_at_its_call() -> None:
    [found] = locate(total(compute={FORWARD: 300, BACKWARD: 500}, comm_wait={BACKWARD: 200}))
    assert found.what == "20% of step time is lost in the backward pass called at train.py:12 (main): comm.wait 20%."


def test_one_line_that_calls_all_passes_is_all_there_is_to_name() -> None:
    inner = "Trainer.run train.py:9"
    stacks = {f"{inner};{CALL}": 300, f"{inner};Tensor.backward torch/_tensor.py:3": 500}
    [found] = locate(total(compute=stacks, idle_python={f"{inner};Tensor.backward torch/_tensor.py:3": 200}))
    assert found.place == "train.py:9"


def test_without_samples_nothing_is_located() -> None:
    assert locate(total()) == ()


def test_what_the_host_does_while_a_device_is_busy_locates_nothing() -> None:
    stack = "main train.py:11;Meter.add meter.py:7"
    found = total(compute={stack: 500}, comm_wait={stack: 300}, idle_python={stack: 100})
    found.on_thread = []
    [one] = locate(found)
    assert one.lines == {"idle.python": 100}


@pytest.mark.parametrize(("claimed", "is_left"), [(150, False), (60, True)])
def test_a_finding_that_explains_less_than_half_leaves_the_loss(claimed: int, is_left: bool) -> None:
    stack = "main train.py:11;Meter.add meter.py:7"
    found = locate(total(compute={FORWARD: 800}, idle_python={stack: 200}))
    one: Any = SimpleNamespace(what="It logs at meter.py:7.", fix="", evidence=(), lost_ns=claimed)
    assert bool(without_named(found, [one])) is is_left
    other: Any = SimpleNamespace(what="Elsewhere.", fix="", evidence=(), lost_ns=200)
    assert without_named(found, [other]) == found
    assert format_percent(found[0].share) == "20%"


def test_line_12_is_not_line_1() -> None:
    stack = "main train.py:11;Meter.add meter.py:1"
    found = locate(total(compute={FORWARD: 800}, idle_python={stack: 200}))
    other: Any = SimpleNamespace(what="It logs at meter.py:12 and train.py:112.", fix="", evidence=(), lost_ns=200)
    assert without_named(found, [other]) == found
