"""Which collectives reduce gradients and which only block, by what groups move in both passes."""

from __future__ import annotations

import numpy as np
import pytest
from tests.predict.graph.tiny import L, M, T, graph

from lostflops.account.ledger.phases import BACKWARD, FORWARD, OPTIMIZER
from lostflops.core.errors import NotApplicable
from lostflops.predict.graph.tasks import Because, LaneKind, TaskGraph, TaskKind
from lostflops.predict.whatif.change import Facts
from lostflops.predict.whatif.graph_edits.reductions import reductions, tensor_groups
from lostflops.predict.whatif.graph_edits.small_calls import small_calls

MIB = 1024 * 1024
BUCKETS = (25 * MIB, 25 * MIB, 10 * MIB)


def job(forward: list[tuple[str, int]], backward: list[tuple[str, int]], group: str = "g") -> TaskGraph:
    """Two ranks, two steps; each pass attends these collectives, as operation and bytes."""
    lanes, meetings, ends = [], {}, []
    for rank in (0, 1):
        host, comm = [], []
        for step in (0, 1):
            key = f"{rank}.{step}"
            host.append(T(f"begin{key}", kind=TaskKind.MARK, step=step))
            for phase, calls in ((FORWARD, forward), (BACKWARD, backward)):
                host.append(T(f"p{phase}.{key}", 100, kind=TaskKind.KERNEL, phase=phase, step=step))
                for at, (op, size) in enumerate(calls):
                    name = f"m{step}.{phase}.{at}"
                    meetings[name] = M(10, op=op, size=size, ranks=2, group=group)
                    comm.append(T(f"{name}.{rank}", kind=TaskKind.COMM, meets=name, phase=phase, step=step))
            host.append(T(f"end{key}", kind=TaskKind.MARK, step=step))
            ends.append((rank, step, f"begin{key}", f"end{key}"))
        lanes += [L(rank, LaneKind.HOST, host), L(rank, LaneKind.COMM_THREAD, comm)]
    return graph(lanes, [], meetings, ends)


def sizes(made: TaskGraph) -> list[int]:
    """Of what reduces gradients in one step."""
    found = np.sort(made.meetings.size[reductions(made)])
    return found[::2].tolist()


def reduced(*of: int) -> list[tuple[str, int]]:
    return [("all_reduce", size) for size in of]


@pytest.mark.parametrize(
    "forward",
    [
        pytest.param([], id="nothing forward"),
        pytest.param(reduced(4), id="a loss that is averaged over ranks"),
        pytest.param(reduced(262_144), id="the centre of a teacher"),
        pytest.param(reduced(*[8] * 40), id="many metrics"),
    ],
)
def test_buckets_reduce_gradients_whatever_few_values_are_reduced_forward(forward: list[tuple[str, int]]) -> None:
    made = job(forward, reduced(*BUCKETS))
    assert tensor_groups(made).size == 0
    assert sizes(made) == sorted(BUCKETS)


def test_statistics_of_batches_are_not_gradients() -> None:
    layers = (520, 1032, 2056)
    made = job(reduced(*layers), reduced(*(size - 8 for size in layers), *BUCKETS))
    assert sizes(made) == sorted(BUCKETS)


@pytest.mark.parametrize("op", ["all_reduce", "reduce_scatter"])
def test_activations_that_are_summed_in_both_passes_are_not_gradients(op: str) -> None:
    made = job([(op, MIB)] * 4, [(op, MIB)] * 4)
    assert tensor_groups(made).size == 1
    with pytest.raises(NotApplicable):
        reductions(made)


def test_without_sizes_calls_count() -> None:
    made = job(reduced(*[-1] * 8), reduced(*[-1] * 8))
    assert tensor_groups(made).size == 1


def test_sharded_gradients_are_reduced_where_only_parameters_are_gathered_forward() -> None:
    units = [("all_gather", MIB)] * 3
    made = job(units, [*units, *[("reduce_scatter", MIB)] * 3])
    assert sizes(made) == [MIB] * 3


def awaited(
    forward: list[tuple[str, int]], backward: list[tuple[str, int]], update: list[tuple[str, int]] | None = None
) -> list[tuple[str, int]]:
    """What `small_calls` finds among collectives that the host waits for at once, as operation and bytes."""
    lanes, edges, because, meetings, ends = [], [], [], {}, []
    for rank in (0, 1):
        host, comm = [T(f"begin{rank}", kind=TaskKind.MARK)], []
        for phase, calls in ((FORWARD, forward), (BACKWARD, backward), (OPTIMIZER, update or [])):
            host.append(T(f"p{phase}.{rank}", 100, kind=TaskKind.KERNEL, phase=phase))
            for at, (op, size) in enumerate(calls):
                name = f"m{phase}.{at}"
                key = f"{name}.{rank}"
                meetings[name] = M(10, op=op, size=size, ranks=2)
                host += [T(f"ask{key}", 1, phase=phase), T(f"wait{key}", kind=TaskKind.SYNC, phase=phase)]
                host.append(T(f"use{key}", 10, kind=TaskKind.KERNEL, phase=phase))
                comm.append(T(key, kind=TaskKind.COMM, meets=name, phase=phase))
                edges += [(f"ask{key}", key), (key, f"wait{key}")]
                because += [Because.THREAD, Because.SYNC]
        host.append(T(f"end{rank}", kind=TaskKind.MARK))
        ends.append((rank, 0, f"begin{rank}", f"end{rank}"))
        lanes += [L(rank, LaneKind.HOST, host), L(rank, LaneKind.COMM_THREAD, comm)]
    made = graph(lanes, edges, meetings, ends, because)
    try:
        rows = np.flatnonzero(small_calls(made, Facts(times=None)))
    except NotApplicable:
        return []
    return [(made.words[made.meetings.op[row]], int(made.meetings.size[row])) for row in rows.tolist()]


@pytest.mark.parametrize("call", [("all_reduce", 4), ("barrier", -1), ("all_gather", 8), ("broadcast", 1024)])
def test_metrics_flags_and_barriers_are_small_calls(call: tuple[str, int]) -> None:
    assert awaited([call], reduced(*BUCKETS)) == [call]


@pytest.mark.parametrize(
    ("forward", "backward"),
    [
        pytest.param([("all_to_all", 4096)], [("all_to_all", 4096)], id="tokens of experts"),
        pytest.param([("all_gather", 8192)], [("all_gather", 8192), ("reduce_scatter", 8192)], id="small FSDP units"),
        pytest.param(reduced(4096, 4096), reduced(4096, 4096), id="tensor parallel layers"),
        pytest.param(reduced(520, 1032), reduced(512, 1024, *BUCKETS), id="statistics of batches"),
    ],
)
def test_what_the_model_needs_is_not(forward: list[tuple[str, int]], backward: list[tuple[str, int]]) -> None:
    assert awaited(forward, backward) == []


def test_parameters_that_a_sharded_optimizer_sends_are_not_either() -> None:
    """ZeroRedundancyOptimizer broadcasts what each rank has updated; an average of a norm is still a small call."""
    assert awaited([], reduced(*BUCKETS), [("broadcast", 4096), ("broadcast", 512)]) == []
    assert awaited([], reduced(*BUCKETS), [("broadcast", 4096), ("all_reduce", 4)]) == [("all_reduce", 4)]
