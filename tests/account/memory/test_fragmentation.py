"""Fragmentation by blocks against what a model of the allocator can and cannot return, and against torch's own sums."""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.account.memory.made import Block, memory
from tests.made_allocator import MB, Allocator, ExpandableAllocator, frame
from tests.memory_run import MemoryRun

from lostflops.account.memory.fragmentation import Fragmentation, fragmentations, from_events
from lostflops.account.memory.fragmentation_answers import FragmentationAnswer, answer
from lostflops.account.memory.owners import Owner
from lostflops.account.memory.snapshot_lines import NO_LINE, line_holdings, phase_of
from lostflops.ingest.formats.allocator.dump import StackTable, read_blocks

MODEL = frame("forward", "/job/model.py", 12)
TRAIN = frame("main", "/job/train.py", 31)
CALL = frame("_call_impl", "/venv/lib/site-packages/torch/nn/modules/module.py", 1500)
BACKWARD = frame("backward", "/venv/lib/site-packages/torch/_tensor.py", 600)
STEP = frame("wrapper", "/venv/lib/site-packages/torch/optim/optimizer.py", 400)


RUN = MemoryRun()


@pytest.fixture(scope="module", autouse=True)
def _closed() -> Iterator[None]:
    yield
    RUN.close()


def run_of(snapshot: dict[str, Any]) -> MemoryRun:
    """The run that ingest would make of a snapshot of rank 0; always the same one, with other rows."""
    columns, wrong = read_blocks(snapshot["segments"], StackTable(), "made")
    assert not +wrong
    RUN.connection.execute("delete from allocator_blocks")
    rows = ", ".join(f"(0, 1, {', '.join(map(_literal, row))})" for row in zip(*columns.values(), strict=True))
    RUN.connection.execute(f"insert into allocator_blocks (rank, device_type, {', '.join(columns)}) values {rows}")
    return RUN


def _literal(value: int | str | None) -> str:
    return "null" if value is None else f"'{value}'" if isinstance(value, str) else str(value)


def of(allocator: Allocator) -> Fragmentation:
    (found,) = fragmentations(run_of(allocator.snapshot()))
    found.self_check()
    return found


def test_one_small_block_keeps_a_segment() -> None:
    allocator = Allocator()
    large = allocator.malloc(8 * MB)
    allocator.malloc(2 * MB, MODEL)
    allocator.free(large)
    cached = allocator.malloc(30 * MB)
    allocator.free(cached)
    found = of(allocator)
    assert (found.use.reserved, found.use.allocated) == (50 * MB, 2 * MB)
    assert (found.use.split, found.use.slack) == (18 * MB, 30 * MB)
    assert found.use.largest_free == 30 * MB
    assert found.expandable_at_most == 18 * MB
    (segment,) = found.segments
    assert (segment.use.split, segment.live, segment.line) == (18 * MB, 1, "/job/model.py:12")


def test_a_full_cache_is_no_fragmentation() -> None:
    allocator = Allocator()
    for place in [allocator.malloc(12 * MB) for _ in range(4)]:
        allocator.free(place)
    found = of(allocator)
    assert (found.use.split, found.use.slack, found.expandable_at_most) == (0, 48 * MB, 0)
    assert found.segments == ()


def test_rounding_is_what_was_not_asked_for() -> None:
    allocator = Allocator()
    allocator.malloc(1)
    allocator.malloc(MB + 1)
    allocator.malloc(19 * MB + 5)
    found = of(allocator)
    assert found.use.rounding == 511 + 511 + (MB - 5)
    assert found.use.allocated == 512 + (MB + 512) + 20 * MB


