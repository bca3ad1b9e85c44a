"""The mesh of a job: from names, from traffic alone, from what the user says."""

import re
import time
import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.integration.real_runs import real_runs

from lostflops.account.align import mesh_traffic
from lostflops.account.align.mesh import Mesh, parse, recognise
from lostflops.account.align.mesh_tiling import tile_with_experts
from lostflops.account.facts.mesh_names import kinds_of
from lostflops.core.errors import BrokenRun, UsageError
from lostflops.ingest import ingest
from lostflops.ingest.common.group_ids import group_id
from lostflops.store.run import Run
from lostflops.testing import Model, SyntheticCluster
from lostflops.testing.topology import layout
from memory_run import MemoryRun
from shared_data import TRACES, needs_traces

SHAPES = [(1, 4, 1), (4, 1, 1), (1, 1, 4), (2, 2, 1), (2, 1, 2), (1, 2, 2), (2, 2, 2), (4, 2, 2), (2, 3, 4), (1, 3, 5)]
"""Tensor, data, pipeline."""


def expected(tensor: int, data: int, pipeline: int) -> tuple[tuple[str, int], ...]:
    return tuple((kind, size) for kind, size in (("tp", tensor), ("dp", data), ("pp", pipeline)) if size > 1)


def check_places(mesh: Mesh, tensor: int, data: int, pipeline: int) -> None:
    world = tensor * data * pipeline
    assert (mesh.dimensions, mesh.ranks) == (expected(tensor, data, pipeline), range(world))
    for rank, place in enumerate(layout(world, tensor, pipeline).places):
        assert mesh.stage(rank) == place.stage
        for kind, group in (("tp", place.tensor), ("dp", place.data), ("pp", place.pipeline)):
            assert group is None or mesh.dimension_of(group.ranks) == kind
        if place.data is not None:
            assert mesh.cohort(rank) == place.data.ranks
        elif place.tensor is not None:
            assert mesh.cohort(rank) == place.tensor.ranks


