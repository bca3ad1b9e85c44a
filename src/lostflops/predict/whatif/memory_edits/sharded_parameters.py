"""Memory of a rank with sharded parameters and gathered units, as `fully_shard` does it (torch 2.13).

A unit is gathered into one flat buffer and copied out into whole parameters. In forward the buffer stays until the next
unit is copied out, the parameters until the unit is done; in backward the next unit's buffer is filled while one
computes. Whole gradients of a unit stay until its backward is done, and are then copied into a buffer that is reduced
and scattered, which stays until the next unit's. Parameters of no unit belong to the root, which is gathered from the
first pass to the end of the last (torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py, _fsdp_collectives.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np

from lostflops.account.ledger.modules import layer_of
from lostflops.account.ledger.phases import BACKWARD, FORWARD
from lostflops.account.memory.blocks import BEFORE, Codes, Flags, RankMemory
from lostflops.account.memory.owners import Owner
from lostflops.core.errors import NotApplicable
from lostflops.predict.whatif.change import HeldParameter
from lostflops.predict.whatif.memory_edits.editing import (
    New,
    add_blocks,
    change_lifetimes,
    scale_blocks,
    select_owned_blocks,
    without,
)
from lostflops.predict.whatif.memory_edits.gradient_lifetimes import select_final_gradients
from lostflops.predict.whatif.memory_edits.sharding import one_by_one, shard, shards, with_states

_ROOT: Final = ""
_DOUBT: Final = 0.1
_ROOM: Final = 4
"""Number of events that each event becomes: between two events a pass ends and the next begins, which takes up to
three."""


def fully_sharded(memory: RankMemory, held: Sequence[HeldParameter], ranks: int) -> RankMemory:
    """Return the memory of the first rank; `held` are parameters that the given memory holds whole."""
    units = _units(held)
    roomy = _roomier(without(memory, select_owned_blocks(memory, Owner.COMMUNICATION)))
    own = _unit_of(roomy, units)
    died, made = roomy.blocks.died.copy(), list[_Made]()
    sizes = [sum(shard(one, ranks) for one in members) for members in units.values()]
    for step in _steps(roomy):
        one = _Step.of(roomy, own, step)
        made += one.make_gather_blocks([size * ranks for size in sizes])
        for unit, size in enumerate(sizes):
            rows = np.flatnonzero((own == unit) & one.gradients)
            if rows.size:
                made += one.make_scatter_blocks(unit, size, size * ranks, int(died[rows].max()))
                died[rows] = one.when_scattered(unit) + 1
    changed = change_lifetimes(roomy, np.arange(died.size), died=np.maximum(died, roomy.blocks.born))
    factor = shards(held, ranks) / sum(one.whole for one in held)
    changed = scale_blocks(
        changed, select_owned_blocks(changed, Owner.PARAMETERS) | _select_leftover_gradients(changed), factor
    )
    changed = _with(changed, made)
    changed = scale_blocks(changed, one_by_one(changed), factor)
    return with_states(changed, factor, 1.0)


def doubt_of(before: RankMemory, after: RankMemory, held: Sequence[HeldParameter], backend: str | None) -> float:
    """Return the doubt of the new peak: gloo copies what it reduces and scatters, and its threads free the copy later,
    so one more unit may be in memory."""
    moved = abs(after.peak_bytes - before.peak_bytes)
    if backend != "gloo" or not moved:
        return _DOUBT
    units = [sum(one.whole for one in members) for unit, members in _units(held).items() if unit != _ROOT]
    return max(_DOUBT, max(units, default=0) / moved)


def scatter_gradients(memory: RankMemory, ranks: int) -> RankMemory:
    """Keep the gradients of a layer whole until its backward is done, then only an even part of them."""
    roomy = _roomier(memory)
    blocks = roomy.blocks
    layers = np.unique([_unit(text) for text in roomy.texts], return_inverse=True)[1][blocks.module]
    died, made = blocks.died.copy(), list[_Made]()
    for step in _steps(roomy):
        grads = select_final_gradients(roomy) & (blocks.step == step) & (blocks.born > BEFORE)
        for layer in np.unique(layers[grads]).tolist():
            rows = np.flatnonzero(grads & (layers == layer))
            done, freed = int(blocks.born[rows].max()) + 1, int(died[rows].max())
            died[rows] = done
            made.append(_Made(Owner.GRADIENTS, done, freed, -(-int(blocks.bytes[rows].sum()) // ranks)))
    changed = change_lifetimes(roomy, np.arange(died.size), died=died)
    return _with(scale_blocks(changed, _select_leftover_gradients(changed), 1 / ranks), made)


def _select_leftover_gradients(memory: RankMemory) -> Flags:
    """Select gradients of the step before the window; they were reduced there."""
    found: Flags = select_owned_blocks(memory, Owner.GRADIENTS) & (memory.blocks.born == BEFORE)
    return found


class _Made(NamedTuple):
    owner: Owner
    born: int
    died: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    """Events of one step, and when it works on each unit (0 is the root)."""

    begins: int
    """Event at which forward begins."""
    leaves: int
    """Event at which forward leaves the model."""
    turns: int
    """Event at which backward comes to the model."""
    enters: int
    """Event at which backward comes to its first unit."""
    ends: int
    """Event at which backward ends."""
    order: tuple[int, ...]
    """Units in the order of forward."""
    first: dict[int, int]
    """First event of each unit in forward."""
    last: dict[int, int]
    """Last event of each unit in forward."""
    back: dict[int, int]
    """Last event of each unit in backward."""
    gradients: np.ndarray
    """Flags the blocks that are final gradients of the step."""

    @classmethod
    def of(cls, memory: RankMemory, own: Codes, step: int) -> _Step:
        blocks = memory.blocks
        inside = (blocks.step == step) & (blocks.born > BEFORE)
        ahead, behind = inside & (blocks.phase == FORWARD), inside & (blocks.phase == BACKWARD)
        known = sorted(set(own[ahead].tolist()) & set(own[behind].tolist()) - {0})
        inner, outer = behind & (blocks.module > 0), ahead & (blocks.module > 0)
        first = {unit: int(blocks.born[ahead & (own == unit)].min()) for unit in known}
        order = tuple(sorted(known, key=lambda unit: first[unit]))
        ends = sorted(int(blocks.born[behind & (own == unit)].max()) for unit in known)
        return cls(
            begins=int(blocks.born[ahead].min()),
            leaves=int(blocks.born[outer if outer.any() else ahead].max()) + 2,
            turns=int(blocks.born[inner if inner.any() else behind].min()),
            enters=int(blocks.born[behind & (own == order[-1])].min()) if order else int(blocks.born[behind].max()),
            ends=int(blocks.born[behind].max()),
            order=order,
            first=first,
            last={unit: int(blocks.born[ahead & (own == unit)].max()) for unit in known},
            back=dict(zip(order, reversed(ends), strict=True)),
            gradients=inside & select_final_gradients(memory),
        )

    def when_scattered(self, unit: int) -> int:
        """Return the event at which the gradients of a unit are copied to be scattered; for the root, after everything
        else."""
        return self.back[unit] + 1 if unit in self.back else self.ends + 2

    def make_gather_blocks(self, sizes: Sequence[int]) -> Iterator[_Made]:
        """Yield the flat buffers and whole parameters, those of the root first."""
        following = (*(self.first[unit] for unit in self.order), self.leaves)
        yield _Made(Owner.COMMUNICATION, self.begins - 3, following[0], sizes[0])
        yield _Made(Owner.COMMUNICATION, self.begins - 3, self.ends + 2, sizes[0])
        ahead = self.turns
        for place, unit in enumerate(self.order):
            yield _Made(Owner.COMMUNICATION, self.first[unit] - 2, following[place + 1], sizes[unit])
            yield _Made(Owner.COMMUNICATION, self.first[unit] - 1, self.last[unit] + 1, sizes[unit])
        for place, unit in reversed(list(enumerate(self.order))):
            is_last = place + 1 == len(self.order)
            begins = self.enters if is_last else self.back[self.order[place + 1]] + _ROOM
            yield _Made(Owner.COMMUNICATION, ahead - is_last, begins, sizes[unit])
            yield _Made(Owner.COMMUNICATION, begins - 1, self.back[unit] + 1, sizes[unit])
            ahead = begins

    def make_scatter_blocks(self, unit: int, part: int, whole: int, freed: int) -> Iterator[_Made]:
        """Yield the buffer, which lives until the next unit's, and the shard, which lives until gradients are freed."""
        done = self.when_scattered(unit)
        place = self.order.index(unit) if unit in self.back else -1
        until = done + 2 if place < 0 else self.ends + 2 if not place else self.when_scattered(self.order[place - 1])
        yield _Made(Owner.COMMUNICATION, done, max(until, done + 1), whole)
        yield _Made(Owner.GRADIENTS, done + 1, freed, part)


