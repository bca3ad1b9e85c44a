"""What is said of the critical path of a graph made by hand: rank 1 computes longest, then data moves."""

from __future__ import annotations

import pytest
from tests.predict.graph.tiny import L, M, T, graph

from lostflops.core.errors import UsageError
from lostflops.predict.graph.critical import critical_of
from lostflops.predict.graph.replay import replay
from lostflops.predict.graph.tasks import Because, LaneKind, TaskKind


def kernel(name, duration, step, gap=0):
    return T(name, duration, gap, TaskKind.KERNEL, line="compute", step=step)


def comm(name, meets, step):
    return T(name, 0, 0, TaskKind.COMM, meets, line="comm.transfer", step=step)


@pytest.fixture(scope="module")
def done():
    """Rank 0 computes 10, rank 1 30, the transfer takes 7; then rank 0 needs 9 more, after a call of its host."""
    lanes = []
    for rank, long in ((0, 10), (1, 30)):
        tasks = []
        for step in (4, 5):
            tasks += [kernel(f"a{rank}.{step}", long, step), comm(f"x{rank}.{step}", f"x{step}", step)]
            tasks += [kernel(f"b{rank}.{step}", 9 if rank == 0 else 1, step)]
        lanes.append(L(rank, LaneKind.STREAM, tasks))
    lanes.append(L(0, LaneKind.HOST, [T("launch", 2, 0, TaskKind.LAUNCH, step=5)]))
    made = graph(
        lanes,
        [("x0.5", "launch", 3), ("launch", "b0.5", 1)],
        {"x4": M(7), "x5": M(7)},
        [(rank, step, "", "") for rank in (0, 1) for step in (4, 5)],
        because=Because.LAUNCH,
    )
    return replay(made)


def test_lines_ranks_and_tasks_of_all_steps(done):
    told = critical_of(done).to_json()
    assert told["schema"] == "lostflops.path/1"
    # Step 4 is 30 + 7 + 9 on rank 0; step 5 begins on rank 0 at 46, where rank 1 has begun at 38.
    assert done.step_edges[1].max() == 68 + 7 + 3 + 2 + 1 + 9
    assert told["lines"]["total_ns"] == 46 + 44
    assert {line["line"]: line["ns"] for line in told["lines"]["lines"]} == {
        "compute": 30 + 9 + 22 + 9,
        "comm.transfer": 14,
        "host.dispatch": 6,
    }
    assert told["path"]["rank_changes"] == 1
    (second, first) = sorted(told["ranks"], key=lambda row: row["rank"], reverse=True)
    assert (second["own_ns"], second["last_arrivals"]) == (26, 2)
    assert (first["own_ns"], first["collective_ns"]) == (12, 7)
    assert sum(row["ns"] for row in told["tasks"]) == told["path"]["step_ns"]
    assert told["tasks"][0] == {
        "kind": "kernel",
        "short": "a1.4",
        "name": "a1.4",
        "ns": 15,
        "share": 30 / 90,
        "count": 0.5,
    }
    assert ("pause", "launch latency") in [(row["kind"], row["name"]) for row in told["tasks"]]
    assert told["verdict"] == (
        "The critical path is 77.8% compute and 15.6% comm.transfer; rank 1 accounts for 57.8% of it outside "
        "collectives, and other ranks wait for it 2 times."
    )


def test_one_step_and_its_stretches_in_order(done):
    told = critical_of(done, step=4).to_json()
    assert told["path"]["step_ns"] == 46
    assert [(row["start_ns"], row["ns"], row["rank"], row["line"], row["led"]) for row in told["stretches"]] == [
        (0, 30, 1, "compute", "origin"),
        (30, 7, 0, "comm.transfer", "meeting"),
        (37, 9, 0, "compute", "lane"),
    ]
    assert "Only step 4 is shown." in told["notes"]


def test_the_top_leaves_out_and_counts(done):
    told = critical_of(done, top=1)
    tasks, stretches = told.blocks[-2:]
    assert len(tasks.rows) == len(stretches.rows) == 1
    assert tasks.left_out == 7


def test_a_step_that_was_not_recorded(done):
    with pytest.raises(UsageError, match="step 9 was not recorded; recorded steps: 4 to 5"):
        critical_of(done, step=9)


LONG = "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<" + "at::native::AdamFunctor, " * 20 + ">"


@pytest.fixture(scope="module")
def alone():
    """Three ranks that meet nobody: two end the step at 1000 and 995, the third long before."""
    lanes = [
        L(rank, LaneKind.STREAM, [kernel(LONG if rank == 0 else str(rank), long, 0)])
        for rank, long in ((0, 1000), (1, 995), (2, 400))
    ]
    return replay(graph(lanes, [], {}, [(rank, 0, "", "") for rank in range(3)]))


def test_ranks_that_are_as_late_are_noted(alone, done):
    (note,) = [one for one in critical_of(alone).notes if "delay the step just as much" in one]
    assert note.startswith("In 1 of 1 step, other ranks finish within 1.0%")
    assert not any("just as much" in one for one in critical_of(done).notes)


def test_names_fit_a_column_and_ranks_that_hold_nothing_are_not_shown(alone):
    told = critical_of(alone)
    for block in told.to_json()["tasks"], told.to_json()["stretches"]:
        assert block[0]["name"] == LONG
        assert len(block[0]["short"]) <= 40
    (ranks,) = [block for block in told.blocks if block.name == "ranks"]
    assert (len(ranks.rows), ranks.most_shown) == (3, 1)
