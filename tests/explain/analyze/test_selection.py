"""The answer about a part of the timeline: words on a cluster with a known straggler, and on hand-made totals."""

import shlex
from dataclasses import replace

import pytest
from tests.ui.made_run import recorded_run

from lostflops.account.derive.derive import derive
from lostflops.account.derive.selected_events import SelectedCollective, SelectedKernel
from lostflops.account.derive.selected_memory import SelectedMemory
from lostflops.account.derive.selection import SelectionTotals, total_selection
from lostflops.account.ledger.lines import LINES, WAIT_LINES
from lostflops.explain.analyze.selection import _IN_WORDS, MOST_KERNELS, TOO_MANY, selection
from lostflops.store.run import Run
from lostflops.testing import Straggler, SyntheticCluster, store


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    cluster = SyntheticCluster(ranks=4, steps=3, stragglers=(Straggler(2, "slow_kernels", factor=1.6),))
    with Run.open(store(cluster.generate(), tmp_path_factory.mktemp("selection") / "run")) as opened:
        yield opened


def test_the_straggler_is_named_and_has_most_waits(run):
    answer = selection(run, ranks=(0, 1, 3))
    assert "waiting for rank 2" in answer.verdict
    assert answer.waits.rows[0][0] == 2
    assert sum(row[1] for row in answer.waits.rows) == sum(
        line.ns for line in answer.ledger.items if line.name in WAIT_LINES
    )


def test_blocks_hold_the_totals(run):
    answer, found = (
        selection(run, ranks=(1,), start=1_000_000, stop=3_000_000),
        total_selection(run, (1,), 10**6, 3 * 10**6),
    )
    assert [block.name for block in answer.blocks] == ["ledger", "waits", "kernels", "collectives"]
    assert not answer.next_command, "the run stores no stretches"
    assert {line.name: line.ns for line in answer.ledger.items} == found.lines
    assert answer.ledger.total_ns == found.total == 2_000_000
    assert [row[1:4] for row in answer.kernels.rows] == [(one.name, one.count, one.ns) for one in found.kernels]
    assert [tuple(row) for row in answer.collectives.rows] == [
        (one.op, one.group, one.count, one.ns, one.wait) for one in found.collectives
    ]
    assert answer.verdict.startswith("2.00 ms on rank 1: ")


def said(monkeypatch, lines, waits=None, *, ranks=range(8), kernels=(), memory=()):
    made = SelectionTotals(
        ranks=tuple(ranks),
        start=0,
        stop=8_000_000,
        lines=dict.fromkeys(LINES, 0) | lines,
        waits=waits or {},
        kernels=kernels,
        collectives=(SelectedCollective("all_reduce", "0@0-7", 8, 100, 50),),
        memory=memory,
    )
    monkeypatch.setitem(selection.__globals__, "total_selection", lambda *_: made)
    return selection(None)


@pytest.mark.parametrize(
    ("lines", "waits", "verdict"),
    [
        (
            {"comm.wait": 35_200_000, "compute": 25_600_000, "comm.transfer": 3_200_000},
            {1: 35_200_000},
            "8.00 ms on 8 ranks = 64.0 rank-ms: 55% waiting for rank 1, 40% compute, 5% transfer.",
        ),
        (
            {"comm.wait": 32_000_000, "comm.bubble": 3_200_000, "compute": 28_800_000},
            {1: 25_600_000, 0: 6_400_000, None: 3_200_000},
            "8.00 ms on 8 ranks = 64.0 rank-ms: 45% compute, 40% waiting for rank 1, 15% waiting for others.",
        ),
        (
            {"comm.wait": 32_000_000, "compute": 32_000_000},
            {1: 12_000_000, 0: 10_000_000, 3: 10_000_000},
            "8.00 ms on 8 ranks = 64.0 rank-ms: 50% waiting for other ranks, 50% compute.",
        ),
        ({"idle.data": 32_000_000}, {}, "8.00 ms on 8 ranks, 32.0 rank-ms of it recorded: 100% waiting for data."),
        ({}, {}, "Nothing was recorded in these 8.00 ms."),
    ],
)
def test_verdicts(monkeypatch, lines, waits, verdict):
    assert said(monkeypatch, lines, waits).verdict == verdict


def test_one_rank_is_named(monkeypatch):
    assert said(monkeypatch, {"copy": 8_000_000}, ranks=[5]).verdict == "8.00 ms on rank 5: 100% copies."


def test_kernels_beyond_the_first_are_counted(monkeypatch):
    kernels = tuple(SelectedKernel(f"kernel_{number}", 1, 1000 - number) for number in range(MOST_KERNELS + 7))
    table = said(monkeypatch, {"compute": 64_000_000}, kernels=kernels).kernels
    assert (len(table.rows), table.left_out) == (MOST_KERNELS, 7)


def test_memory_has_a_row_for_each_rank_and_says_if_totals_are_missing(monkeypatch):
    sizes = {"at_start": 5, "peak": 9, "at_end": 7, "allocated": 6, "freed": 4, "allocations": 3}
    known = SelectedMemory(rank=2, device="cuda:0", **sizes)
    memory = known, replace(known, rank=1, device="cpu", at_start=None, peak=None, at_end=None)
    answer = said(monkeypatch, {"compute": 64_000_000}, memory=memory)
    assert [row["rank"] for row in answer.memory.to_json()] == [2, 1]
    assert answer.memory.to_json()[0] == {
        "rank": 2,
        "device": "cuda:0",
        "start_bytes": 5,
        "peak_bytes": 9,
        "end_bytes": 7,
        "allocated_bytes": 6,
        "freed_bytes": 4,
        "allocations": 3,
    }
    assert answer.notes == (TOO_MANY,)
    assert said(monkeypatch, {"compute": 64_000_000}, memory=memory[:1]).notes == ()


def test_a_recorded_run_has_stacks_memory_and_a_query(tmp_path):
    folder = recorded_run(tmp_path)
    derive(folder)
    with Run.open(folder) as recorded:
        answer = selection(recorded, ranks=(0, 2), start=1_000_000, stop=9_000_000)
        found = total_selection(recorded, (0, 2), 1_000_000, 9_000_000)
        *command, query = shlex.split(answer.next_command)
        assert command == ["lostflops", "sql", "run"]
        assert dict(recorded.sql(query).fetchall()) == {line.name: line.ns for line in answer.ledger.items if line.ns}
    assert [block.name for block in answer.blocks[4:]] == ["stacks", "memory"]
    assert sum(samples for _, samples, _ in answer.stacks.items) == found.stacks.samples > 0
    assert sum(ns for _, _, ns in answer.stacks.items) == answer.ledger.total_ns
    assert answer.stacks.kinds["load /job/data.py:9"] == "program"
    assert [row[0] for row in answer.memory.rows] == [own.rank for own in found.memory] == [2, 0]


def test_every_line_has_words():
    assert {*_IN_WORDS, *WAIT_LINES} == set(LINES)