def test_free_pages_of_expandable_segments_can_be_returned() -> None:
    snapshot = Allocator().snapshot()
    base = 0x7F00_0000_0000
    sizes = [("active_allocated", 30 * MB), ("inactive", 55 * MB), ("active_allocated", 15 * MB)]
    blocks, address = [], base
    for state, size in sizes:
        blocks.append({"address": address, "size": size, "requested_size": size, "state": state, "frames": []})
        address += size
    head = {"device": 0, "address": base, "total_size": 100 * MB, "stream": 0, "segment_type": "large"}
    snapshot["segments"] = [head | {"is_expandable": True, "blocks": blocks}]
    run = run_of(snapshot)
    (found,) = fragmentations(run)
    assert (found.use.slack, found.use.split) == (40 * MB, 15 * MB), "pages of 20 MB from 40 to 80 MB are free"
    assert found.expandable_at_most == 0


sizes = st.one_of(st.integers(1, 4000), st.integers(1, 3 * MB), st.integers(MB, 40 * MB))
Script = list[tuple[int, int, list[int]]]
steps = st.lists(st.tuples(sizes, st.integers(0, 1), st.lists(st.integers(0, 30), max_size=2)), max_size=25)


def replayed(allocator: Allocator, script: Script) -> None:
    live: list[int] = []
    for size, stream, freed in script:
        live.append(allocator.malloc(size, MODEL, CALL, TRAIN, stream=stream))
        for place in freed:
            if place < len(live):
                allocator.free(live.pop(place))


@settings(deadline=None, max_examples=25)
@given(steps)
def test_slack_is_what_emptying_the_cache_returns_and_split_what_stays(
    script: Script,
) -> None:
    allocator = Allocator()
    replayed(allocator, [(512, 0, []), *script])
    found = of(allocator)
    live = [block for segment in allocator.segments for block in segment.blocks if block.state != "inactive"]
    assert found.use.allocated == sum(block.size for block in live)
    assert found.use.rounding == sum(block.size - block.requested for block in live)
    before = allocator.reserved()
    assert found.use.reserved == before
    allocator.empty_cache()
    assert before - allocator.reserved() == found.use.slack
    assert allocator.reserved() - found.use.allocated == found.use.split == sum(s.use.split for s in found.segments)


@settings(deadline=None, max_examples=25)
@given(steps)
def test_expandable_segments_give_back_no_more_than_said(script: Script) -> None:
    allocator, expandable = Allocator(), ExpandableAllocator()
    for one in (allocator, expandable):
        replayed(one, [(512, 0, []), *script])
    found = of(allocator)
    assert found.use.reserved - found.use.slack - found.expandable_at_most <= expandable.mapped_at_least()


@settings(deadline=None, max_examples=25)
@given(steps)
def test_torch_sums_the_same(script: Script) -> None:
    viz = pytest.importorskip("torch.cuda._memory_viz")
    allocator = Allocator()
    replayed(allocator, [(512, 0, []), *script])
    snapshot = allocator.snapshot()
    run = run_of(snapshot)
    (found,) = fragmentations(run)
    lines = line_holdings(run, 0, "cuda:0")
    use, told = found.use, viz.segsum(snapshot)
    assert use.rounding is not None
    assert f"total_reserved: {viz.Bytes(use.reserved)}\n" in told
    assert f"total_allocated: {viz.Bytes(use.allocated - use.rounding)}\n" in told
    assert f"total_free: {viz._report_free(use.split + use.slack, use.rounding)}\n" in told
    flames = viz.memory(snapshot, format_flamegraph=lambda text: text).splitlines()
    allocated = [line.rpartition(" ") for line in flames if ";active_allocated;" in line]
    gaps = sum(int(size) for stack, _, size in allocated if stack.endswith("<gaps>"))
    assert gaps == use.rounding
    assert sum(one.requested or 0 for one in lines) == sum(int(size) for *_, size in allocated) - gaps
    assert sum(one.bytes for one in lines) == use.allocated


