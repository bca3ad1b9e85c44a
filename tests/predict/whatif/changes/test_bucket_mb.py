"""Buckets of gradients: other sizes, other moments, other transfers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.predict.graph.tiny import L, M, T, graph, starts
from tests.predict.whatif.changes.linear import facts

from lostflops.account.ledger.phases import BACKWARD, FORWARD
from lostflops.core.errors import NotApplicable
from lostflops.predict.graph.editing import with_words
from lostflops.predict.graph.replay import replay
from lostflops.predict.graph.tasks import LaneKind, TaskKind
from lostflops.predict.whatif.changes.bucket_mb import CHANGE
from lostflops.predict.whatif.changes.first_bucket_mb import CHANGE as FIRST

MIB = 1024 * 1024


def job(buckets, per_ns=1):
    """Two ranks without devices: four layers' backward of 100 ns each and 1 MiB of gradients; `buckets` say behind
    which layers one is reduced; an optimizer waits for all."""
    lanes, edges, meetings, steps = [], [], {}, []
    for rank in (0, 1):
        host = [T(f"begin{rank}", kind=TaskKind.MARK), T(f"fwd{rank}", 50, kind=TaskKind.KERNEL, phase=FORWARD)]
        comm, before = [], -1
        for layer in range(4):
            host.append(T(f"bwd{rank}.{layer}", 100, kind=TaskKind.KERNEL, phase=BACKWARD))
            if layer in buckets:
                name = f"b{layer}"
                meetings[name] = M((layer - before) * MIB // per_ns + 10, size=(layer - before) * MIB)
                comm.append(T(f"c{rank}.{layer}", kind=TaskKind.COMM, meets=name, phase=BACKWARD))
                edges += [(f"bwd{rank}.{layer}", f"c{rank}.{layer}"), (f"c{rank}.{layer}", f"wait{rank}")]
                before = layer
        host += [T(f"wait{rank}", kind=TaskKind.SYNC), T(f"end{rank}", kind=TaskKind.MARK)]
        lanes += [L(rank, LaneKind.HOST, host), L(rank, LaneKind.COMM_THREAD, comm)]
        steps.append((rank, 0, f"begin{rank}", f"end{rank}"))
    return graph(lanes, edges, meetings, steps)


PARAMETERS = tuple((f"layer{i}", MIB, None) for i in range(4))
COSTS = facts(10.0, 1.0, parameters=PARAMETERS)


@pytest.mark.parametrize(
    ("mb", "buckets"), [("1", (0, 1, 2, 3)), ("2", (1, 3)), ("3", (2, 3)), ("100", (3,)), ("1.5", (1, 3))]
)
@pytest.mark.parametrize("recorded", [(1, 3), (3,), (0, 3)])
def test_as_if_recorded_so(mb, buckets, recorded):
    before = job(recorded)
    if buckets == recorded:
        with pytest.raises(NotApplicable, match="buckets stay the same"):
            CHANGE.apply(before, mb, COSTS)
        return
    found = CHANGE.apply(before, mb, COSTS).graph
    found.self_check()
    truth = job(buckets)
    assert replay(found).step_times.tolist() == replay(truth).step_times.tolist()
    assert sorted(found.meetings.size.tolist()) == sorted(truth.meetings.size.tolist())
    assert sorted(found.meetings.transfer.tolist()) == sorted(truth.meetings.transfer.tolist())


def test_without_parameters_buckets_are_cut_anywhere():
    found = CHANGE.apply(job((3,)), "3", facts(10.0, 1.0))
    assert found.graph.meetings.size.tolist() == [3 * MIB, MIB]
    assert "Parameters are unknown: buckets are cut at exact sizes." in found.notes


def test_the_first_bucket_alone():
    found = FIRST.apply(job((1, 3)), "1", COSTS).graph
    assert replay(found).step_times.tolist() == replay(job((0, 2, 3))).step_times.tolist()


def test_the_level_is_the_runs_own():
    """Transfers of the run take three times what the costs say."""
    before = job((1, 3))
    slow = before.meetings.transfer * 3
    found = CHANGE.apply(replace(before, meetings=replace(before.meetings, transfer=slow)), "100", COSTS)
    assert found.graph.meetings.transfer.tolist() == [round((4 * MIB + 10) * 3)]


def test_nothing_reduced_is_refused():
    made = graph([L(0, LaneKind.HOST, [T("a", 1)])])
    with pytest.raises(NotApplicable, match="no collective"):
        CHANGE.apply(made, "5", COSTS)


def test_a_stream_waits_for_launch_and_kernel():
    """On a device the new bucket waits for both lanes at the same place."""
    lanes, edges, meetings = [], [], {"x": M(2 * MIB + 10, size=2 * MIB)}
    for rank in (0, 1):
        host = [T(f"l{rank}.{i}", 2, kind=TaskKind.LAUNCH, phase=BACKWARD) for i in range(2)]
        host.append(T(f"lc{rank}", 2, kind=TaskKind.LAUNCH, phase=BACKWARD))
        stream = [T(f"k{rank}.{i}", 100, kind=TaskKind.KERNEL, phase=BACKWARD) for i in range(2)]
        lanes += [L(rank, LaneKind.HOST, host), L(rank, LaneKind.STREAM, stream)]
        lanes.append(L(rank, LaneKind.STREAM, [T(f"c{rank}", kind=TaskKind.COMM, meets="x", phase=BACKWARD)]))
        edges += [(f"l{rank}.{i}", f"k{rank}.{i}", 4, True) for i in range(2)]
        edges += [(f"lc{rank}", f"c{rank}", 4, True), (f"k{rank}.1", f"c{rank}")]
    made = graph(lanes, edges, meetings, [(0, 0, "", ""), (1, 0, "", "")])
    found = CHANGE.apply(made, "1", facts(10.0, 1.0, parameters=(("a", MIB, None), ("b", MIB, None)))).graph
    comm = replay(found).start[found.tasks.kind == TaskKind.COMM]
    assert comm.tolist() == [104, 104 + MIB + 10] * 2
    assert starts(made, replay(made).start)["c0"] == 204


def test_who_went_on_early_waits_for_no_later_gradient():
    """A wait for the first bucket that stands before the second is ready: merged, it must not wait for itself."""
    lanes, edges, meetings = [], [], {"a": M(MIB + 10, size=MIB), "b": M(MIB + 10, size=MIB)}
    for rank in (0, 1):
        names = ("x", "early", "y", "wait")
        host = [T(f"{name}{rank}", 100, kind=TaskKind.KERNEL, phase=BACKWARD) for name in names]
        comm = [T(f"{name}{rank}", kind=TaskKind.COMM, meets=name, phase=BACKWARD) for name in ("a", "b")]
        lanes += [L(rank, LaneKind.HOST, host), L(rank, LaneKind.COMM_THREAD, comm)]
        edges += [(f"x{rank}", f"a{rank}"), (f"a{rank}", f"early{rank}"), (f"y{rank}", f"b{rank}")]
        edges.append((f"b{rank}", f"wait{rank}"))
    made = graph(lanes, edges, meetings, [(r, 0, f"x{r}", f"wait{r}") for r in (0, 1)])
    found = CHANGE.apply(made, "2", facts(10.0, 1.0)).graph
    assert replay(found).step_times.tolist() == [300 + 2 * MIB + 10 + 100] * 2


def test_sharded_gradients_have_no_buckets():
    made = job((1, 3))
    sharded = with_words(made, "reduce_scatter")[0]
    op = np.full(len(made.meetings), sharded.word("reduce_scatter"), np.int32)
    with pytest.raises(NotApplicable, match="scattered"):
        CHANGE.apply(replace(sharded, meetings=replace(made.meetings, op=op)), "1", COSTS)


def test_what_ranks_take_beyond_transfers_is_shared_out():
    before = job((1, 3))
    comm = before.tasks.kind == TaskKind.COMM
    slow = replace(before, tasks=before.tasks._replace(duration=before.tasks.duration + 40 * comm))
    found = CHANGE.apply(slow, "1", COSTS).graph
    assert found.tasks.duration[found.tasks.kind == TaskKind.COMM].tolist() == [20] * 8
