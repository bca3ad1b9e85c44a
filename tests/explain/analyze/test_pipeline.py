"""The bubble of pipelines: synthetic clusters, hand-made passes, and recorded ones counted by hand."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lostflops.core.errors import UsageError
from lostflops.explain.analyze.pipeline import pipeline
from lostflops.ingest import ingest
from lostflops.store.run import Run
from lostflops.testing import Clock, Kernel, Model, Network, Straggler, SyntheticCluster
from lostflops.testing.program import microbatch_order
from memory_run import MemoryRun
from recorded_passes import PRIMUS, bytedance, primus
from shared_data import needs_traces

LONG_KERNELS = Model(layers=2, kernels=(Kernel(1_000_000, (1024, 512, 512)),), activation_bytes=2)
EVEN = SyntheticCluster(
    ranks=4,
    pipeline_parallel=4,
    microbatches=8,
    steps=2,
    noise=0.0,
    model=LONG_KERNELS,
    network=Network(alpha=1, inter_alpha=1),
)


def answer(folder, cluster: SyntheticCluster) -> dict[str, Any]:
    ingest(cluster.generate().traces.write(folder / "traces"), folder / "run", workers=1)
    with Run.open(folder / "run") as run:
        return pipeline(run).to_json()


def shares(found: dict[str, Any]) -> dict[str, float]:
    return {row["cause"]: row["share"] for row in found["causes"]}


@pytest.mark.parametrize("schedule", ["1f1b", "gpipe"])
@pytest.mark.parametrize(
    "shape",
    [{}, {"ranks": 8}, {"ranks": 8, "tensor_parallel": 2}, {"compute_streams": 2}, {"microbatches": 2}],
    ids=str,
)
@pytest.mark.few(3)
def test_an_even_cluster_has_the_inherent_bubble(tmp_path, schedule, shape):
    cluster = replace(EVEN, schedule=schedule, **shape)
    found = answer(tmp_path, cluster)
    bubble, batches = found["bubble"], cluster.microbatches
    assert bubble["inherent"] == 3 / (batches + 3)
    assert bubble["achieved"] == pytest.approx(bubble["inherent"], abs=1e-3)
    assert (bubble["schedule"], bubble["stages"], bubble["microbatches"], bubble["chunks"]) == (schedule, 4, batches, 1)
    assert bubble["warm_up"] + bubble["steady"] + bubble["drain"] == pytest.approx(bubble["achieved"])
    assert bubble["steady"] == pytest.approx(0, abs=1e-3)
    assert all(abs(share) < 1e-3 for share in shares(found).values())
    assert [row["ranks"] for row in found["stages"]] == [cluster.ranks // 4] * 4


def test_a_slow_stage(tmp_path):
    """Stage 3 takes 1.5 of 4.5 units: 8 rounds at its pace and three others once, 15 units for 8 x 4.5 / 4 of work."""
    found = answer(tmp_path, replace(EVEN, stragglers=(Straggler(3, "slow_kernels", factor=1.5),)))
    assert found["bubble"]["achieved"] == pytest.approx(1 - 9 / 15, abs=1e-3)
    assert shares(found) == {"uneven stages": pytest.approx(found["bubble"]["excess"], abs=1e-3)}
    assert found["causes"][0]["stage"] == 3
    assert found["stages"][3]["vs_mean"] == pytest.approx(1.5 / 1.125, abs=1e-3)
    assert found["verdict"].endswith(
        "27.3% is inherent to 1F1B with 4 stages and 8 microbatches; stage 3 takes 1.33 times the mean stage."
    )


def test_a_slow_rank_is_not_a_slow_stage(tmp_path):
    found = answer(tmp_path, replace(EVEN, ranks=8, stragglers=(Straggler(3, "slow_kernels", factor=1.5),)))
    assert shares(found) == {"uneven ranks": pytest.approx(found["bubble"]["excess"], abs=1e-3)}
    assert (found["causes"][0]["stage"], found["causes"][0]["rank"]) == (1, 3)
    assert "rank 3 is slower" in found["verdict"]


def test_slow_transfers(tmp_path):
    found = answer(tmp_path, replace(EVEN, network=Network(alpha=500_000)))
    assert found["bubble"]["excess"] > 0.05
    assert shares(found) == {"transfers and gaps": pytest.approx(found["bubble"]["excess"])}


def test_uneven_microbatches(tmp_path):
    found = answer(tmp_path, replace(EVEN, noise=0.2))
    assert max(shares(found), key=shares(found).get) == "uneven microbatches"
    assert sum(shares(found).values()) == pytest.approx(found["bubble"]["excess"], abs=2e-3)


def test_unrelated_clocks_do_not_change_the_bubble(tmp_path):
    apart = replace(EVEN, ranks_per_host=1, clocks={1: Clock(offset=10**9), 2: Clock(offset=-(10**8))})
    bubble, same = (answer(tmp_path / name, job)["bubble"] for name, job in (("apart", apart), ("same", EVEN)))
    assert bubble["achieved"] == pytest.approx(3 / 11, abs=1e-3)
    for part in ("warm_up", "steady", "drain"):
        assert bubble[part] == pytest.approx(same[part], abs=0.02)


def test_no_pipeline(tmp_path):
    found = answer(tmp_path, replace(EVEN, pipeline_parallel=1))
    assert found["verdict"].startswith("The bubble is unknown: no pipeline was found")
    assert set(found["bubble"].values()) == {None}
    assert found["causes"] == found["stages"] == []


def test_half_a_pipeline(tmp_path):
    ingest(EVEN.generate().traces.write(tmp_path / "traces")[:2], tmp_path / "run", workers=1)
    with Run.open(tmp_path / "run") as run:
        found = pipeline(run).to_json()
    assert found["bubble"]["achieved"] is None
    assert "every stage" in found["verdict"]


def by_hand(order_of: Any, stages: int, forward: int = 1000, backward: int = 2000) -> list[dict[str, Any]]:
    """Passes of a plain pipeline, each as early as it can be: the slow and obvious way."""
    orders = [order_of(stage) for stage in range(stages)]
    done: dict[tuple[str, int, int], int] = {}
    free, rows = [0] * stages, []
    while any(orders):
        for stage, order in enumerate(orders):
            if not order:
                continue
            phase, batch = order[0]
            before = ("F", stage - 1, batch) if phase == "F" else ("B", stage + 1, batch)
            if 0 <= before[1] < stages and before not in done:
                continue
            order.pop(0)
            start = max(free[stage], done.get(before, 0))
            free[stage] = done[phase, stage, batch] = start + (forward if phase == "F" else backward)
            direction = "forward" if phase == "F" else "backward"
            times = {"start": start, "stop": free[stage]}
            rows.append(
                {"rank": stage, "step": 1, "microbatch": batch, "stage": stage, "direction": direction, **times}
            )
    return rows


def of_passes(rows: list[dict[str, Any]], **arguments: Any) -> dict[str, Any]:
    ranks = [{"rank": rank} for rank in sorted({row["rank"] for row in rows})]
    with MemoryRun(ranks=ranks, passes=rows) as run:
        return pipeline(run, **arguments).to_json()


@settings(deadline=None, max_examples=15)
@given(st.sampled_from(["1f1b", "gpipe"]), st.integers(2, 5), st.integers(1, 6), st.integers(1, 3))
def test_every_plain_schedule_has_its_inherent_bubble(schedule, stages, batches, backward):
    rows = by_hand(lambda s: microbatch_order(schedule, s, stages, batches), stages, 1000, 1000 * backward)
    found = of_passes(rows)
    assert found["bubble"]["achieved"] == pytest.approx((stages - 1) / (batches + stages - 1))
    assert found["causes"] == []
    assert found["bubble"]["schedule"] == (schedule if batches > 1 else "1f1b")


def test_an_unknown_order_has_no_inherent_bubble():
    """Two forwards, then two backwards, and again."""
    order = [("F", 0), ("F", 1), ("B", 0), ("B", 1), ("F", 2), ("F", 3), ("B", 2), ("B", 3)]
    found = of_passes(by_hand(lambda _: list(order), 2))
    assert found["bubble"]["schedule"] == "other"
    assert found["bubble"]["inherent"] is found["bubble"]["excess"] is None
    assert found["bubble"]["achieved"] == pytest.approx(1 - 12 / 18)
    assert found["causes"] == []
    assert "the inherent bubble is unknown" in found["verdict"]


def test_offsets_of_clocks_are_applied():
    rows = by_hand(lambda stage: microbatch_order("1f1b", stage, 2, 4), 2)
    late = [row | {name: row[name] + 10**9 * row["rank"] for name in ("start", "stop")} for row in rows]
    clocks = [{"rank": 0, "correction": 0}, {"rank": 1, "correction": -(10**9)}]
    with MemoryRun(ranks=[{"rank": 0}, {"rank": 1}], passes=late, clocks=clocks) as run:
        assert pipeline(run).to_json()["bubble"] == of_passes(rows)["bubble"]
    assert of_passes(late)["bubble"]["warm_up"] is None


def test_clocks_that_count_from_different_origins():
    """Hosts that were started years apart: passes of a rank take as long as before."""
    once = by_hand(lambda stage: microbatch_order("1f1b", stage, 4, 4), 4)
    years = 10**17
    rows = [
        row | {"step": step, "start": at + row["start"], "stop": at + row["stop"]}
        for step in range(60)
        for row in once
        for at in [step * 100_000 + row["rank"] % 2 * years]
    ]
    found = of_passes(sorted(rows, key=lambda row: row["rank"]))["stages"]
    assert [row["forward_ns"] for row in found] == pytest.approx([1000] * 4, abs=32)
    assert [row["backward_ns"] for row in found] == pytest.approx([2000] * 4, abs=32)


def test_a_mesh_that_contradicts_the_passes_is_refused():
    rows = by_hand(lambda stage: microbatch_order("1f1b", stage, 4, 4), 4)
    assert of_passes(rows, mesh={"pp": 4})["bubble"]["stages"] == 4
    with pytest.raises(UsageError, match="2 stages, but passes of 4 stages are recorded"):
        of_passes(rows, mesh={"dp": 2, "pp": 2})


def counted_by_hand(name: str, steps: range) -> float:
    """The bubble straight from the files."""
    idle = whole = 0.0
    ranks = [json.loads((PRIMUS / name / f"pp_rank_{rank}.json").read_text()) for rank in range(8)]
    for step in steps:
        recorded = [rank[str(step)] for rank in ranks]
        span = max(max(r["bwd_end"]) for r in recorded) - min(min(r["fwd_start"]) for r in recorded)
        for one in recorded:
            busy = sum(np.sum(one[f"{key}_end"]) - np.sum(one[f"{key}_start"]) for key in ("fwd", "bwd"))
            idle, whole = idle + span - busy, whole + span
    return idle / whole


@needs_traces
@pytest.mark.parametrize(
    ("name", "schedule", "chunks", "inherent"), [("pp8", "1f1b", 1, 7 / 23), ("pp8_vpp2", "interleaved", 2, 7 / 39)]
)
def test_primus(name, schedule, chunks, inherent):
    found = of_passes(primus(name, range(1, 4)))
    bubble = found["bubble"]
    assert (bubble["schedule"], bubble["chunks"], bubble["microbatches"]) == (schedule, chunks, 16)
    assert bubble["inherent"] == inherent
    assert bubble["achieved"] == pytest.approx(counted_by_hand(name, range(2, 4)), abs=1e-4)
    assert any(note.startswith("Step 1 is left out: it takes") for note in found["notes"])
    assert found["causes"][0]["cause"] == "uneven stages"
    assert found["causes"][0]["stage"] == 7
    assert sum(shares(found).values()) == pytest.approx(bubble["excess"], abs=2e-3)


@needs_traces
def test_interleaving_shrinks_the_bubble():
    plain, interleaved = (of_passes(primus(name, range(3, 4)))["bubble"] for name in ("pp8", "pp8_vpp2"))
    assert plain["achieved"] > interleaved["achieved"] + 0.05


@needs_traces
def test_the_last_stage_is_too_long():
    found = of_passes(bytedance("ST", steps=6, pipelines=2))
    assert (found["bubble"]["stages"], found["bubble"]["microbatches"]) == (4, 4)
    assert found["causes"][0]["cause"] == "uneven stages"
    assert found["causes"][0]["stage"] == 3
    assert found["causes"][0]["share"] > 0.9 * found["bubble"]["excess"]
    assert "stage 3 takes 1.4" in found["verdict"]


@needs_traces
def test_uneven_sequences():
    """A long last stage, and microbatches that differ: within a pipeline and, more so, between pipelines."""
    found = of_passes(bytedance("SE", steps=3, pipelines=8))
    assert (found["bubble"]["stages"], found["bubble"]["microbatches"]) == (2, 8)
    assert found["causes"][0]["stage"] == 1
    assert shares(found)["uneven microbatches"] > 0.01
    assert found["bubble"]["between_pipelines"] > 0.05
    even = of_passes(bytedance("ST", steps=3, pipelines=2))
    assert even["bubble"]["between_pipelines"] < 0.01


def in_both_directions(stages: int, batches: int, *, in_v: bool) -> list[dict[str, Any]]:
    """Forwards of chunk 1 go from the last stage to the first: at once, or after those of chunk 0 if `in_v`; backwards
    follow when all forwards are done."""
    rows, whole = [], (2 * batches + 2 * stages) * 1000
    for stage in range(stages):
        for chunk in (0, 1):
            place = stages - 1 - stage if chunk else stage
            for batch in range(batches):
                start = (place + 2 * batch) * 1000 + chunk * ((stages + 2) * 1000 if in_v else stages * 1000 - 3500)
                for direction, at in (("forward", start), ("backward", 3 * whole - start)):
                    times = {"start": at, "stop": at + 400}
                    row = {"rank": stage, "step": 1, "microbatch": batch, "stage": stage, "chunk": chunk, **times}
                    rows.append(row | {"direction": direction})
    return rows


def test_chunks_that_run_in_both_directions_are_dualpipe_and_not_interleaved():
    found = of_passes(in_both_directions(4, 4, in_v=False))
    assert found["bubble"]["schedule"] == "dualpipe"
    assert found["bubble"]["inherent"] is None
    assert found["bubble"]["warm_up"] is not None, "clocks agree in both directions"
    assert "its schedule is DualPipe with 4 stages and 4 microbatches" in found["verdict"]
    assert of_passes(in_both_directions(4, 4, in_v=True))["bubble"]["schedule"] != "dualpipe"