def _units(held: Sequence[HeldParameter]) -> dict[str, list[HeldParameter]]:
    """Group parameters by numbered layer; the root, which gets all others, is first."""
    found: dict[str, list[HeldParameter]] = {_ROOT: []}
    for one in held:
        found.setdefault(_unit(one.name.rpartition(".")[0]), []).append(one)
    return found


def _unit(module: str) -> str:
    layer = layer_of(module)
    return layer if layer.rpartition(".")[2].isdecimal() else _ROOT


def _unit_of(memory: RankMemory, units: dict[str, list[HeldParameter]]) -> Codes:
    """Return the place of each block's unit among `units`."""
    places = {unit: place for place, unit in enumerate(units)}
    of_text = np.array([places.get(_unit(text), 0) for text in memory.texts], np.int64)
    found: Codes = of_text[memory.blocks.module]
    return found


def _steps(memory: RankMemory) -> list[int]:
    """Return the steps with both passes. Raise `NotApplicable` if the memory does not show them, or shows no gradients
    that backward allocated."""
    blocks = memory.blocks
    ahead, behind = (set(blocks.step[blocks.phase == phase].tolist()) - {-1} for phase in (FORWARD, BACKWARD))
    if not ahead & behind:
        raise NotApplicable("forward and backward passes cannot be distinguished in the memory of this run")
    if not (select_owned_blocks(memory, Owner.GRADIENTS) & (blocks.born > BEFORE)).any():
        raise NotApplicable("no gradients were allocated in the window, so when backward creates them is unknown")
    return sorted(ahead & behind)


def _roomier(memory: RankMemory) -> RankMemory:
    """Return the same memory with empty events after each event, and before the first."""

    def move(events: Codes) -> Codes:
        found: Codes = np.where(events == BEFORE, BEFORE, (events + 1) * _ROOM)
        return found

    blocks = memory.blocks
    return replace(
        memory,
        time=np.repeat(np.concatenate([[memory.opened], memory.time]), _ROOM),
        total=np.repeat(np.concatenate([[memory.base], memory.total]), _ROOM),
        reserved=memory.reserved[:0],
        drift=np.repeat(np.concatenate([[0], memory.drift]), _ROOM) if memory.drift.size else memory.drift,
        blocks=replace(blocks, born=move(blocks.born), died=move(blocks.died)),
    )


def _with(memory: RankMemory, made: Sequence[_Made]) -> RankMemory:
    for owner in dict.fromkeys(one.owner for one in made):
        rows = np.array([one[1:] for one in made if one.owner == owner], np.int64)
        memory = add_blocks(memory, New(rows[:, 0], rows[:, 1], rows[:, 2], owner))
    return memory
