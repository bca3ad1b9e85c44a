"""One collective of a given size: its buffers, and its call.

Sizes follow NCCL: the tensor for all-reduce, broadcast and send/recv, the gathered tensor for all-gather, the whole
input for reduce-scatter and all-to-all. Calls are in place if possible.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import torch
import torch.distributed as dist

DTYPE: Final = "float32"
_ITEM: Final = 4
_SHARDED: Final = frozenset({"all_gather", "reduce_scatter", "all_to_all"})

# Their names since torch 2.13, and before.
_all_gather_single = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
_reduce_scatter_single = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor

Call = Callable[[int], Any]
"""A function that makes one call, given its number: all ranks count alike, and the number decides who sends."""


@dataclass(frozen=True, slots=True)
class GroupPlace:
    """A rank among the members of its group."""

    rank: int
    members: tuple[int, ...]
    group: Any
    device: Any

    @property
    def index(self) -> int:
        return self.members.index(self.rank)


def whole_bytes(op: str, size: int, ranks: int) -> int:
    """Return the size in bytes that is really measured: at least `size`, in whole numbers and equal shards.

    >>> whole_bytes("all_reduce", 1000, 3), whole_bytes("all_gather", 1000, 3), whole_bytes("all_gather", 1, 4)
    (1000, 1008, 16)
    """
    unit = _ITEM * (ranks if op in _SHARDED else 1)
    return max(-(-size // unit), 1) * unit


def call_of(op: str, size: int, place: GroupPlace, is_ring: bool = False) -> Call:
    count = whole_bytes(op, size, len(place.members)) // _ITEM
    if op == "send_recv":
        return _ring(count, place) if is_ring else _pair(count, place)
    return _MAKERS[op](count, place)


def _zeros(count: int, place: GroupPlace) -> Any:
    # Written to, so that pages are there; sums of zeros stay zeros however often they are reduced.
    return torch.empty(count, dtype=torch.float32, device=place.device).fill_(0)


def _shard(whole: Any, place: GroupPlace) -> Any:
    return whole.chunk(len(place.members))[place.index]


def _all_reduce(count: int, place: GroupPlace) -> Call:
    whole = _zeros(count, place)
    return lambda _: dist.all_reduce(whole, group=place.group)


def _all_gather(count: int, place: GroupPlace) -> Call:
    whole = _zeros(count, place)
    shard = _shard(whole, place)
    return lambda _: _all_gather_single(whole, shard, group=place.group)


def _reduce_scatter(count: int, place: GroupPlace) -> Call:
    whole = _zeros(count, place)
    shard = _shard(whole, place)
    return lambda _: _reduce_scatter_single(shard, whole, group=place.group)


def _all_to_all(count: int, place: GroupPlace) -> Call:
    sent, received = _zeros(count, place), _zeros(count, place)
    return lambda _: dist.all_to_all_single(received, sent, group=place.group)


def _broadcast(count: int, place: GroupPlace) -> Call:
    """Return a broadcast whose root changes with each call: a fixed root would run ahead of its receivers.

    The next root is the rank before: in a tree and in a ring it is among the last to receive, so that a call begins
    when the call before has ended.
    """
    whole = _zeros(count, place)
    return lambda turn: dist.broadcast(whole, src=place.members[-turn % len(place.members)], group=place.group)


def _pair(count: int, place: GroupPlace) -> Call:
    """Return a transfer there and back in turn: the receiver sends next, so that a call is one transfer, one way."""
    whole = _zeros(count, place)
    other = place.members[1 - place.index]

    def call(turn: int) -> None:
        if turn % 2 == place.index:
            dist.send(whole, other, group=place.group)
        else:
            dist.recv(whole, other, group=place.group)

    return call


def _ring(count: int, place: GroupPlace) -> Call:
    """Return a call in which every rank sends to the next rank and receives from the rank before."""
    sent, received = _zeros(count, place), _zeros(count, place)
    after = place.members[(place.index + 1) % len(place.members)]
    before = place.members[place.index - 1]

    def call(_: int) -> None:
        # First the receive: gloo tells the sender over the same connection, behind whatever was sent before.
        pair = [dist.P2POp(dist.irecv, received, before, place.group), dist.P2POp(dist.isend, sent, after, place.group)]
        for work in dist.batch_isend_irecv(pair):
            work.wait()

    return call


_MAKERS: Final[dict[str, Callable[[int, GroupPlace], Call]]] = {
    "all_reduce": _all_reduce,
    "all_gather": _all_gather,
    "reduce_scatter": _reduce_scatter,
    "all_to_all": _all_to_all,
    "broadcast": _broadcast,
}
