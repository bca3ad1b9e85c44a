"""Small recordings with all their events, and whose each block is."""

import time

import pytest
from tests.account.memory.recorded import Recorded, owned

from lostflops.account.ledger.phases import PHASES
from lostflops.account.memory.blocks import BEFORE
from lostflops.account.memory.read import memories
from memory_run import MemoryRun


def training(recorded, step, start, *, keep=()):
    """100 us: forward from 10 on, backward from 40, the optimizer from 80. Addresses end in the step's number, but for
    1, that of a gradient."""
    recorded.step(step, start, start + 100)
    recorded.span("aten::linear", start + 10, start + 20, module="model.up")
    recorded.span("aten::empty", start + 11, start + 13, module="model.up")
    recorded.span("aten::relu", start + 20, start + 30, module="model")
    recorded.backward("ReluBackward0", start + 40, start + 50, module="model")
    recorded.backward("AddmmBackward0", start + 50, start + 60, module="model.up")
    recorded.optimizer(start + 80, start + 90)
    recorded.span("aten::_foreach_add_", start + 82, start + 88)
    kept, work, inner, update = 100 + step, 200 + step, 300 + step, 400 + step
    recorded.alloc(start + 12, kept, 1_000)
    recorded.alloc(start + 22, work, 50)
    recorded.free(start + 28, work)
    recorded.alloc(start + 42, inner, 1_000)
    recorded.alloc(start + 52, 1, 300)
    recorded.free(start + 55, inner)
    if kept not in keep:
        recorded.free(start + 57, kept)
    recorded.alloc(start + 83, update, 70)
    recorded.free(start + 87, update)
    recorded.free(start + 95, 1)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_owners_follow_from_when_a_block_lived(device):
    recorded = Recorded(device)
    for step in (0, 1):
        training(recorded, step, 100 * step)
    found = recorded.read()
    expected = {100: "activations", 200: "temporaries", 300: "temporaries", 400: "temporaries", 1: "gradients"}
    whose = owned(found)
    assert {address: whose[address] for address in expected} == expected
    assert {address: whose[address + 1] for address in expected if address > 1} | {1: "gradients"} == expected
    assert found.peak_bytes == 2_300


def test_a_block_knows_where_it_was_allocated():
    recorded = Recorded()
    training(recorded, 7, 0)
    found = recorded.read()
    places = {
        address: (found.texts[module], found.texts[op], PHASES[phase], step)
        for address, module, op, phase, step in zip(
            *(getattr(found.blocks, name).tolist() for name in ("address", "module", "op", "phase", "step")),
            strict=True,
        )
    }
    assert places == {
        107: ("model.up", "aten::linear", "forward", 7),
        207: ("model", "aten::relu", "forward", 7),
        307: ("model", "ReluBackward0", "backward", 7),
        1: ("model.up", "AddmmBackward0", "backward", 7),
        407: ("", "aten::_foreach_add_", "optimizer", 7),
    }


def test_holdings_come_before_lifetimes_and_name_the_module():
    recorded = Recorded()
    training(recorded, 0, 0)
    recorded.hold(0, 10_000, 900, "parameters", before=True, name="model.up.weight")
    recorded.hold(0, 20_000, 80, None, before=True, name="cache", line="train.py:3")
    recorded.hold(80, 1, 300, "gradients", name="model.up.weight")
    recorded.hold(30, 100, 1_000, "batches")
    found = recorded.read()
    assert owned(found) == {
        10_000: "parameters",
        20_000: "unattributed",
        100: "batches",
        200: "temporaries",
        300: "temporaries",
        400: "temporaries",
        1: "gradients",
    }
    assert (found.base, found.unknown) == (980, 0)
    rows = {address: row for row, address in enumerate(found.blocks.address.tolist())}
    assert found.texts[found.blocks.module[rows[10_000]]] == "model.up"
    assert found.texts[found.blocks.line[rows[20_000]]] == "train.py:3"
    assert found.blocks.born[rows[10_000]] == BEFORE
    assert found.blocks.died[rows[10_000]] == found.time.size


def test_what_was_seen_in_other_windows_is_no_part_of_the_one_whose_events_there_are():
    """A run has the memory events of one window, and the holdings of all."""
    recorded = Recorded()
    training(recorded, 7, 1_000)
    for opened in (0, 990, 5_000):
        recorded.hold(opened, 10_000, 900, "parameters", before=True)
        recorded.hold(opened, 20_000 + opened, 300, "gradients", before=True)
        recorded.hold(opened + 15, 30_000 + opened, 64, "batches")
    found = recorded.read()
    assert found.base == 1_200
    assert sorted(found.blocks.address[found.blocks.born == BEFORE].tolist()) == [10_000, 20_990]


def test_events_of_a_window_that_opened_with_nothing_seen_have_no_holdings_of_later_ones():
    recorded = Recorded()
    training(recorded, 7, 0)
    recorded.hold(5_000, 10_000, 900, "parameters", before=True)
    recorded.hold(5_001, 1, 300, "batches")
    found = recorded.read()
    assert (found.base, owned(found)[1]) == (0, "gradients")


def test_on_a_cpu_what_was_there_before_ends_when_it_was_seen_gone_or_its_place_is_taken():
    recorded = Recorded()
    recorded.span("aten::add", 0, 100)
    recorded.alloc(10, 5_000, 10)
    recorded.alloc(30, 1_008, 10)
    recorded.free(40, 5_000)
    recorded.hold(0, 1_000, 20, None, before=True, gone=90)
    recorded.hold(0, 2_000, 40, None, before=True, gone=20)
    recorded.hold(0, 3_000, 80, None, before=True, gone=99)
    found = recorded.read()
    assert found.base == 140
    assert found.time.tolist() == [10_000, 20_000, 30_000, 30_000, 40_000, 99_000]
    assert found.total.tolist() == [150, 110, 90, 100, 90, 10]


