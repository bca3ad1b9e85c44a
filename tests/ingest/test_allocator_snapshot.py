"""Snapshots of the allocator, written by a model of it, become blocks and a history that lead to the same totals."""

import json
import pickle
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.made_allocator import MB, Allocator, frame

from lostflops.core.errors import BrokenSource
from lostflops.ingest import ingest
from lostflops.ingest.formats import READERS
from lostflops.ingest.formats.allocator.dump import StackTable, read_blocks
from lostflops.ingest.formats.allocator.trace import live_blocks, read_history
from lostflops.store.run import Run

TRAIN = frame("train", "/home/me/job/train.py", 31)
LINEAR = frame("forward", "/venv/lib/python3.11/site-packages/torch/nn/modules/linear.py", 125)
EMPTY = frame("at::detail::empty_cuda(c10::ArrayRef<long>)", "??", 0)


def ingested(folder: Path, snapshot: Any, name: str = "rank2_snapshot.pickle", protocol: int | None = None) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / name).write_bytes(pickle.dumps(snapshot, protocol))
    ingest([folder / name], folder / "run", workers=1)
    return folder / "run"


def asked(run: Path, query: str) -> list[tuple[Any, ...]]:
    with Run.open(run) as opened:
        return opened.sql(query).fetchall()


def two_tensors() -> Allocator:
    """A weight and an activation in one segment, with a freed one between."""
    allocator = Allocator()
    allocator.malloc(3 * MB, TRAIN)
    gone = allocator.malloc(4 * MB + 1, EMPTY, LINEAR, TRAIN)
    allocator.malloc(1000 * 1000 + 600_000, EMPTY, LINEAR, TRAIN)
    allocator.free(gone)
    return allocator


@pytest.mark.parametrize("protocol", [2, 4])
def test_blocks_of_a_segment(tmp_path: Path, protocol: int) -> None:
    run = ingested(tmp_path, two_tensors().snapshot(), protocol=protocol)
    base = 0x7F00_0000_0000
    rest = 20 * MB - 3 * MB - (4 * MB + 512) - 1_600_000
    head = (2, 1, 0, base, 20 * MB, False, 0, "large")
    line = "/home/me/job/train.py:31"
    deep = "train /home/me/job/train.py:31;forward torch/nn/modules/linear.py:125"
    assert asked(run, "select * from allocator_blocks order by address") == [
        (*head, base, 3 * MB, 3 * MB, "allocated", line, "train /home/me/job/train.py:31"),
        (*head, base + 3 * MB, 4 * MB + 512, None, "free", None, None),
        (*head, base + 7 * MB + 512, 1_600_000, 1_600_000, "allocated", line, deep),
        (*head, base + 7 * MB + 512 + 1_600_000, rest, None, "free", None, None),
    ]


def test_history_leads_to_the_snapshot(tmp_path: Path) -> None:
    run = ingested(tmp_path, two_tensors().snapshot())
    line = "/home/me/job/train.py:31"
    weight, gone, kept, began = 3 * MB, 4 * MB + 1, 1_600_000, 1_700_000_000_000_000_000
    assert asked(run, "select time, bytes, allocated, reserved, lane, line from memory order by time") == [
        (began + 2000, weight, weight, 20 * MB, None, line),
        (began + 3000, gone, weight + gone, 20 * MB, None, line),
        (began + 4000, kept, weight + gone + kept, 20 * MB, None, line),
        (began + 6000, -gone, weight + kept, 20 * MB, None, None),
    ]


def test_a_history_that_was_cut_at_its_front_keeps_its_totals(tmp_path: Path) -> None:
    run = ingested(tmp_path, two_tensors().snapshot(most_entries=3))
    assert asked(run, "select bytes, allocated from memory order by time") == [
        (1_600_000, 3 * MB + 4 * MB + 1 + 1_600_000),
        (-4 * MB - 1, 3 * MB + 1_600_000),
    ]


