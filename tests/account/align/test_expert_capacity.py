"""Experts with a capacity: exchanges are even, or end at a limit, and that is named instead of called balanced."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lostflops.account.align.expert_capacity import capacity_notes, even_exchanges, token_limits
from lostflops.account.align.expert_loads import expert_loads
from memory_run import MemoryRun

RANKS, HIDDEN = 4, 512
Calls = list[tuple[list[int], list[int]]]
"""Tokens that each rank sends and gets, call by call."""


def job(steps: list[Calls], description: str | None = "mesh_ep", **tables: list[dict[str, Any]]) -> MemoryRun:
    calls = [
        {"rank": rank, "event": number, "group_id": "7@0-3", "seq": number, "op": "all_to_all", "step": step}
        | {"bytes_in": HIDDEN * sent[rank], "bytes_out": HIDDEN * got[rank]}
        for number, (step, sent, got) in enumerate((step, *own) for step, made in enumerate(steps) for own in made)
        for rank in range(RANKS)
    ]
    groups = [{"group_id": "7@0-3", "rank": rank, "size": 4, "description": description} for rank in range(RANKS)]
    return MemoryRun(collectives=calls, groups=groups, **tables)


def even(tokens: int) -> tuple[list[int], list[int]]:
    return [tokens] * RANKS, [tokens] * RANKS


def routed(seed: int, capacity: int | None, hot: float, tokens: int = 400) -> Calls:
    """One layer, there and back: each rank sends its tokens to experts 0 to 3, at most `capacity` to each."""
    chance = np.random.default_rng(seed)
    wishes = chance.multinomial(tokens, [hot, *[(1 - hot) / 3] * 3], size=RANKS)
    taken = wishes if capacity is None else np.minimum(wishes, capacity)
    sent, got = taken.sum(axis=1).tolist(), taken.sum(axis=0).tolist()
    return [(sent, got), (got, sent)]


def test_a_fixed_capacity_is_named() -> None:
    with job([[even(128)] * 4] * 5) as run:
        (found,) = even_exchanges(run)
        (note,) = capacity_notes(run)
        assert expert_loads(run) is None
    assert (found.group, found.kind, found.calls, found.sizes) == ("7@0-3", "fixed", 20, (128 * HIDDEN,))
    assert "All 20 exchanges of tokens in group 7@0-3 move 65.5 kB on every rank" in note
    assert "balance is unknown" in note


def test_scales_beside_tokens_are_still_a_fixed_capacity() -> None:
    with job([[even(128), even(1), even(128), even(1)] * 2] * 3) as run:
        assert [(one.kind, one.sizes) for one in even_exchanges(run)] == [("fixed", (65_536, 512))]


def test_places_that_follow_the_fullest_expert_are_named() -> None:
    with job([[even(size), even(size)] for size in (131, 140, 128)]) as run:
        (found,) = even_exchanges(run)
        assert found.kind == "fitted"
        assert "padded to the fullest" in next(iter(capacity_notes(run)))


@pytest.mark.parametrize("name", ["mesh_cp", "mesh_sequence_parallel", "ulysses", "DATA_PARALLEL_GROUP", None])
def test_even_exchanges_of_others_are_not_of_experts(name: str | None) -> None:
    with job([[even(128)] * 4] * 5, name) as run:
        assert list(capacity_notes(run)) == []


@pytest.mark.parametrize(
    ("module", "is_of_experts"),
    [("layers.0.moe", True), ("layers.0.mlp", True), ("layers.0.attention", False), (None, False)],
)
def test_modules_show_what_an_unnamed_group_is_for(module: str | None, is_of_experts: bool) -> None:
    events = [{"rank": 0, "kind": "op", "name": "c10d::alltoall_base_", "module": module}]
    names = ["layers.0.attention.wq.weight", "layers.0.mlp.router.weight", "layers.0.mlp.experts.w1"]
    parameters = [{"rank": 0, "position": at, "name": name} for at, name in enumerate(names)]
    with job([[even(128)] * 4] * 5, None, events=events, parameters=parameters) as run:
        assert [one.kind for one in even_exchanges(run)] == (["fixed"] if is_of_experts else [])


def test_some_uneven_exchange_is_not_a_fixed_capacity() -> None:
    with job([[even(128)] * 4, [even(128), ([128] * 4, [127, 129, 128, 128]), even(128), even(128)]]) as run:
        assert list(even_exchanges(run)) == []


@pytest.mark.parametrize("seed", range(8))
def test_dropped_tokens_are_named_with_the_rank_at_the_limit(seed: int) -> None:
    """Of 400 tokens of each rank 200 would go to expert 0, which takes 150 of each."""
    with job([routed(100 * seed + step, 150, hot=0.5) for step in range(12)]) as run:
        loads = expert_loads(run)
        assert loads is not None
        (limit,) = token_limits(loads)
        (note,) = capacity_notes(run)
    assert (limit.ranks, limit.bytes, limit.times) == ((0,), RANKS * 150 * HIDDEN, 12)
    assert "rank 0 get exactly 307 kB of tokens in 12 of 12 exchanges" in note


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("hot", [0.25, 0.5, 1.0])
def test_without_a_limit_nothing_is_named(seed: int, hot: float) -> None:
    with job([routed(100 * seed + step, None, hot) for step in range(12)]) as run:
        assert list(capacity_notes(run)) == []


def test_a_batch_that_is_repeated_is_no_limit() -> None:
    with job([routed(1, None, 0.5)] * 12) as run:
        assert list(capacity_notes(run)) == []
