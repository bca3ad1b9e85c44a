"""Ranks without a device: tiny traces, times in milliseconds, and what their replay says with and without changes."""

from __future__ import annotations

import numpy as np
import pytest
from tests.cli.mini_traces import event, make_run

from lostflops.account.ledger.accounts import account
from lostflops.account.ledger.record import record_of
from lostflops.account.ledger.windows import WindowKind, window
from lostflops.predict.graph.build import build
from lostflops.predict.graph.editing import retime_graph, scale_rows
from lostflops.predict.graph.replay import replay
from lostflops.predict.graph.tasks import TaskKind
from lostflops.store.run import Run

MS = 1_000_000
TRAINING, WORKER, OTHER_WORKER = 1, 2, 3
LOADER = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"


def op(name, start, stop, thread=TRAINING):
    return event("cpu_op", name, start * 1000, (stop - start) * 1000, (100, thread))


def note(name, start, stop):
    return event("user_annotation", name, start * 1000, (stop - start) * 1000, (100, TRAINING))


def step(number, start, stop):
    return note(f"ProfilerStep#{number}", start, stop)


def reduced(asked, start, stop, thread=WORKER):
    return [op("c10d::allreduce_", asked, asked + 0.1), op("gloo:all_reduce", start, stop, thread)]


@pytest.fixture
def made(tmp_path):
    """The graph of one trace for each rank, all on one host."""

    def graph(*ranks):
        group = {"pg_name": "0", "pg_desc": "default_pg", "ranks": list(range(len(ranks)))}
        info = {"backend": "gloo", "world_size": len(ranks), "pg_config": [group]}
        with Run.open(make_run(tmp_path, *ranks, device="", host_name="node0", distributedInfo=info)) as run:
            found = build(run)
        done = replay(found)
        assert done.step_times.tolist() == found.steps.measured.tolist()
        return found

    return graph


def steps(graph):
    """Milliseconds of each step."""
    return (replay(graph).step_times / MS).round(3).tolist()


def with_transfers(graph, factor):
    return retime_graph(graph, transfer=(graph.meetings.transfer * factor).astype(np.int64))


def with_compute(graph, factor, rank):
    rows = (graph.tasks.kind == TaskKind.KERNEL) & (graph.rank == rank)
    return retime_graph(graph, duration=scale_rows(graph.tasks.duration, rows, factor))


def test_who_asks_at_once_waits_for_the_last_to_arrive_and_the_transfer(made):
    early = [step(1, 0, 100), op("aten::mm", 0, 40), *reduced(40, 41, 70), op("aten::add", 72, 90)]
    late = [step(1, 0, 100), op("aten::mm", 0, 50), *reduced(50, 51, 72), op("aten::add", 73, 100)]
    graph = made(early, late)
    assert replay(graph).start.tolist() == graph.measured.start.tolist()
    assert graph.meetings.transfer.tolist() == [19 * MS]
    assert steps(with_transfers(graph, 2)) == [119, 119]
    assert steps(with_compute(graph, 0.5, rank=0)) == [91, 100], "the other is as late as ever"
    assert steps(with_compute(graph, 1.2, rank=1)) == [110, 115.4]


def test_what_compute_hides_is_due_where_its_group_is_waited_for(made):
    """It ended in a pause between two ops, which no longer transfer moves."""
    buckets = [*reduced(10, 10.2, 30.01), *reduced(60, 60.2, 70, OTHER_WORKER)]
    ops = [op("aten::mm", 0, 10), op("aten::mm", 11, 30), op("aten::mm", 30.02, 60), op("aten::add", 71, 80)]
    graph = made(*[[step(1, 0, 80), *ops, *buckets]] * 2)
    assert steps(with_transfers(graph, 0)) == [80 - 9.8] * 2
    assert steps(with_transfers(graph, 2)) == [80 + 9.8] * 2, "40 hides in what computes"
    assert steps(with_transfers(graph, 4)) == [80 + 19.81 * 4 + 9.8 * 4 - 59.8] * 2, "the second has its turn after it"


def test_a_thread_that_begins_another_op_does_not_wait(made):
    node = "autograd::engine::evaluate_function: Sleeps"
    ops = [op("aten::mm", 0, 10), *reduced(10, 10.2, 15), op(node, 11, 40), op("aten::mm", 40, 50)]
    graph = made(*[[step(1, 0, 60), *ops, *reduced(50, 50.2, 55), op("aten::add", 55.5, 60)]] * 2)
    assert steps(with_transfers(graph, 3)) == [60 + 2 * 4.8] * 2


