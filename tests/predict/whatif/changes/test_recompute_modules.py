"""recompute=MODULE,... and recompute=BYTES: time and memory of some modules that are run again."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
from tests.predict.graph.tiny import L, T, graph, starts
from tests.predict.whatif.recomputation.made import Layer, trained

from lostflops.account.ledger.phases import BACKWARD, FORWARD
from lostflops.core.errors import AlreadySo, NotApplicable, UsageError
from lostflops.predict.graph.tasks import LaneKind, TaskKind
from lostflops.predict.whatif.change import Facts
from lostflops.predict.whatif.changes.recompute import CHANGE
from lostflops.predict.whatif.recomputation.recomputable import Recomputable


def kernel(name, duration, phase, layer):
    return T(name, duration, 0, TaskKind.KERNEL, phase=phase, layer=layer)


def passes():
    lane = [
        kernel("fa", 1000, FORWARD, "a.x"),
        kernel("fb", 2000, FORWARD, "b"),
        kernel("loss", 300, FORWARD, ""),
        kernel("bb", 4000, BACKWARD, "b"),
        kernel("ba", 3000, BACKWARD, "a.x"),
    ]
    return graph([L(0, LaneKind.STREAM, lane)])


def facts(share=1.0):
    memory, calls = trained([Layer("a", [40], ns=1000), Layer("b", [30], ns=2000)])
    told = Recomputable(replace(calls, ns=(calls.forward_ns * share).astype("int64")), memory)
    return Facts(times=None, recomputable=lambda: told), memory


def took(value, known):
    edited = CHANGE.apply(passes(), value, known)
    return starts(edited.graph, edited.graph.tasks.duration), edited


def test_only_those_modules_take_longer_in_backward():
    before = {"fa": 1000, "fb": 2000, "loss": 300, "bb": 4000, "ba": 3000}
    assert took("a", Facts(times=None))[0] == before | {"ba": 4000}
    assert took("b,a", facts()[0])[0] == before | {"ba": 4000, "bb": 6000}
    assert took("b", facts(share=0.5)[0])[0] == before | {"bb": 5000}


def test_bytes_choose_the_cheapest_that_fit_in_time_and_memory_alike():
    known, memory = facts()
    # 202 as recorded, 162 with a for 1000 ns, 198 with b for 2000, 158 with both.
    assert took("195B", known)[1].extra["modules"] == ["a"]
    assert took("0.16kB", known)[1].extra["modules"] == ["a", "b"]
    after = CHANGE.remember(memory, "0.16kB", known).memory
    after.self_check()
    assert after.peak_bytes == 158
    assert CHANGE.remember(memory, "b", known).memory.peak_bytes == 198


def test_all_layers_are_remembered_too():
    known, memory = facts()
    assert CHANGE.remember(memory, "on", known).memory.peak_bytes == 158
    with pytest.raises(NotApplicable, match="never allocated"):
        CHANGE.remember(memory, "off", known)


def test_memory_is_unknown_where_no_module_was_recorded():
    known, memory = facts()
    nothing = SimpleNamespace(layers=lambda: ())
    with pytest.raises(NotApplicable, match="no module was recorded"):
        CHANGE.remember(memory, "on", replace(known, recomputable=lambda: nothing))


def test_what_cannot_be():
    known, memory = facts()
    with pytest.raises(NotApplicable, match="peak of 202 B below 158 B"):
        took("100B", known)
    with pytest.raises(AlreadySo, match="already 202 B"):
        took("1GiB", known)
    with pytest.raises(UsageError, match="'c'"):
        took("c", known)
    with pytest.raises(UsageError, match="is inside"):
        took("a,a.x", Facts(times=None))
    with pytest.raises(NotApplicable, match="which modules keep what was not recorded"):
        took("100B", Facts(times=None))
    with pytest.raises(NotApplicable, match="which modules keep what was not recorded"):
        CHANGE.remember(memory, "a", Facts(times=None))


def test_the_code_wraps_them():
    assert 'for name in ("a", "b"):' in CHANGE.how("a,b")