def test_on_a_device_the_allocators_totals_hold_and_what_nobody_names_is_unknown():
    recorded = Recorded("cuda", base=4_096)
    recorded.span("aten::add", 0, 100)
    recorded.hold(0, 10_000, 1_000, "parameters", before=True, name="weight")
    recorded.alloc(10, 5_000, 512)
    recorded.free(20, 9_000, 512)
    found = recorded.read()
    assert (found.base, found.unknown) == (4_096, 4_096 - 1_024 - 512)
    assert owned(found) == {10_000: "parameters", 9_000: "unattributed", 5_000: "unattributed"}
    assert found.total.tolist() == [4_608, 4_096]
    assert not found.notes


def test_a_lost_free_is_found_by_the_jump_of_the_total():
    recorded = Recorded("cuda")
    recorded.span("aten::add", 0, 100)
    recorded.alloc(10, 1, 512)
    recorded.free(20, 1, lost=True)
    recorded.alloc(30, 2, 1_024)
    recorded.alloc(40, 1, 512)
    found = recorded.read()
    assert found.blocks.died.tolist() == [1, 3, 3]
    assert found.total.tolist() == [512, 1_024, 1_536]
    assert not found.drift.size
    assert any("its free is not recorded" in note for note in found.notes)
    assert any("jumps 1 times" in note for note in found.notes)


def test_two_frees_that_were_lost_at_once_are_found_by_their_sum():
    recorded = Recorded("cuda")
    recorded.span("aten::add", 0, 100)
    recorded.alloc(10, 1, 512)
    recorded.alloc(11, 2, 2_048)
    recorded.free(20, 1, lost=True)
    recorded.free(21, 2, lost=True)
    recorded.alloc(30, 3, 1_024)
    recorded.alloc(40, 1, 512)
    recorded.alloc(50, 2, 512)
    found = recorded.read()
    assert found.blocks.died.tolist() == [2, 2, 5, 5, 5]
    assert not found.drift.size


def test_a_lost_allocation_is_unattributed_while_it_is_there():
    recorded = Recorded("cuda", base=512)
    recorded.span("aten::add", 0, 100)
    recorded.alloc(10, 1, 512)
    recorded.alloc(20, 2, 2_048, lost=True)
    recorded.alloc(30, 3, 512)
    recorded.free(40, 2)
    found = recorded.read()
    assert (found.base, found.unknown) == (512, 512)
    assert found.drift.tolist() == [0, 2_048, 0]
    assert found.by_owner()[:, -1].tolist() == [512, 1_024, 3_584, 1_536]


def test_a_rank_without_any_ops_closes_and_tells_lines_where_a_snapshots_history_has_them():
    recorded = Recorded("cuda", base=1_024)
    recorded.alloc(10, 1, 512)
    recorded.alloc(20, 2, 512)
    recorded.free(30, 1)
    for row, line in zip(recorded.memory, ("model.py:7", "train.py:3", None), strict=True):
        row |= {"line": line, "lane": None}
    found = recorded.read()
    assert owned(found) == {1: "unattributed", 2: "unattributed"}
    assert [found.texts[code] for code in found.blocks.line.tolist()] == ["model.py:7", "train.py:3"]
    assert found.total.tolist() == [1_536, 2_048, 1_536]


def test_where_it_communicates_a_block_names_what_does():
    recorded = Recorded()
    recorded.span("FSDP::pre_forward (layers.0)", 0, 50, "annotation")
    recorded.span("FSDP::all_gather (layers.0)", 10, 40, "annotation")
    recorded.span("aten::empty", 20, 30)
    recorded.alloc(25, 1, 512)
    recorded.free(60, 1)
    found = recorded.read()
    assert found.texts[found.blocks.op[0]] == "FSDP::all_gather (layers.0)"
    assert owned(found) == {1: "communication"}


@pytest.mark.slow
def test_a_million_events_take_less_than_three_seconds():
    count = 1_000_000
    run = MemoryRun(ranks=[{"rank": 0, "events": count // 2}])
    run.connection.execute(
        f"""insert into memory (rank, time, lane, step, device_type, device_index, address, bytes, allocated)
        with changes as (
            select i * 100 as time, (i % 5000 + 10) * 100000 as address, 512 * (1 + i % 97) as bytes
            from range({count // 2}) rows(i)
            union all
            select (i + 4999) * 100 + 50, (i % 5000 + 10) * 100000, -512 * (1 + i % 97) from range({count // 2}) rows(i)
        )
        select 0, time, 0, time // 100000, 1, 0, address, bytes, sum(bytes) over (order by time) from changes"""
    )
    run.connection.execute(
        f"""insert into events (rank, event, lane, kind, name, start, dur, sequence, forward_thread, module)
        select 0, i, 0, 'op', if(i // 1000 % 2 = 1, 'Node' || i % 50 || 'Backward0', 'aten::op' || i % 50),
            i * 100, 99, i, i // 1000 % 2, 'layers.' || i % 30 from range({count // 2}) rows(i)"""
    )
    began = time.process_time()
    (found,) = memories(run)
    took = time.process_time() - began
    found.self_check()
    assert len(found.blocks) == count // 2
    assert took < 3