def test_a_worker_records_the_end_after_the_thread_went_on(made):
    ops = [op("aten::mm", 0, 10), *reduced(10, 10.2, 30.4), op("aten::add", 30, 40)]
    graph = made(*[[step(1, 0, 40), *ops]] * 2)
    assert graph.meetings.transfer.tolist() == [19_800_000]
    assert steps(with_transfers(graph, 2)) == [59.8] * 2


def test_calls_beside_each_other_share_their_link(made):
    """From 10 to 20 one moves alone, from 20 to 40 both."""
    calls = [*reduced(10, 10, 40), *reduced(20, 20, 40, OTHER_WORKER)]
    ops = [op("aten::mm", 0, 10), op("aten::mm", 10.1, 20), op("aten::add", 40.5, 50)]
    graph = made(*[[step(1, 0, 50), *ops, *calls]] * 2)
    assert graph.meetings.transfer.tolist() == [20 * MS, 10 * MS]
    assert len(set(graph.meetings.link.tolist())) == 1


def sent(name, asked, start, stop, peer):
    call = op(f"c10d::{name}", asked, start + 0.1)
    return [call | {"args": {"Concrete Inputs": ["", "", peer, "0"]}}, op(f"gloo:{name.strip('_')}", start, stop)]


def test_a_stage_waits_for_what_the_one_before_sends(made):
    """The send is recorded from after its data had arrived, and is found done late."""
    first = [step(1, 0, 100), op("aten::mm", 0, 40), *sent("send", 40, 41.5, 90, "1"), op("aten::mm", 42, 90)]
    second = [step(1, 0, 100), *sent("recv_", 0, 0.1, 41, "0"), op("aten::mm", 42, 100)]
    graph = made(first, second)
    assert (len(graph.meetings), graph.meetings.transfer.tolist()) == (1, [1 * MS])
    assert steps(with_compute(graph, 1.5, rank=0)) == [144, 120]
    assert steps(with_transfers(graph, 11)) == [100, 110], "the sender goes on"


def test_sends_that_are_waited_for_together_are_over_when_their_peer_received(tmp_path, made):
    """As in GPipe: all sends are recorded until the last is done."""
    sends = [*sent("send", 10, 10.2, 60, "1"), *sent("send", 20, 20.2, 60, "1"), *sent("send", 40, 40.2, 60, "1")]
    work = [op("aten::mm", 0, 10), op("aten::mm", 11, 20), op("aten::mm", 21, 40), op("aten::add", 60.5, 70)]
    receives = [*sent("recv_", 0, 0.1, 11, "0"), *sent("recv_", 30, 30.1, 30.5, "0"), *sent("recv_", 59, 59.2, 60, "0")]
    others = [op("aten::mm", 11, 30), op("aten::mm", 30.5, 59), op("aten::add", 60, 70)]
    graph = made([step(1, 0, 70), *work, *sends], [step(1, 0, 70), *others, *receives])
    assert steps(with_transfers(graph, 0)) == [67.5, 67.5], "1, 0.5 and 1 ms of transfers are gone"
    assert steps(with_compute(graph, 0.5, rank=1)) == pytest.approx([51, 46], abs=2), (
        "now the first stage is the slow one"
    )
    with Run.open(tmp_path / "run") as run:
        lines = account(record_of(run, 0), window(record_of(run, 0), WindowKind.STEPS)).lines
    assert lines["comm.bubble"] + lines["comm.wait"] == 19.8 * MS, "also in the pause after the second send"
    assert lines["comm.transfer"] == 1.6 * MS


def test_batches_of_workers_come_as_fast_as_they_are_made(made):
    trace = [step(n, 50 * n, 50 * n + 50) for n in range(1, 5)]
    for n in range(1, 5):
        trace += [note(LOADER, 50 * n, 50 * n + 30), op("aten::mm", 50 * n + 31, 50 * n + 49)]
    trace[4] = note(LOADER, 50, 50.5)
    graph = made(trace)
    loads = graph.tasks.kind == TaskKind.LOAD
    assert loads.sum() == 4
    assert np.mean(steps(with_compute(graph, 0.5, rank=0))[1:]) == pytest.approx(50, abs=1)
    assert np.mean(steps(with_compute(graph, 2, rank=0))[1:]) == pytest.approx(50, abs=1)
    free = retime_graph(graph, duration=np.where(loads, 0, graph.tasks.duration))
    assert np.mean(steps(free)[1:]) == pytest.approx(20.5, abs=1)


def test_a_loader_that_kept_up_is_not_modelled(made):
    trace = [step(1, 0, 50), note(LOADER, 0, 0.4), op("aten::mm", 1, 49), step(2, 50, 100), note(LOADER, 50, 50.5)]
    graph = made([*trace, op("aten::mm", 51, 100)])
    assert not (graph.tasks.kind == TaskKind.LOAD).any()
    assert (graph.tasks.kind == TaskKind.DATA).sum() == 2