@pytest.mark.parametrize("named", [True, False], ids=["named", "unnamed"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.few(4)
def test_synthetic_clusters(tmp_path, shape, named):
    tensor, data, pipeline = shape
    cluster = SyntheticCluster(
        ranks=tensor * data * pipeline,
        ranks_per_host=3,
        steps=1,
        tensor_parallel=tensor,
        pipeline_parallel=pipeline,
        microbatches=2,
        model=Model(layers=4),
    )
    traces = cluster.generate().traces.write(tmp_path / "traces")
    for path in () if named else traces:
        path.write_text(re.sub(r'"mesh_\w+"', '"undefined"', path.read_text()))
    ingest(traces, tmp_path / "run", workers=1)
    with Run.open(tmp_path / "run") as run:
        mesh = recognise(run)
    check_places(mesh, *shape)
    assert mesh.source == ("group names" if named and shape != (1, 4, 1) else "traffic")


def job(tensor: int, data: int, pipeline: int, *, names: bool, recorded: Any = None) -> MemoryRun:
    """Groups, and one step of traffic: 16 tensor, 3 data and 4 pipeline calls per rank."""
    world = tensor * data * pipeline
    topology = layout(world, tensor, pipeline)
    groups, calls, ranks = [], [], []
    for rank in recorded or range(world):
        ranks.append({"rank": rank, "world_size": world})
        for group in topology.groups_of(rank):
            called = {"description": group.description if names else None, "size": len(group.ranks)}
            groups.append({"group_id": group_id(group.name, group.ranks), "rank": rank, **called})
        place = topology.places[rank]
        call = {"rank": rank, "step": 1, "op": "all_reduce", "bytes_in": 8}
        for group, count in ((place.tensor, 16), (place.data, 3)):
            if group is not None:
                known = call | {"group_id": group_id(group.name, group.ranks)}
                calls += [known | {"start": number, "stop": number} for number in range(count)]
        if place.pipeline is not None:
            known = call | {"group_id": group_id(place.pipeline.name, place.pipeline.ranks)}
            for peer in {place.stage - 1, place.stage + 1} & set(range(pipeline)):
                ops = ("send", "recv") if peer > place.stage else ("recv", "send")
                other = {"peer": place.pipeline.ranks[peer]}
                calls += [known | other | {"op": op, "start": 0, "stop": stop} for stop, op in enumerate(ops)]
    first = ranks[0]["rank"]
    kernels = [{"rank": first, "step": 1, "kind": "kernel", "start": number, "dur": 1} for number in range(32)]
    return MemoryRun(ranks=ranks, groups=groups, collectives=calls, events=kernels)


sizes = st.integers(1, 4)


@settings(deadline=None, max_examples=12)
@given(sizes, sizes, sizes, st.booleans())
def test_every_shape(tensor, data, pipeline, names):
    with job(tensor, data, pipeline, names=names) as run:
        mesh = recognise(run)
    if tensor == data == pipeline == 1:
        assert (mesh.dimensions, mesh.source, len(mesh.ranks)) == ((), "none", 1)
    else:
        check_places(mesh, tensor, data, pipeline)


@settings(deadline=None, max_examples=20)
@given(st.data())
def test_one_rank_tells_of_all(data):
    """Groups list their members whether or not those were ingested."""
    shape = data.draw(st.tuples(st.integers(2, 3), st.integers(2, 3), st.integers(2, 3)))
    rank = data.draw(st.integers(0, np.prod(shape) - 1))
    with job(*shape, names=data.draw(st.booleans()), recorded=[rank]) as run:
        mesh = recognise(run)
    assert (mesh.dimensions, len(mesh.ranks)) == (expected(*shape), np.prod(shape))


def described(world: int, *groups: tuple[str, list[int] | range]) -> MemoryRun:
    rows = [
        {"group_id": group_id(str(number), ranks), "rank": rank, "size": len(ranks), "description": text}
        for number, (text, ranks) in enumerate(groups)
        for rank in ranks
    ]
    return MemoryRun(ranks=[{"rank": rank, "world_size": world} for rank in range(world)], groups=rows)


def test_experts_take_their_part_of_data_parallelism():
    groups = [("DATA_PARALLEL_GROUP", range(8))]
    groups += [("EXPERT_MODEL_PARALLEL_GROUP", range(first, first + 4)) for first in (0, 4)]
    groups += [("EXPERT_DATA_PARALLEL_GROUP", range(first, 8, 4)) for first in range(4)]
    with described(8, *groups) as run:
        mesh = recognise(run)
    assert mesh.dimensions == (("ep", 4), ("dp", 2))
    assert mesh.cohort(1) == (1, 5)
    assert mesh.dimension_of(range(8)) == "ep+dp"


def test_sharding_and_replication():
    groups = [("mesh_dp_shard", range(first, first + 4)) for first in (0, 4)]
    groups += [("mesh_dp_replicate", range(first, 8, 4)) for first in range(4)]
    with described(8, *groups, ("mesh_dp", range(8))) as run:
        mesh = recognise(run)
    assert mesh.dimensions == (("dp_shard", 4), ("dp_replicate", 2))
    assert mesh.cohort(5) == tuple(range(8))


def test_context_beside_data():
    groups = [("CONTEXT_PARALLEL_GROUP", range(first, first + 2)) for first in (0, 2, 4, 6)]
    groups += [("DATA_PARALLEL_GROUP", range(first, first + 3, 2)) for first in (0, 1, 4, 5)]
    groups += [("DATA_PARALLEL_GROUP_WITH_CP", range(first, first + 4)) for first in (0, 4)]
    groups += [("PIPELINE_MODEL_PARALLEL_GROUP", range(first, 8, 4)) for first in range(4)]
    groups += [("MODEL_PARALLEL_GROUP", range(first, 8, 4)) for first in range(4)]
    with described(8, *groups) as run:
        mesh = recognise(run)
    assert mesh.dimensions == (("cp", 2), ("dp", 2), ("pp", 2))
    assert (mesh.dimension_of(range(4)), mesh.dimension_of([0, 1, 2]), mesh.dimension_of([0, 3])) == (
        "cp+dp",
        None,
        None,
    )
    assert mesh.cohort(6) == (4, 5, 6, 7)


def test_evidence_that_does_not_tile_is_left_out_and_noted():
    groups = [("tp", range(first, first + 2)) for first in (0, 2, 4, 6)]
    groups += [("tp", range(first, first + 3)) for first in (0, 3)]
    groups += [("pp", range(first, 8, 4)) for first in range(4)]
    with described(8, *groups) as run:
        mesh = recognise(run)
    assert mesh.dimensions == (("tp", 2), ("dp", 2), ("pp", 2))
    assert any("2 shapes" in note for note in mesh.notes)
    assert any("assumed to be dp" in note for note in mesh.notes)


def test_sharded_within_a_host_and_replicated_across():
    calls = []
    for rank in range(8):
        low = rank - rank % 4
        inner, outer = group_id("1", range(low, low + 4)), group_id("2", [rank % 4, rank % 4 + 4])
        call = {"rank": rank, "step": 1, "start": 0, "stop": 1}
        for _ in range(3):
            calls.append(call | {"group_id": inner, "op": "all_gather", "bytes_in": 10, "bytes_out": 40})
            calls.append(call | {"group_id": inner, "op": "reduce_scatter", "bytes_in": 40, "bytes_out": 10})
            calls.append(call | {"group_id": outer, "op": "all_reduce", "bytes_in": 10, "bytes_out": 10})
    with MemoryRun(ranks=[{"rank": rank, "world_size": 8} for rank in range(8)], collectives=calls) as run:
        assert recognise(run).dimensions == (("dp_shard", 4), ("dp_replicate", 2))


def transfers(pairs: list[tuple[int, int]], world: int, group: str) -> MemoryRun:
    """Each pair sends forward, then back; both ends are recorded."""
    calls = []
    for first, second in pairs:
        for rank, peer, ops in ((first, second, ("send", "recv")), (second, first, ("recv", "send"))):
            for stop, op in enumerate(ops):
                calls.append(
                    {"rank": rank, "peer": peer, "op": op, "stop": stop, "start": 0, "step": 1, "group_id": group}
                )
    return MemoryRun(ranks=[{"rank": rank, "world_size": world} for rank in range(world)], collectives=calls)


def test_stages_follow_the_activations():
    with transfers([(3, 2), (2, 1), (1, 0)], 4, "1@0-3") as run:
        mesh = recognise(run)
    assert [mesh.stage(rank) for rank in range(4)] == [3, 2, 1, 0]
    with transfers([(0, 2), (2, 1), (1, 3)], 4, "1@0-3") as run:
        assert [recognise(run).stage(rank) for rank in range(4)] == [0, 2, 1, 3]
    with transfers([(0, 1), (1, 2), (2, 3), (3, 0)], 4, "1@0-3") as run:
        mesh = recognise(run)
    assert [mesh.stage(rank) for rank in range(4)] == [0, 1, 2, 3], "an interleaved schedule is a ring"


def test_transfers_in_the_world_group_tell_how_far_stages_are_apart():
    with transfers([(0, 2), (1, 3), (2, 4), (3, 5)], 6, "0@0-5") as run:
        assert recognise(run).dimensions == (("dp", 2), ("pp", 3))


def test_passes_tell_stages():
    """Every other rank was recorded; the n-th ranks of the stages form a pipeline."""
    stages = {0: 0, 2: 0, 4: 1, 6: 1, 8: 2, 10: 2}
    rows = [{"rank": rank, "stage": stage, "step": 1} for rank, stage in stages.items()]
    ranks = [{"rank": rank} for rank in stages]
    with MemoryRun(ranks=ranks, passes=rows) as run:
        mesh = recognise(run)
    assert (mesh.dimensions, mesh.source) == ((("dp", 2), ("pp", 3)), "passes")
    assert {rank: mesh.stage(rank) for rank in stages} == stages
    assert (mesh.dimension_of([2, 6, 10]), mesh.dimension_of([0, 2]), mesh.cohort(6)) == ("pp", "dp", (4, 6))
    with MemoryRun(ranks=ranks, passes=rows[:5]) as run:
        assert recognise(run).source == "none"


def test_without_evidence_all_are_replicas():
    with MemoryRun(ranks=[{"rank": rank} for rank in (0, 34)]) as run:
        mesh = recognise(run)
    assert (mesh.dimensions, mesh.ranks, mesh.source) == ((("dp", 2),), (0, 34), "none")
    assert mesh.notes
    assert mesh.cohort(34) == (0, 34)


def test_the_cost_of_a_mesh_does_not_grow_with_the_stated_world():
    """Two ranks were recorded of a job of a million: places are computed for these two alone."""
    ids = {"tp": "a@0-1", "dp": "b@0-999998/2"}
    groups = [{"rank": 0, "group_id": one, "size": 2, "description": name} for name, one in ids.items()]
    ranks = [{"rank": rank, "world_size": 1_000_000} for rank in (0, 7)]
    with MemoryRun(ranks=ranks, groups=groups) as run:
        tracemalloc.start()
        mesh = recognise(run)
        peers = (mesh.cohort(7, (0, 7)), mesh.cohorts((0, 1, 7)), mesh.places_of([7]).tolist())
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert (mesh.dimensions, len(mesh.ranks)) == ((("tp", 2), ("dp", 500_000)), 1_000_000)
    assert peers == ((7,), {0: (0,), 1: (1, 7), 7: (1, 7)}, [[1, 3]])
    assert peak < 4_000_000  # a number for each rank takes twice as much


@pytest.mark.parametrize("rows", [{"rank": 0, "world_size": 2_100_000_000}, {"rank": 2_000_000_000}])
def test_a_run_that_states_too_many_ranks_is_refused(rows: dict[str, Any]) -> None:
    with MemoryRun(ranks=[rows]) as run, pytest.raises(BrokenRun, match="accepts up to 1,000,000"):
        recognise(run)


def test_a_group_id_that_lists_too_many_ranks_is_not_followed():
    groups = [{"rank": 0, "group_id": "a@0-2000000000", "size": 2}]
    with MemoryRun(ranks=[{"rank": 0}, {"rank": 1}], groups=groups) as run:
        assert recognise(run).ranks == (0, 1)


def test_stages_are_not_counted_up_to_a_stated_number():
    rows = [{"rank": rank, "stage": stage} for rank, stage in ((0, 0), (1, 2_000_000_000))]
    with MemoryRun(ranks=[{"rank": 0}, {"rank": 1}], passes=rows) as run:
        assert recognise(run).source == "none"


def test_what_the_user_says_comes_first():
    with job(2, 2, 2, names=True) as run:
        mesh = recognise(run, parse("dp=4,pp=2"))
        assert (mesh.dimensions, mesh.source) == ((("dp", 4), ("pp", 2)), "given")
        assert mesh.cohort(1) == (0, 1, 2, 3)
        assert recognise(run, parse("tp=1,dp=8")).dimensions == (("dp", 8),)
        with pytest.raises(UsageError, match="4 places, but the job has 8 ranks"):
            recognise(run, parse("tp=2,pp=2"))
        with pytest.raises(UsageError, match="no rank 8"):
            mesh.stage(8)


@pytest.mark.parametrize("text", ["", "tp", "tp=0", "tp=2,", "tp=2,tp=2", "zz=2", "tp=-1", "tp=x", "tp=²", "tp=2;pp=4"])
def test_nonsense_is_refused_with_what_to_write(text):
    with pytest.raises(UsageError, match="tp=2,dp=2,pp=4"):
        parse(text)


@pytest.mark.parametrize(
    ("description", "kinds"),
    [
        ("PIPELINE_MODEL_PARALLEL_GROUP", {"pp"}),
        ("TENSOR_AND_DATA_PARALLEL_GROUP_WITH_CP", {"tp", "dp", "cp"}),
        ("EXPERT_MODEL_PARALLEL_GROUP", {"ep"}),
        ("EXPERT_TENSOR_AND_MODEL_PARALLEL_GROUP", {"ep", "etp"}),
        ("EXPERT_TENSOR_PARALLEL_GROUP", {"etp"}),
        ("EXPERT_TENSOR_MODEL_PIPELINE_PARALLEL_GROUP", {"ep", "etp", "pp"}),
        ("EXPERT_DATA_PARALLEL_GROUP_GLOO", {"edp"}),
        ("HIERARCHICAL_EXPERT_DATA_PARALLEL_GROUP_L0", set()),
        ("HIERARCHICAL_CONTEXT_PARALLEL_GROUP_L1", set()),
        ("HYBRID_DP_CP_GROUP_4", set()),
        ("mesh_ep", {"ep"}),
        ("mesh_etp", {"etp"}),
        ("mesh_efsdp", {"edp"}),
        ("mesh_ep_tp", set()),
        ("mesh_sequence_parallel", {"cp"}),
        ("mesh_sp", {"cp"}),
        ("mesh_batch", {"dp"}),
        ("mesh_loss", {"dp", "cp"}),
        ("mesh_world", set()),
        ("POSITION_EMBEDDING_GROUP", set()),
        ("INTRA_DISTRIBUTED_OPTIMIZER_INSTANCE_GROUP", set()),
        ("mesh_dp_shard_mod_ep", {"edp"}),
        ("mesh_dp_shard_in_ep", set()),
        ("mesh_dp_shard", {"dp_shard"}),
        ("dp_cp", {"dp", "cp"}),
        ("default_pg", set()),
        (None, set()),
    ],
)
def test_descriptions(description, kinds):
    assert kinds_of(description) == kinds


def test_ten_thousand_ranks():
    tensor, data, pipeline = 8, 157, 8
    world = tensor * data * pipeline
    with MemoryRun() as run:
        run.sql(f"insert into ranks (rank, world_size) select r, {world} from range({world}) t(r)")
        plane, ends = tensor * data, tensor * data * (pipeline - 1)
        for description, id_of in (
            ("mesh_tp", f"'1@' || r // {tensor} * {tensor} || '-' || (r // {tensor} * {tensor} + {tensor - 1})"),
            ("mesh_pp", f"'3@' || r % {plane} || '-' || (r % {plane} + {ends}) || '/{plane}'"),
        ):
            size = tensor if description == "mesh_tp" else pipeline
            run.sql(
                f"insert into groups (group_id, rank, size, description) "
                f"select {id_of}, r, {size}, '{description}' from range({world}) t(r)"
            )
        start = time.perf_counter()
        mesh = recognise(run)
        assert time.perf_counter() - start < 2
    assert mesh.dimensions == expected(tensor, data, pipeline)
    assert len(mesh.cohort(5_000)) == data


@needs_traces
@pytest.mark.parametrize(
    ("files", "dimensions", "source"),
    [
        (
            "NVIDIA__nvidia-resiliency-ext/fr_traces/gpu_error_1st/_dump_*",
            (("tp", 2), ("dp", 2), ("pp", 4)),
            "group names",
        ),
        ("NVIDIA__Megatron-LM/tp2/*.pt.trace.json.gz", (("tp", 2),), "traffic"),
        pytest.param(
            "KellerJordan__modded-nanogpt/2025-10-31_AdamSyncGradientHook/*current*rank-00*",
            (("dp", 8),),
            "traffic",
            marks=pytest.mark.slow,
        ),
        ("ROCm__aorta/*.pt.trace.json.gz", (), "none"),
    ],
)
def test_real_jobs(tmp_path_factory, files, dimensions, source):
    with Run.open(real_runs(tmp_path_factory)(*sorted(TRACES.glob(files)))) as run:
        mesh = recognise(run)
    assert (mesh.dimensions, mesh.source) == (dimensions, source)


@needs_traces
def test_expert_groups_across_tensor_and_data_have_an_arrangement_of_their_own(tmp_path_factory):
    files = sorted((TRACES / "NVIDIA__nvidia-resiliency-ext/fr_traces/gpu_error_1st").glob("_dump_*"))
    with Run.open(real_runs(tmp_path_factory)(*files)) as run:
        mesh = recognise(run)
        ids = run.sql("select distinct group_id, description from groups where size > 1").fetchall()
        traffic, _ = mesh_traffic.evidence(run, 16)
    assert mesh.experts == (("ep", 4), ("pp", 4))
    assert any(note.endswith("another way: ep=4, pp=4.") for note in mesh.notes)
    assert tile_with_experts(traffic, 16)[0] == mesh.dimensions, "traffic shows the same dimensions as names"
    spans = {}
    for group, description in ids:
        if found := re.search(r"@(\d+)-(\d+)(?:/(\d+))?$", group):
            first, last, stride = (int(part or 1) for part in found.groups())
            spans.setdefault(description, set()).add(mesh.dimension_of(range(first, last + 1, stride)))
    assert spans["EMBEDDING_GROUP"] == {None}
    assert spans["DATA_PARALLEL_GROUP_WITH_CP"] == {"dp"}
    assert spans["EXPERT_MODEL_PARALLEL_GROUP"] == spans["TENSOR_AND_DATA_PARALLEL_GROUP_WITH_CP"] == {"tp+dp"}