def test_a_history_that_ended_before_the_snapshot_has_no_totals(tmp_path: Path) -> None:
    snapshot = two_tensors().snapshot()
    snapshot["device_traces"][0] = snapshot["device_traces"][0][:-2]
    run = ingested(tmp_path, snapshot)
    assert asked(run, "select distinct allocated, reserved from memory") == [(None, None)]
    assert asked(run, "select what, effect, count from stats") == [("snapshot_history_ends_early", "missing", 1)]


def test_a_block_that_another_stream_uses_is_held_until_it_is_done(tmp_path: Path) -> None:
    allocator = Allocator()
    place = allocator.malloc(2 * MB, TRAIN)
    allocator.free(place, is_used=True)
    run = ingested(tmp_path, allocator.snapshot())
    assert asked(run, "select bytes, allocated from memory") == [(2 * MB, 2 * MB)]
    assert asked(run, "select state, bytes from allocator_blocks order by address") == [
        ("pending", 2 * MB),
        ("free", 18 * MB),
    ]


def test_running_out_of_memory_is_noted_with_its_line(tmp_path: Path) -> None:
    allocator = two_tensors()
    allocator.fail(2_000_000_000, 5_000_000, EMPTY, LINEAR, TRAIN)
    run = ingested(tmp_path, allocator.snapshot())
    words = "asked for 2.00 GB with 5.00 MB free on the device, at /home/me/job/train.py:31"
    assert asked(run, "select what, effect, count, reason from stats") == [
        ("out_of_memory", "note", 1, f"on device 0 the allocator ran out of memory: {words}")
    ]


def test_second_device_and_private_pools(tmp_path: Path) -> None:
    allocator = Allocator(device=1)
    allocator.malloc(100, TRAIN)
    snapshot = allocator.snapshot()
    snapshot["segments"][0] |= {"segment_pool_id": (0, 3), "is_expandable": True}
    run = ingested(tmp_path, snapshot)
    assert asked(run, "select distinct device_index, pool, expandable from allocator_blocks") == [
        (1, "small (0, 3)", True)
    ]
    assert asked(run, "select device_index, bytes from memory") == [(1, 100)]


def test_old_snapshots_keep_frames_in_a_history_and_have_no_times(tmp_path: Path) -> None:
    snapshot = two_tensors().snapshot()
    for block in snapshot["segments"][0]["blocks"]:
        frames, size = block.pop("frames"), block.pop("requested_size")
        if frames:
            block["history"] = [{"addr": block["address"], "real_size": size, "frames": frames}]
    for entry in snapshot["device_traces"][0]:
        del entry["time_us"]
    run = ingested(tmp_path, snapshot)
    assert asked(run, "select requested, line from allocator_blocks where state = 'allocated' order by address") == [
        (3 * MB, "/home/me/job/train.py:31"),
        (1_600_000, "/home/me/job/train.py:31"),
    ]
    assert asked(run, "select count(*) from memory") == [(0,)]
    assert asked(run, "select what, count from stats") == [("snapshot_entries_without_time", 5)]


def test_the_public_list_of_segments_is_read_too(tmp_path: Path) -> None:
    run = ingested(tmp_path, two_tensors().snapshot()["segments"])
    assert asked(run, "select count(*), sum(bytes) from allocator_blocks") == [(4, 20 * MB)]


def test_segments_that_contradict_themselves_are_counted(tmp_path: Path) -> None:
    snapshot = two_tensors().snapshot()
    snapshot["segments"][0]["allocated_size"] += 512
    snapshot["segments"].append({"address": "here"})
    run = ingested(tmp_path, snapshot)
    assert asked(run, "select what, count from stats order by what") == [
        ("snapshot_parts_malformed", 1),
        ("snapshot_segments_open", 1),
    ]


