"""The name and the line of what keeps a tensor, on programs as people write them."""

from __future__ import annotations

import sys
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest

from lostflops.collect.adding_lines import ATTRIBUTE, GLOBAL, LOCAL, adding_line

pytest.importorskip("torch")

import torch

from lostflops.collect.held_by import held_by

GATHERED: list[Any] = []


def line_of(function: Callable[..., Any], number: int) -> str:
    return f"tests/collect/test_held_by.py:{function.__code__.co_firstlineno + number}"


def ends(holder: tuple[str, str | None], name: str, line: str | None) -> bool:
    """Paths begin at an entry of sys.path, whichever that is."""
    return holder[0] == name and (holder[1] == line if None in (line, holder[1]) else line.endswith(holder[1]))


def test_a_list_of_a_running_function() -> None:
    kept = []
    for _ in range(3):
        kept.append(torch.ones(3))  # noqa: PERF401
    found = held_by(kept, sys._getframe())
    assert [ends(found[id(one)], "kept", line_of(test_a_list_of_a_running_function, 3)) for one in kept] == [True] * 3


def gather(one: Any) -> None:
    GATHERED.append((7, {"out": one}))


def test_a_global_list_that_another_function_fills() -> None:
    one = torch.ones(3)
    gather(one)
    found = held_by([one], sys._getframe())
    GATHERED.clear()
    assert ends(found[id(one)], "GATHERED", line_of(gather, 1))


class Trainer:
    def __init__(self) -> None:
        self.history: deque[Any] = deque()
        self.by_step: dict[int, Any] = {}

    def remember(self, step: int, one: Any) -> None:
        self.by_step[step] = one

    def log(self, one: Any) -> None:
        self.history.appendleft(one)


def test_attributes_of_an_object() -> None:
    trainer, one, other = Trainer(), [torch.ones(2)], [torch.ones(2)]
    trainer.log(one.pop())
    trainer.remember(3, other.pop())
    found = held_by([trainer.history[0], trainer.by_step[3]], sys._getframe())
    assert ends(found[id(trainer.history[0])], "trainer.history", line_of(Trainer.log, 1))
    assert ends(found[id(trainer.by_step[3])], "trainer.by_step", line_of(Trainer.remember, 1))


def test_a_variable_has_a_name_and_no_line() -> None:
    loss = torch.ones(1)
    assert held_by([loss], sys._getframe()) == {id(loss): ("loss", None)}


def test_what_has_no_name_has_no_holder() -> None:
    found = held_by([torch.ones(1)], sys._getframe())
    assert found == {}


def test_a_frame_keeps_nothing_because_it_was_looked_at() -> None:
    def step() -> weakref.ref[Any]:
        out = torch.ones(3)
        held_by([out], sys._getframe())
        reference = weakref.ref(out)
        del out
        assert reference() is None
        return reference

    assert step()() is None


def test_a_dict_of_variables_that_the_program_holds_stays_as_it_is() -> None:
    def step() -> dict[str, Any]:
        shown, out = locals(), torch.ones(3)
        held_by([out], sys._getframe())
        # Since Python 3.13, locals() is a copy.
        assert shown.get("out") is (out if sys.version_info < (3, 13) else None)
        return shown

    step()


CODE = """
def f(kept, other):
    other[len(kept)] = 1
    other.append(kept)
    kept += [2]
def g(self):
    self.kept[0] = self.other
    return self.other.append
def h():
    kept.clear()
    kept[3] = 4
"""


@pytest.mark.parametrize(
    ("name", "loads", "line"),
    [("kept", LOCAL, 5), ("other", LOCAL, 3), ("kept", ATTRIBUTE, 7), ("other", ATTRIBUTE, 8), ("kept", GLOBAL, 11)],
)
def test_only_lines_that_add_count(name: str, loads: tuple[str, ...], line: int) -> None:
    assert adding_line(name, loads, [compile(CODE, "/nowhere/train.py", "exec")]) == f"train.py:{line}"
