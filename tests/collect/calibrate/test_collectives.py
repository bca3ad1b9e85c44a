"""Sizes and calls, against a group that only writes down what it is asked for."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch")

import torch

from lostflops.collect.calibrate import collectives
from lostflops.collect.calibrate.collectives import GroupPlace, call_of, whole_bytes

SIZE = 4800
MEMBERS = (4, 5, 9)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    found: list[tuple[Any, ...]] = []

    def written(name: str) -> Any:
        return lambda *tensors, **more: found.append((name, *tensors, more))

    for name in ("all_reduce", "all_to_all_single", "broadcast", "send", "recv"):
        monkeypatch.setattr(collectives.dist, name, written(name))
    monkeypatch.setattr(collectives, "_all_gather_single", written("all_gather"))
    monkeypatch.setattr(collectives, "_reduce_scatter_single", written("reduce_scatter"))
    return found


def place(rank: int, members: tuple[int, ...] = MEMBERS) -> GroupPlace:
    return GroupPlace(rank, members, "group", torch.device("cpu"))


def is_part(shard: Any, whole: Any, index: int) -> bool:
    """Whether it is its rank's part of the other tensor's memory."""
    return bool(shard.data_ptr() == whole.data_ptr() + index * shard.nbytes)


def test_all_reduce_is_of_the_tensor(asked: list[Any]) -> None:
    call_of("all_reduce", SIZE, place(5))(0)
    ((_, tensor, more),) = asked
    assert (tensor.nbytes, more) == (SIZE, {"group": "group"})


def test_all_gather_is_of_the_gathered_tensor_and_in_place(asked: list[Any]) -> None:
    call_of("all_gather", SIZE, place(9))(0)
    ((_, whole, shard, _),) = asked
    assert (whole.nbytes, shard.nbytes, is_part(shard, whole, 2)) == (SIZE, SIZE // 3, True)


def test_reduce_scatter_is_of_the_whole_input_and_in_place(asked: list[Any]) -> None:
    call_of("reduce_scatter", SIZE, place(5))(0)
    ((_, shard, whole, _),) = asked
    assert (whole.nbytes, shard.nbytes, is_part(shard, whole, 1)) == (SIZE, SIZE // 3, True)


def test_all_to_all_is_of_the_whole_input(asked: list[Any]) -> None:
    call_of("all_to_all", SIZE, place(4))(0)
    ((_, received, sent, _),) = asked
    assert (sent.nbytes, received.nbytes) == (SIZE, SIZE)
    assert sent.data_ptr() != received.data_ptr()


def test_the_root_of_a_broadcast_goes_round_backwards(asked: list[Any]) -> None:
    call = call_of("broadcast", SIZE, place(4))
    for turn in range(4):
        call(turn)
    assert [more["src"] for *_, more in asked] == [4, 9, 5, 4]
    assert asked[0][1].nbytes == SIZE


@pytest.mark.parametrize(("rank", "other", "first"), [(4, 9, "send"), (9, 4, "recv")])
def test_a_pair_sends_in_turn(asked: list[Any], rank: int, other: int, first: str) -> None:
    call = call_of("send_recv", SIZE, place(rank, (4, 9)))
    call(0)
    call(1)
    assert [name for name, *_ in asked] == [first, {"send": "recv", "recv": "send"}[first]]
    assert {(tensor.nbytes, peer) for _, tensor, peer, _ in asked} == {(SIZE, other)}


@pytest.mark.parametrize("op", ["all_gather", "reduce_scatter", "all_to_all"])
def test_shards_are_equal_and_sizes_say_what_was_measured(op: str) -> None:
    assert [whole_bytes(op, size, 3) for size in (1, 12, 13, 1024)] == [12, 12, 24, 1032]
