"""The picture of a pipeline's schedule: what is drawn is what was recorded, and its bubbles are those that are told."""

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lostflops.account.align import pass_spans
from lostflops.explain.analyze.pipeline import pipeline
from lostflops.ingest import ingest
from lostflops.store.run import Run
from lostflops.testing import Kernel, Model, Network, SyntheticCluster
from lostflops.testing.program import microbatch_order
from memory_run import MemoryRun

ONE_STEP = 1_000_000


def passes(stages: int, batches: int, steps: int = 1, pipelines: int = 1) -> list[dict[str, Any]]:
    """1F1B with forwards of 1000 and backwards of 2000 ns, each as early as it can be."""
    rows = []
    orders = [microbatch_order("1f1b", stage, stages, batches) for stage in range(stages)]
    done: dict[tuple[str, int, int], int] = {}
    free = [0] * stages
    while any(orders):
        for stage, order in enumerate(orders):
            if not order:
                continue
            phase, batch = order[0]
            before = (phase, stage + (-1 if phase == "F" else 1), batch)
            if 0 <= before[1] < stages and before not in done:
                continue
            order.pop(0)
            start = max(free[stage], done.get(before, 0))
            free[stage] = done[phase, stage, batch] = start + (1000 if phase == "F" else 2000)
            rows.append((stage, batch, "forward" if phase == "F" else "backward", start, free[stage]))
    return [
        {
            "rank": copy * stages + stage,
            "step": step,
            "microbatch": batch,
            "stage": stage,
            "direction": direction,
            "start": start + step * ONE_STEP,
            "stop": stop + step * ONE_STEP,
        }
        for copy in range(pipelines)
        for step in range(steps)
        for stage, batch, direction, start, stop in rows
    ]


def answer(rows: list[dict[str, Any]]) -> dict[str, Any]:
    with MemoryRun(ranks=[{"rank": rank} for rank in sorted({row["rank"] for row in rows})], passes=rows) as run:
        return pipeline(run).to_json()


def test_two_stages_and_two_microbatches():
    drawn = answer(passes(2, 2))["schedule"]
    assert drawn["rows"] == ["stage 0, rank 0", "stage 1, rank 1"]
    assert [tuple(span.values()) for span in drawn["spans"]] == [
        (0, 0, 1000, "forward", "forward 0"),
        (0, 1000, 2000, "forward", "forward 1"),
        (0, 2000, 4000, "idle.bubble", "bubble"),
        (0, 4000, 6000, "backward", "backward 0"),
        (0, 6000, 7000, "idle.bubble", "bubble"),
        (0, 7000, 9000, "backward", "backward 1"),
        (1, 0, 1000, "idle.bubble", "bubble"),
        (1, 1000, 2000, "forward", "forward 0"),
        (1, 2000, 4000, "backward", "backward 0"),
        (1, 4000, 5000, "forward", "forward 1"),
        (1, 5000, 7000, "backward", "backward 1"),
        (1, 7000, 9000, "idle.bubble", "bubble"),
    ]
    assert (drawn["start_ns"], drawn["stop_ns"], drawn["left_out"]) == (0, 9000, 0)


@settings(deadline=None, max_examples=20)
@given(st.integers(2, 5), st.integers(1, 6), st.integers(1, 2), st.integers(1, 3))
def test_rows_are_full_and_bubbles_are_those_of_the_answer(stages, batches, steps, pipelines):
    found = answer(passes(stages, batches, steps, pipelines))
    spans, whole = found["schedule"]["spans"], found["bubble"]["achieved"]
    taken = {kind: sum(one["stop"] - one["start"] for one in spans if one["kind"] == kind) for kind in KINDS}
    assert taken["idle.bubble"] / sum(taken.values()) == pytest.approx(whole)
    for row in range(len(found["schedule"]["rows"])):
        own = [one for one in spans if one["row"] == row]
        ends = [(before["stop"], after["start"]) for before, after in pairwise(own)]
        assert sum(before != after for before, after in ends) == steps - 1  # between two steps only


KINDS = ("forward", "backward", "idle.bubble")


def test_only_whole_pipelines_are_drawn_and_the_rest_is_counted(monkeypatch):
    monkeypatch.setattr(pass_spans, "MOST_PASSES", 20)
    drawn = answer(passes(2, 2, steps=3, pipelines=3))["schedule"]
    assert drawn["rows"] == ["stage 0, rank 0", "stage 1, rank 1", "stage 0, rank 2", "stage 1, rank 3"]
    assert sum(span["kind"] != "idle.bubble" for span in drawn["spans"]) == 16
    assert drawn["left_out"] == 3 * 3 * 8 - 16


def test_stages_on_unrelated_clocks_are_not_drawn():
    rows = [row | {name: row[name] + 10**9 * row["rank"] for name in ("start", "stop")} for row in passes(2, 2)]
    assert answer(rows)["schedule"]["spans"] == []


def test_a_profiled_pipeline_is_drawn_with_its_bubble(tmp_path):
    cluster = SyntheticCluster(
        ranks=4,
        pipeline_parallel=4,
        microbatches=8,
        steps=2,
        noise=0.0,
        model=Model(layers=2, kernels=(Kernel(1_000_000, (1024, 512, 512)),), activation_bytes=2),
        network=Network(alpha=1, inter_alpha=1),
    )
    ingest(cluster.generate().traces.write(tmp_path / "traces"), tmp_path / "run", workers=1)
    with Run.open(tmp_path / "run") as run:
        found = pipeline(run).to_json()
    spans = found["schedule"]["spans"]
    idle = sum(one["stop"] - one["start"] for one in spans if one["kind"] == "idle.bubble")
    assert idle / sum(one["stop"] - one["start"] for one in spans) == pytest.approx(3 / 11, abs=1e-3)
    assert [one["name"] for one in spans if one["row"] == 3 and one["kind"] != "idle.bubble"][:4] == [
        "forward 0",
        "backward 0",
        "forward 1",
        "backward 1",
    ]
