"""Which memory is the fullest."""

import pytest
from tests.account.memory.recorded import Recorded

from lostflops.account.memory import fullest as module
from lostflops.account.memory.fullest import fullest
from memory_run import MemoryRun

Tables = tuple[list[dict[str, object]], list[dict[str, object]]]


def rows(rank: int, device: str, size: int, base: int = 0) -> Tables:
    recorded = Recorded(device, base=base if device != "cpu" else 0)
    recorded.alloc(10, 0x100, size)
    recorded.free(20, 0x100)
    held = {"time": 0, "before": True, "address": 0x900, "bytes": base, "owner": "parameters", "name": "w"}
    holdings = [{**held, **recorded.device}] if base else []
    return tuple([{**row, "rank": rank} for row in table] for table in (recorded.memory, holdings))  # type: ignore[return-value]


def run_of(*parts: tuple[list[dict[str, object]], list[dict[str, object]]]) -> MemoryRun:
    return MemoryRun(
        memory=[row for part, _ in parts for row in part], holdings=[row for _, own in parts for row in own]
    )


def test_an_accelerator_comes_before_a_cpu_that_holds_more() -> None:
    with run_of(rows(0, "cpu", 9_000), rows(0, "cuda", 1_000), rows(1, "cuda", 2_000)) as run:
        found = fullest(run)
        assert found is not None
        assert (found.rank, found.device, found.peak_bytes) == (1, "cuda:0", 2_000)
        named = fullest(run, [0])
        assert named is not None
        assert (named.rank, named.device) == (0, "cuda:0")
        assert fullest(run, [7]) is None


def test_few_of_many_ranks_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    read = list[int]()
    own = module.memories
    monkeypatch.setattr(module, "memories", lambda run, ranks: own(run, read.extend(ranks) or ranks))  # type: ignore[func-returns-value]
    with run_of(*(rows(rank, "cpu", 1_000, base=100 * rank) for rank in range(40))) as run:
        found = fullest(run)
    assert found is not None
    assert (found.rank, found.peak_bytes) == (39, 1_000 + 3_900)
    assert len(read) == 8


def test_a_run_without_memory_has_none() -> None:
    with MemoryRun() as run:
        assert fullest(run) is None
