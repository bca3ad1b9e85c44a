"""Which collectives reduce gradients, by what groups move in both passes."""

from __future__ import annotations

import numpy as np
import pytest
from tests.graph.tiny import L, M, T, graph

from lostflops.graph.tasks import Kind, LaneKind, TaskGraph
from lostflops.ledger.phases import BACKWARD, FORWARD
from lostflops.predict.change import NotApplicable
from lostflops.predict.edits.reductions import reductions, tensor_groups

MIB = 1024 * 1024
BUCKETS = (25 * MIB, 25 * MIB, 10 * MIB)


def job(forward: list[tuple[str, int]], backward: list[tuple[str, int]], group: str = "g") -> TaskGraph:
    """Two ranks, two steps; each pass attends these collectives, as operation and bytes."""
    lanes, meetings, ends = [], {}, []
    for rank in (0, 1):
        host, comm = [], []
        for step in (0, 1):
            key = f"{rank}.{step}"
            host.append(T(f"begin{key}", kind=Kind.MARK, step=step))
            for phase, calls in ((FORWARD, forward), (BACKWARD, backward)):
                host.append(T(f"p{phase}.{key}", 100, kind=Kind.KERNEL, phase=phase, step=step))
                for at, (op, size) in enumerate(calls):
                    name = f"m{step}.{phase}.{at}"
                    meetings[name] = M(10, op=op, size=size, ranks=2, group=group)
                    comm.append(T(f"{name}.{rank}", kind=Kind.COMM, meets=name, phase=phase, step=step))
            host.append(T(f"end{key}", kind=Kind.MARK, step=step))
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
