"""A fix is offered only where it applies to the job."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from lostflops.explain.advise.rules import optimizer
from lostflops.explain.advise.signs.compiled import advise_compiling
from memory_run import MemoryRun

ADVICE = "Use torch.compile(model)."


@pytest.mark.parametrize(
    ("rows", "is_compiled"),
    [
        ({"events": [{"rank": 0, "event": 0, "name": "aten::mm"}]}, False),
        ({"events": [{"rank": 0, "event": 0, "name": "Torch-Compiled Region: 0/0"}]}, True),
        ({"events": [{"rank": 0, "event": 0, "name": "triton_poi_fused_add_0"}]}, True),
        ({"job": [{"rank": 0, "attempt": 0, "key": "compilation", "value": "{}"}]}, True),
    ],
)
def test_a_compiled_program_is_not_told_to_compile(rows: dict[str, Any], is_compiled: bool) -> None:
    with MemoryRun(**rows) as run:
        case: Any = SimpleNamespace(run=run, answers={})
        assert (advise_compiling(case, ADVICE) != ADVICE) is is_compiled
        assert ("reduce-overhead" in advise_compiling(case, ADVICE, graphs=True)) is is_compiled


@pytest.mark.parametrize(("kind", "is_examined"), [("SparseAdam", False), ("AdamW", True), (None, True)])
def test_fused_is_for_optimizers_that_have_it(
    kind: str | None, is_examined: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    examined = []
    monkeypatch.setattr(optimizer, "read_computed_ranks", lambda case: examined.append(case) or ())
    value = json.dumps({"number": 0, "type": kind, "parameters": 8})
    job = [] if kind is None else [{"rank": 0, "attempt": 0, "key": "optimizer", "value": value}]
    with MemoryRun(job=job) as run:
        case: Any = SimpleNamespace(run=run, timed_steps=None, total=SimpleNamespace(phases={}), wall=1)
        assert list(optimizer.RULE.find(case)) == []
    assert bool(examined) is is_examined
