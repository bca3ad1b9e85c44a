"""When modules ran, read from a run that a test states."""

from __future__ import annotations

import pytest
from tests.memory_run import MemoryRun

from lostflops.predict.whatif.recomputation.calls import calls_of

NODE = "autograd::engine::evaluate_function: "


def module(name, start, stop, step=0):
    return {
        "kind": "module",
        "module": name,
        "name": f"lostflops.module: {name}",
        "start": start,
        "stop": stop,
        "step": step,
    }


def op(name, start, stop, module=None):
    return {"kind": "op", "name": name, "start": start, "stop": stop, "module": module, "sequence": start, "step": 0}


def back(name, start, stop):
    return op(f"{NODE}AddmmBackward0", start, stop, name) | {"forward_thread": 1}


def run(*rows):
    events = [
        {
            "rank": 0,
            "event": at,
            "lane": 1,
            "dur": row["stop"] - row["start"],
            **{k: v for k, v in row.items() if k != "stop"},
        }
        for at, row in enumerate(rows)
    ]
    return MemoryRun(events=events)


def chain():
    return (
        module("(root)", 0, 100),
        module("a", 10, 40),
        module("a.one", 10, 20),
        op("aten::addmm", 12, 18, "a.one"),
        module("a.two", 20, 40),
        op("aten::relu", 22, 38, "a.two"),
        module("b", 40, 90),
        op("aten::gelu", 45, 50, "b"),
        op("aten::addmm", 60, 80, "b"),
        op("aten::add", 82, 88, "b"),
        back("b", 110, 130),
        back("a.two", 130, 140),
        back("a.one", 140, 160),
    )


def test_calls_nest_and_stop_where_backward_has_what_it_needs():
    found = calls_of(run(*chain()), 0)
    assert found.modules == ("a", "a.one", "a.two", "b")
    assert found.end.tolist() == [3, 2, 3, 4]
    # Results of relu are needed, so all of it runs again; of the products only the inputs are.
    assert found.cut.tolist() == [38, 12, 38, 60]
    assert found.ns.tolist() == [28, 2, 18, 20]
    assert list(zip(found.back.tolist(), found.back_stop.tolist(), strict=True)) == [
        (130, 160),
        (140, 160),
        (130, 140),
        (110, 130),
    ]


def test_the_device_tells_what_a_module_takes_where_there_is_one():
    kernels = [
        {"kind": "kernel", "name": "k", "start": 300 + at, "stop": 300 + at + size, "correlation": at}
        for at, size in ((46, 7), (62, 50))
    ]
    launches = [
        {"kind": "runtime", "name": "cudaLaunchKernel", "start": at, "stop": at + 1, "correlation": at}
        for at in (46, 62)
    ]
    found = calls_of(run(*chain(), *kernels, *launches), 0)
    b = found.modules.index("b")
    assert found.ns[found.module == b].tolist() == [7]
    assert found.forward_ns[found.module == b].tolist() == [57]


def test_each_microbatch_has_its_own_backward():
    found = calls_of(run(module("a", 0, 10), back("a", 20, 30), module("a", 40, 50), back("a", 60, 70)), 0)
    assert found.back.tolist() == [20, 60]
    assert found.back_stop.tolist() == [30, 70]


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ((module("a", 0, 10), module("a", 12, 20), back("a", 30, 40)), "several times in one pass"),
        ((module("a", 0, 10), back("a", 20, 40), module("a", 22, 30)), "already recomputes them"),
    ],
)
def test_modules_that_cannot_be_chosen_are_told(rows, said):
    found = calls_of(run(*rows), 0)
    assert not found.modules
    assert said in found.notes[0]


def test_a_module_without_backward_is_none():
    assert not calls_of(run(module("a", 0, 10)), 0).modules
