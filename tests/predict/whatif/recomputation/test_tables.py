"""The frontier as people and programs read it."""

from __future__ import annotations

from tests.memory_run import MemoryRun
from tests.predict.whatif.recomputation.made import Layer, trained

from lostflops.predict.whatif.recomputation import tables
from lostflops.predict.whatif.recomputation.recomputable import Recomputable


def test_choices_come_with_what_they_save_and_take_and_with_their_code(monkeypatch):
    memory, calls = trained([Layer("a", [40], ns=1000), Layer("b", [30], ns=2000)])
    monkeypatch.setattr(tables, "fullest", lambda *_: memory)
    monkeypatch.setattr(tables, "recomputable", lambda *_: Recomputable(calls, memory))
    run = MemoryRun(steps=[{"rank": 0, "step": 0, "lane": 1, "start": 0, "stop": 10_000}])
    found = tables.frontier_of(run).to_json()
    points = found["frontier"]
    assert [(one["peak"], one["again_ns"], one["modules"]) for one in points] == [
        (202, 0, []),
        (162, 1000, ["a"]),
        (158, 3000, ["a", "b"]),
    ]
    assert points[1]["slower"] == 0.1
    assert points[1]["change"] == "recompute=a"
    assert 'for name in ("a", "b"):' in points[2]["code"]
    assert [(one["module"], one["kept"], one["bytes_per_ms"]) for one in found["modules"]] == [
        ("a", 40, 40_000),
        ("b", 30, 15_000),
    ]
    assert "158 B at best" in found["verdict"]


def test_without_memory_it_says_how_to_record_it():
    found = tables.frontier_of(MemoryRun()).to_json()
    assert found["frontier"] == []
    assert "--with shapes,modules,samples,memory" in found["verdict"]
