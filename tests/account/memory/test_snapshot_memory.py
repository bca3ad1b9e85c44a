"""Memory of a run that has a snapshot of the allocator alone: it closes, and says which lines hold what."""

import pickle
from pathlib import Path

import numpy as np
from tests.made_allocator import MB, Allocator, frame

from lostflops.account.memory.blocks import RankMemory
from lostflops.account.memory.owners import CODE, Owner
from lostflops.account.memory.read import memories
from lostflops.explain.analyze.memory import memory as analyse
from lostflops.ingest import ingest
from lostflops.store.run import Run

WEIGHTS, LAYER = frame("build", "/job/model.py", 3), frame("forward", "/job/model.py", 12)


def memory_of(folder: Path, allocator: Allocator, most_entries: int | None = None) -> RankMemory:
    (folder / "rank1.pickle").write_bytes(pickle.dumps(allocator.snapshot(most_entries)))
    ingest([folder / "rank1.pickle"], folder / "run", workers=1)
    with Run.open(folder / "run") as run:
        (memory,) = memories(run)
    memory.self_check()
    return memory


def three_tensors() -> Allocator:
    allocator = Allocator()
    allocator.malloc(3 * MB, WEIGHTS)
    passing = allocator.malloc(4 * MB, LAYER)
    allocator.malloc(5 * MB, LAYER)
    allocator.free(passing)
    return allocator


def alive_by_line(memory: RankMemory, event: int) -> dict[str, int]:
    sums: dict[str, int] = {}
    for row in memory.alive(event).tolist():
        line = memory.texts[memory.blocks.line[row]]
        sums[line] = sums.get(line, 0) + int(memory.blocks.bytes[row])
    return sums


def test_the_peak_by_line_from_a_whole_history(tmp_path: Path) -> None:
    memory = memory_of(tmp_path, three_tensors())
    assert (memory.rank, memory.device, memory.base, memory.peak_bytes) == (1, "cuda:0", 0, 12 * MB)
    assert alive_by_line(memory, memory.peak) == {"/job/model.py:3": 3 * MB, "/job/model.py:12": 9 * MB}
    assert memory.reserved.tolist() == [20 * MB] * 4


def test_no_owner_is_made_up_without_phases(tmp_path: Path) -> None:
    memory = memory_of(tmp_path, three_tensors())
    assert set(memory.blocks.owner.tolist()) == {CODE[Owner.UNATTRIBUTED]}
    assert any("owners are not" in note for note in memory.notes)


def test_blocks_older_than_the_history_come_from_the_snapshot(tmp_path: Path) -> None:
    memory = memory_of(tmp_path, three_tensors(), most_entries=3)
    assert (memory.base, memory.unknown) == (7 * MB, 0)
    assert alive_by_line(memory, -1) == {"/job/model.py:3": 3 * MB, "": 4 * MB}, "that which was freed has no line"
    assert memory.total.tolist() == [12 * MB, 8 * MB]


def test_a_history_that_ends_early_counts_what_it_saw(tmp_path: Path) -> None:
    allocator = three_tensors()
    snapshot = allocator.snapshot()
    snapshot["device_traces"][0] = snapshot["device_traces"][0][:-2]
    (tmp_path / "rank1.pickle").write_bytes(pickle.dumps(snapshot))
    ingest([tmp_path / "rank1.pickle"], tmp_path / "run", workers=1)
    with Run.open(tmp_path / "run") as run:
        (memory,) = memories(run)
    memory.self_check()
    assert np.array_equal(memory.total, np.array([3, 7, 12]) * MB)
    assert any("totals are not recorded" in note for note in memory.notes)


def test_the_answer_sums_whether_there_is_a_history_or_not(tmp_path: Path) -> None:
    whole, blocks = three_tensors().snapshot(), three_tensors().snapshot(most_entries=0)
    for name, snapshot, peak in (("whole", whole, 12 * MB), ("blocks", blocks, None)):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "rank1.pickle").write_bytes(pickle.dumps(snapshot))
        ingest([folder / "rank1.pickle"], folder / "run", workers=1)
        with Run.open(folder / "run") as run:
            told = analyse(run, by="line").to_json()
        assert (told["peak"] and told["peak"]["bytes"]) == peak
        found = told["fragmentation"]
        parts = [found[f"{part}_bytes"] for part in ("allocated", "pending", "split", "slack")]
        assert parts == [8 * MB, 0, 12 * MB, 0]
        assert found["reserved_bytes"] == sum(parts) == 20 * MB
        assert sum(line["bytes"] for line in told["source_lines"]) == found["allocated_bytes"]
        assert sum(keeper["split"] for keeper in told["keepers"]) == found["split_bytes"]