def test_stacks_of_c_alone_are_kept_and_too_much_text_is_not() -> None:
    stacks = StackTable(room=50)
    assert stacks.text([EMPTY]) == "at::detail::empty_cuda(c10::ArrayRef<long>) ??:0"
    assert (stacks.text([EMPTY, TRAIN]), stacks.dropped) == (None, 1)
    assert stacks.line([EMPTY, TRAIN]) == "/home/me/job/train.py:31"
    assert stacks.line([EMPTY]) is None


script = st.lists(st.tuples(st.integers(1, 30 * MB), st.lists(st.integers(0, 9), max_size=2)), min_size=1, max_size=20)


@given(script, st.integers(0, 80))
def test_totals_of_a_cut_history_are_those_of_the_whole(steps: list[tuple[int, list[int]]], cut: int) -> None:
    allocator, live = Allocator(), list[int]()
    for size, freed in steps:
        live.append(allocator.malloc(size))
        for place in freed:
            if place < len(live):
                allocator.free(live.pop(place))
    signs = {"alloc": 1, "free_completed": -1}
    held, reserved, truth = 0, 0, []
    for entry in allocator.entries:
        reserved += entry["size"] if entry["action"] == "segment_alloc" else 0
        held += signs.get(entry["action"], 0) * entry["size"]
        truth.append((held, reserved, entry["action"] in signs))
    snapshot = allocator.snapshot(most_entries=max(0, len(truth) - cut))
    blocks, wrong = read_blocks(snapshot["segments"], StackTable(), "made")
    history = read_history(snapshot["device_traces"][0], live_blocks(blocks, 0), StackTable())
    assert (history.contradictions, +wrong) == (0, Counter())
    wanted = [(held, reserved) for held, reserved, is_own in truth[min(cut, len(truth)) :] if is_own]
    assert list(zip(history.allocated.tolist(), history.reserved.tolist(), strict=True)) == wanted


class Hostile:
    def __reduce__(self) -> tuple[Any, ...]:
        return print, ("run",)


def test_a_pickle_that_would_run_code_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    snapshot = two_tensors().snapshot() | {"external_annotations": Hostile()}
    with pytest.raises(BrokenSource, match=r"asks for code to be loaded or run.*A snapshot of the allocator holds"):
        ingested(tmp_path, snapshot)
    assert "run" not in capsys.readouterr().out


def test_a_cut_pickle_is_refused(tmp_path: Path) -> None:
    (tmp_path / "rank0.pickle").write_bytes(pickle.dumps(two_tensors().snapshot())[:-400])
    with pytest.raises(BrokenSource, match=r"damaged or cut short|none of 1 files"):
        ingest([tmp_path / "rank0.pickle"], tmp_path / "run", workers=1)


def test_recognised_even_where_frames_name_what_flight_recorders_write() -> None:
    snapshot = two_tensors().snapshot()
    snapshot["segments"][0]["blocks"][0]["frames"] = [frame("entries", "/job/version/pg_config.py", 1)]
    head = pickle.dumps(snapshot)[: 64 << 10]
    assert next(name for name, reader in READERS.items() if reader.recognises(head, Path("x"))) == "allocator_snapshot"


def test_a_trace_with_allocations_of_the_device_goes_before_the_history(tmp_path: Path) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "rank2.pickle").write_bytes(pickle.dumps(two_tensors().snapshot()))
    event = {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "pid": 1, "tid": 1, "ts": 5}
    told = {"Addr": 77, "Bytes": 512, "Device Type": 1, "Device Id": 0, "Total Allocated": 512, "Total Reserved": 2048}
    text = json.dumps({"traceEvents": [event | {"args": told}]})
    (folder / "rank2_trace.json").write_text(text)
    ingest([folder], tmp_path / "run", workers=1)
    assert asked(tmp_path / "run", "select address, bytes from memory") == [(77, 512)]
    assert asked(tmp_path / "run", "select count(*) from allocator_blocks") == [(4,)]
    assert asked(tmp_path / "run", "select count from stats where what = 'snapshot_history_left_out'") == [(1,)]