def test_lines_sum_to_what_is_allocated_and_tell_the_phase() -> None:
    allocator = Allocator()
    allocator.malloc(3 * MB, TRAIN)
    allocator.malloc(4 * MB, MODEL, CALL, TRAIN)
    allocator.malloc(5 * MB, MODEL, CALL, BACKWARD, TRAIN)
    allocator.malloc(2 * MB, STEP, TRAIN)
    allocator.malloc(2 * MB + 100, STEP, TRAIN)
    allocator.malloc(700)
    allocator.free(allocator.malloc(6 * MB, MODEL, TRAIN), is_used=True)
    run = run_of(allocator.snapshot())
    (found,) = fragmentations(run)
    lines = line_holdings(run, 0, "cuda:0")
    assert [(one.line, one.phase, one.bytes, one.requested, one.count) for one in lines] == [
        ("/job/model.py:12", "backward", 5 * MB, 5 * MB, 1),
        ("/job/train.py:31", "optimizer", 4 * MB + 512, 4 * MB + 100, 2),
        ("/job/model.py:12", "forward", 4 * MB, 4 * MB, 1),
        ("/job/train.py:31", "other", 3 * MB, 3 * MB, 1),
        (NO_LINE, None, 1024, 700, 1),
    ]
    assert sum(one.bytes for one in lines) == found.use.allocated
    assert found.use.pending == 6 * MB


@pytest.mark.parametrize(
    ("stack", "phase"),
    [
        (None, None),
        ("main train.py:1", "other"),
        (
            "main train.py:1;step torch/optim/adam.py:5;closure train.py:9;_call_impl torch/nn/modules/module.py:3",
            "forward",
        ),
        ("main train.py:1;step torch/optim/adam.py:5;closure train.py:9;backward torch/_tensor.py:3", "backward"),
        ("main train.py:1;step torch/optim/lr_scheduler.py:5", "other"),
        ("torch::autograd::Engine::thread_main ??:0;at::empty ??:0", "backward"),
        ("main train.py:1;__next__ torch/utils/data/dataloader.py:700;pin train.py:3", "data"),
    ],
)
def test_phase_of_a_stack(stack: str | None, phase: str | None) -> None:
    assert phase_of(stack) == phase


def test_blocks_of_a_result_state_the_figures() -> None:
    allocator = Allocator()
    large = allocator.malloc(8 * MB)
    allocator.malloc(2 * MB, MODEL)
    allocator.free(large)
    run = run_of(allocator.snapshot())
    told_by_snapshot = answer(run, 0, "cuda:0")
    figures, keepers, lines = told_by_snapshot.blocks
    (segments,) = told_by_snapshot.more
    told = figures.to_json()
    assert (told["split_bytes"], told["slack_bytes"], told["reserved_bytes"]) == (18 * MB, 0, 20 * MB)
    assert sum(pool["split"] for pool in told["pools"]) == 18 * MB
    assert [row["split"] for row in segments.to_json()] == [18 * MB]
    assert keepers.to_json() == [{"line": "/job/model.py:12", "split": 18 * MB, "segments": 1, "live": 2 * MB}]
    assert [(row["line"], row["bytes"]) for row in lines.to_json()] == [("/job/model.py:12", 2 * MB)]
    assert told_by_snapshot.notes == ()
    assert answer(run, 0, "cuda:1") == answer(run, 1, "cuda:0") == FragmentationAnswer()


def test_events_alone_cannot_tell() -> None:
    seen = memory(
        Block(Owner.PARAMETERS, MB),
        Block(Owner.ACTIVATIONS, 2 * MB, 10, 30),
        reserved=(8 * MB, 9 * MB),
        device="cuda:0",
    )
    assert from_events(seen) == 5 * MB
    assert from_events(memory(Block(Owner.PARAMETERS, MB))) is None
    assert answer(RUN, 5, "cuda:0").notes == ()
    told = answer(RUN, 5, "cuda:0", seen)
    assert told.blocks == ()
    assert told.notes[0].startswith("Events do not show fragmentation: the 5.24 MB that were reserved")
