"""Meshes whose experts divide the ranks in another way: recovered from names, or refused with a note."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from lostflops.account.align.mesh import Mesh, recognise
from lostflops.core.errors import UnknownCost
from lostflops.ingest.common.group_ids import group_id
from lostflops.predict.scaling.growth import layout
from memory_run import MemoryRun

Sizes = dict[str, int]
"""Sizes of the dimensions, fastest first."""


def groups_along(sizes: Sizes, *kinds: str) -> Iterator[list[int]]:
    """Yield the groups that span these dimensions: ranks whose places along all others are the same."""
    grid = np.arange(math.prod(sizes.values())).reshape(list(sizes.values())[::-1])
    axes = [len(sizes) - 1 - list(sizes).index(kind) for kind in kinds]
    moved = np.moveaxis(grid, axes, range(-len(axes), 0))
    yield from sorted(sorted(group) for group in moved.reshape(-1, math.prod(sizes[kind] for kind in kinds)).tolist())


def megatron(sizes: Sizes, experts: Sizes) -> dict[str, list[list[int]]]:
    """Groups by description, as Megatron-Core makes them (`tp-cp-ep-dp-pp`)."""
    named = {
        "DATA_PARALLEL_GROUP_WITH_CP": (sizes, "cp", "dp"),
        "DATA_PARALLEL_GROUP": (sizes, "dp"),
        "CONTEXT_PARALLEL_GROUP": (sizes, "cp"),
        "MODEL_PARALLEL_GROUP": (sizes, "tp", "pp"),
        "TENSOR_MODEL_PARALLEL_GROUP": (sizes, "tp"),
        "PIPELINE_MODEL_PARALLEL_GROUP": (sizes, "pp"),
        "TENSOR_AND_DATA_PARALLEL_GROUP_WITH_CP": (sizes, "tp", "cp", "dp"),
        "TENSOR_AND_DATA_PARALLEL_GROUP": (sizes, "tp", "dp"),
        "TENSOR_AND_CONTEXT_PARALLEL_GROUP": (sizes, "tp", "cp"),
        "EXPERT_MODEL_PARALLEL_GROUP": (experts, "ep"),
        "EXPERT_TENSOR_PARALLEL_GROUP": (experts, "etp"),
        "EXPERT_TENSOR_AND_MODEL_PARALLEL_GROUP": (experts, "etp", "ep"),
        "EXPERT_TENSOR_MODEL_PIPELINE_PARALLEL_GROUP": (experts, "etp", "ep", "pp"),
        "EXPERT_DATA_PARALLEL_GROUP": (experts, "edp"),
    }
    return {name: list(groups_along(own, *kinds)) for name, (own, *kinds) in named.items()}


def torchtitan(sizes: Sizes, experts: Sizes) -> dict[str, list[list[int]]]:
    """Groups by description, of the three views that torchtitan has of its mesh; `loss` is flattened."""
    named = {
        "mesh_pp": (sizes, "pp"),
        "mesh_cp": (sizes, "cp"),
        "mesh_tp": (sizes, "tp"),
        "mesh_fsdp": (sizes, "cp", "dp_shard"),
        "mesh_dp_replicate": (sizes, "dp_replicate"),
        "mesh_loss": (sizes, "cp", "dp_shard", "dp_replicate"),
        "mesh_ep": (experts, "ep"),
        "mesh_etp": (experts, "etp"),
        "mesh_efsdp": (experts, "edp"),
    }
    return {name: list(groups_along(own, *kinds)) for name, (own, *kinds) in named.items()}


def read(groups: dict[str, list[list[int]]], world: int, kept: Sequence[str] = ()) -> Mesh:
    with job(groups, world, kept) as run:
        return recognise(run)


def job(groups: dict[str, list[list[int]]], world: int, kept: Sequence[str] = ()) -> MemoryRun:
    rows = [
        {"group_id": group_id(name, ranks), "rank": ranks[0], "size": len(ranks), "description": name}
        for name, made in groups.items()
        if not kept or name in kept
        for ranks in made
        if len(ranks) > 1
    ]
    return MemoryRun(ranks=[{"rank": rank, "world_size": world} for rank in range(world)], groups=rows)


def several(sizes: Sizes) -> tuple[tuple[str, int], ...]:
    return tuple((kind, size) for kind, size in sizes.items() if size > 1)


def roles(sizes: Sizes, experts: Sizes, kinds: tuple[str, ...]) -> dict[int, tuple[int, ...]]:
    """Return by rank its places along dimensions, counted by hand."""
    found: dict[int, tuple[int, ...]] = {}
    for own in (sizes, experts):
        places = product(*(range(size) for size in reversed(own.values())))
        for rank, place in enumerate(places):
            by_kind = dict(zip(reversed(own), place, strict=True))
            found[rank] = (*found.get(rank, ()), *(by_kind[kind] for kind in kinds if kind in by_kind))
    return found


def check(mesh: Mesh, sizes: Sizes, experts: Sizes) -> None:
    """The arrangement of the experts is part of the dimensions, or apart, or a note says that it is unknown."""
    world = math.prod(sizes.values())
    dense = several(sizes)
    if mesh.dimensions == dense:
        if mesh.experts:
            assert mesh.experts == several(experts)
        elif experts["ep"] > 1 or experts["etp"] not in (1, sizes["tp"]):
            assert any("overlap the others" in note for note in mesh.notes)
    else:
        nested = {"tp": sizes["tp"], "ep": experts["ep"], "dp": experts["edp"], "pp": sizes["pp"]}
        assert (mesh.dimensions, mesh.experts) == (several(nested), ())
    if mesh.experts or mesh.dimensions != dense:
        alike = roles(sizes, experts, ("tp", "pp", "etp", "ep"))
        by_hand = {rank: tuple(other for other in range(world) if alike[other] == alike[rank]) for rank in range(world)}
        if min(map(len, by_hand.values())) > 1:
            assert {rank: mesh.cohort(rank) for rank in range(world)} == by_hand


small = st.sampled_from([1, 2, 3, 4])
few = st.sampled_from([1, 2])


@settings(deadline=None, max_examples=60)
@given(st.tuples(few | st.just(4), few, small, few), st.sampled_from([1, 2, 4]), st.sampled_from([1, 2, 4, 8]))
def test_megatron_core(dense: tuple[int, ...], etp: int, ep: int) -> None:
    sizes = dict(zip(("tp", "cp", "dp", "pp"), dense, strict=True))
    inside, world = math.prod(dense[:-1]), math.prod(dense)
    assume(1 < world <= 64 and inside % (etp * ep) == 0)
    experts = {"etp": etp, "ep": ep, "edp": inside // (etp * ep), "pp": sizes["pp"]}
    mesh = read(megatron(sizes, experts), world)
    check(mesh, sizes, experts)
    if mesh.experts:
        assert mesh.dimension_of(next(groups_along(experts, "ep", "etp"))) is not None


@settings(deadline=None, max_examples=60)
@given(st.tuples(few, few, few, few, few), st.booleans(), st.sampled_from([1, 2, 4, 8]))
def test_torchtitan(dense: tuple[int, ...], shares: bool, ep: int) -> None:
    sizes = dict(zip(("tp", "cp", "dp_shard", "dp_replicate", "pp"), dense, strict=True))
    inside, world = math.prod(dense[:3]), math.prod(dense)
    etp = sizes["tp"] if shares else 1
    assume(world > 1 and inside % (etp * ep) == 0)
    of_experts = {"etp": etp, "ep": ep, "edp": inside // (etp * ep)}
    mesh = read(torchtitan(sizes, of_experts | {"dp_replicate": dense[3], "pp": dense[4]}), world)
    if dense[3] == 1 or (dense[2] == 1 and not several(of_experts)):
        sizes = {"tp": dense[0], "cp": dense[1], "dp": dense[2] * dense[3], "pp": dense[4]}
    check(mesh, sizes, of_experts | {"dp_replicate": dense[3], "pp": dense[4]})


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_what_is_missing_is_noted_or_left_out_but_never_wrong(data: st.DataObject) -> None:
    """Some descriptions were not recorded. A group over data and context alone counts as data parallel."""
    sizes = {"tp": data.draw(few), "cp": data.draw(few), "dp": data.draw(small), "pp": data.draw(few)}
    inside = sizes["tp"] * sizes["cp"] * sizes["dp"]
    etp, ep = data.draw(st.sampled_from([1, sizes["tp"]])), data.draw(st.sampled_from([2, 4]))
    assume(inside % (etp * ep) == 0)
    experts = {"etp": etp, "ep": ep, "edp": inside // (etp * ep), "pp": sizes["pp"]}
    groups = megatron(sizes, experts)
    dropped = data.draw(st.sampled_from(sorted(groups)))
    mesh = read(groups, inside * sizes["pp"], [name for name in groups if name != dropped])
    known = dict(several(sizes)) | {kind: size for kind, size in several(experts) if kind != "pp"}
    if dropped == "CONTEXT_PARALLEL_GROUP" and sizes["dp"] == 1:
        known["dp"] = sizes["cp"]
    notes = " ".join(mesh.notes)
    for kind, size in (*mesh.dimensions, *mesh.experts):
        is_nested = kind == "dp" and size == experts["edp"] and "ep" in dict(mesh.dimensions)
        assert known.get(kind) == size or is_nested or f"assumed to be {kind}." in notes, (mesh, dropped)


def test_a_group_across_tensor_and_data_ranks_alone_shows_no_data_parallelism() -> None:
    groups = megatron({"tp": 2, "cp": 1, "dp": 1, "pp": 1}, {"etp": 1, "ep": 2, "edp": 1, "pp": 1})
    mesh = read(groups, 2, [name for name in groups if name != "TENSOR_MODEL_PARALLEL_GROUP"])
    assert mesh.dimensions == (("ep", 2),)


def test_experts_on_all_replicas_do_not_make_stages_data_parallel() -> None:
    """The groups of two pipeline stages were not recorded, and each expert has one replica."""
    groups = megatron({"tp": 1, "cp": 1, "dp": 4, "pp": 2}, {"etp": 1, "ep": 4, "edp": 1, "pp": 2})
    mesh = read(groups, 8, [name for name in groups if name != "PIPELINE_MODEL_PARALLEL_GROUP"])
    assert mesh.dimensions == (("dp", 4), ("rest", 2))
    assert any("assumed to be rest." in note for note in mesh.notes)


def test_experts_across_tensor_groups() -> None:
    """Two ranks share tensors of attention, but each expert is whole: experts are on four neighbours."""
    sizes, experts = {"tp": 2, "cp": 1, "dp": 4, "pp": 2}, {"etp": 1, "ep": 4, "edp": 2, "pp": 2}
    mesh = read(megatron(sizes, experts), 16)
    assert mesh.dimensions == (("tp", 2), ("dp", 4), ("pp", 2))
    assert mesh.experts == (("ep", 4), ("edp", 2), ("pp", 2))
    assert "Expert layers arrange the ranks in another way: ep=4, edp=2, pp=2." in mesh.notes
    assert [mesh.dimension_of(group) for group in ([0, 2, 4, 6], [0, 4], [1, 5])] == ["dp", "edp", "edp"]
    assert mesh.cohort(1) == (1, 5)
    assert mesh.cohorts((0, 1, 4, 5)) == {0: (0, 4), 4: (0, 4), 1: (1, 5), 5: (1, 5)}


def test_more_ranks_share_the_tensors_of_an_expert() -> None:
    sizes, experts = {"tp": 2, "cp": 2, "dp": 2, "pp": 1}, {"etp": 4, "ep": 2, "edp": 1, "pp": 1}
    mesh = read(megatron(sizes, experts), 8)
    assert mesh.dimensions == (("tp", 2), ("cp", 2), ("dp", 2))
    assert mesh.experts == (("etp", 4), ("ep", 2))


def test_without_peers_among_experts_the_others_count() -> None:
    """Each rank alone has its experts: peers are those with the same share of tensors."""
    sizes, experts = {"tp": 2, "cp": 1, "dp": 4, "pp": 1}, {"etp": 1, "ep": 8, "edp": 1, "pp": 1}
    mesh = read(megatron(sizes, experts), 8)
    assert mesh.experts == (("ep", 8),)
    assert mesh.cohort(3) == (1, 3, 5, 7)


def test_a_job_with_such_experts_is_not_scaled() -> None:
    sizes, experts = {"tp": 2, "cp": 1, "dp": 4, "pp": 1}, {"etp": 1, "ep": 4, "edp": 2, "pp": 1}
    with job(megatron(sizes, experts), 8) as run, pytest.raises(UnknownCost, match="ep=4, edp=2"):
        layout(run)


WORLD = 8


def traffic(*rows: dict[str, Any], **tables: list[dict[str, Any]]) -> Mesh:
    ranks = [{"rank": rank, "world_size": WORLD} for rank in range(WORLD)]
    numbered = [{"event": number, "start": 0, "stop": 1, "step": 1} | row for number, row in enumerate(rows)]
    events = [
        {"rank": row["rank"], "event": row["event"], "kind": "comm", "name": row["op"], "module": row["module"]}
        for row in numbered
        if "module" in row
    ]
    calls = [{key: value for key, value in row.items() if key != "module"} for row in numbered]
    with MemoryRun(ranks=ranks, collectives=calls, events=[*events, *tables.pop("events", [])], **tables) as run:
        return recognise(run)


def calls_of(op: str, groups: Iterable[Sequence[int]], count: int, **more: Any) -> list[dict[str, Any]]:
    """Calls of each rank of each group, of 64 bytes in and out unless stated."""
    sizes = {"bytes_in": 64, "bytes_out": 64}
    return [
        {"rank": rank, "group_id": group_id("1", group), "op": op} | sizes | more
        for group in groups
        for rank in group
        for _ in range(count)
    ]


FOURS, TWOS = [range(4), range(4, 8)], [range(at, at + 2) for at in range(0, 8, 2)]
APART = [[at, at + 4] for at in range(4)]
SUMS = calls_of("all_reduce", [range(8)], 2)


def ring(groups: Iterable[Sequence[int]], *, passes_on: bool) -> list[dict[str, Any]]:
    """Each rank sends to the next one and gets from the one before: at once, or only once something has arrived."""
    rows = []
    for group in groups:
        for place, rank in enumerate(group):
            sent = 10 * (place + 1) if passes_on and place else 0
            after, before = group[(place + 1) % len(group)], group[place - 1]
            known = {"rank": rank, "group_id": group_id("1", group), "bytes_in": 64, "bytes_out": 64}
            rows.append(known | {"op": "send", "peer": after, "start": sent, "stop": sent + 9})
            rows.append(known | {"op": "recv", "peer": before, "start": 0, "stop": 10 * place + 5})
    return rows


@pytest.mark.parametrize("size", [2, 4, 8])
def test_a_ring_of_keys_and_values_is_no_pipeline(size: int) -> None:
    groups = [range(first, first + size) for first in range(0, 8, size)]
    dims = {"cp": size, "dp": 8 // size}
    assert traffic(*SUMS, *ring(groups, passes_on=False)).dimensions == several(dims)
    assert traffic(*SUMS, *ring(groups, passes_on=True)).dimensions == several({"pp": size, "dp": 8 // size})


def test_a_ring_inside_a_pipeline() -> None:
    mesh = traffic(*SUMS, *ring(TWOS, passes_on=False), *ring(APART, passes_on=True))
    assert mesh.dimensions == (("cp", 2), ("dp", 2), ("pp", 2))


def test_uneven_exchanges_are_of_experts() -> None:
    rows = calls_of("all_to_all", FOURS, 4)
    for row in rows[::3]:
        row["bytes_out"] += row["rank"]
    assert traffic(*SUMS, *rows).dimensions == (("ep", 4), ("dp", 2))


@pytest.mark.parametrize(
    ("module", "kind"), [("layers.0.attention", "cp"), ("layers.0.self_attn", "cp"), ("layers.0.moe", "ep")]
)
def test_modules_show_what_even_exchanges_are_for(module: str, kind: str) -> None:
    events = [{"rank": 0, "event": 999, "kind": "op", "name": "c10d::alltoall_base_", "module": module}]
    mesh = traffic(*SUMS, *calls_of("all_to_all", FOURS, 4), events=events)
    assert mesh.dimensions == ((kind, 4), ("dp", 2))


@pytest.mark.parametrize("got", [64, None])
def test_even_exchanges_without_modules_are_no_dimension(got: int | None) -> None:
    """On gloo, only what a rank sends is recorded."""
    mesh = traffic(*SUMS, *calls_of("all_to_all", FOURS, 4, bytes_out=got))
    assert mesh.dimensions == (("dp", 8),)
    assert any("Ulysses" in note for note in mesh.notes)


def test_gathered_keys_and_values_are_context_parallel() -> None:
    gathers = [row for op in ("all_gather", "reduce_scatter") for row in calls_of(op, TWOS, 6)]
    sums = calls_of("all_reduce", [range(at, 8, 2) for at in (0, 1)], 2)
    mesh = traffic(*sums, *({**row, "module": "layers.0.attention.inner"} for row in gathers))
    assert (mesh.dimensions, mesh.notes) == ((("cp", 2), ("dp", 4)), ())
    mesh = traffic(*sums, *({**row, "module": f"layers.{at % 2}.mlp"} for at, row in enumerate(gathers)))
    assert mesh.dimensions == (("tp", 2), ("dp", 4))
    mesh = traffic(*sums, *gathers)
    assert mesh.dimensions == (("tp", 2), ("dp", 4))
    assert any("may also gather keys and values" in note for note in mesh.notes)
