"""Storages that are known in a window: the owner of each, as far as known, and which are gone.

Only a weak reference to each is kept, so nothing lives longer because of us.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable
from typing import Any, Final

from lostflops.collect import tensor_owners
from lostflops.collect.held_by import held_by
from lostflops.collect.storages import Block, block_of, bytes_left, storage_of

MOST: Final = 20_000
_MOST_UNOWNED: Final = 10_000
"""A window has at most `MOST` storages; at most `_MOST_UNOWNED` without an owner are added at a time."""
_MOST_SOON: Final = 1_000
"""At most this many tensors without an owner are checked at each edge of a phase, which takes a millisecond; smaller
ones beyond that are checked at the end of each step."""
_MOST_NAMED: Final = 20
"""Holders are searched for at most this many storages that are new in the window, and for as many older ones."""
_AT_ONCE: Final = 4
"""Storages of one size before the next size has its turn: a graph kept by a loss has many tensors, and the loss is
small."""


class Register:
    """The storages that are known in a window, with their owners."""

    def __init__(self) -> None:
        self.dropped = 0
        self._known: dict[int, tuple[int, str | None]] = {}
        """Number and owner, by the key of a block."""
        self._blocks: dict[int, Block] = {}
        self._may_go: dict[int, Block] = {}
        """Blocks that are checked at the end of each step; if one is gone, others may have replaced it."""
        self._may_go_soon: dict[int, Block] = {}
        """Blocks that are checked at each edge of a phase too."""
        self._seldom_go: dict[int, Block] = {}
        """Blocks that are checked at the end of each step; if one is gone, this does not affect others."""
        self._rows: list[list[Any]] = []
        """Rows since the last `take`: number, device type and index, address, bytes, owner, name and line; a number may
        come again when more is known of it."""
        self._gone: list[int] = []
        self._count = self._opened = 0

    def take(self) -> tuple[list[list[Any]], list[int]]:
        """Return the rows since the last call, and the numbers of storages that were seen to be gone."""
        taken = self._rows, self._gone
        self._rows, self._gone = [], []
        return taken

    def all_before(self) -> None:
        """Note that all storages seen so far existed when the window opened."""
        self._opened = self._count

    def poll(self) -> None:
        """Check which storages are gone, of those that may go in the middle of a step."""
        self._poll(self._may_go_soon)

    def poll_all(self) -> bool:
        """Check all storages; return whether a block in `_may_go` is gone, which usually stays from step to step."""
        self._poll(self._may_go_soon)
        self._poll(self._seldom_go)
        return self._poll(self._may_go)

    def see(self, found: Iterable[tensor_owners.Owned], *, only_known: bool = False) -> None:
        """Add rows for tensors that are new or had no owner; with `only_known`, new ones are left out."""
        for owner, name, tensor in found:
            storage = storage_of(tensor)
            if storage is None:
                continue
            number, known = self._known.get(storage._cdata, (-1, None))  # noqa: SLF001
            if number < 0 and not only_known:
                self._add(storage, owner, name)
            elif number >= 0 and known is None:
                self._tell(self._blocks[storage._cdata], owner, name)  # noqa: SLF001

    def see_others(self, tensors: list[Any]) -> None:
        """Add rows for tensors without an owner, the largest first."""
        fresh = [found for key, found in _by_storage(tensors).items() if key not in self._known]
        fresh.sort(key=lambda found: -found[0].nbytes())
        self.dropped += len(fresh[_MOST_UNOWNED:])
        for storage, _ in fresh[:_MOST_UNOWNED]:
            self._add(storage, None, None)

    def name_holders(self, tensors: list[Any]) -> None:
        """Name the holders of some tensors of each size without an owner, both new in the window and older."""
        unowned = [found for key, found in _by_storage(tensors).items() if self._known.get(key, (0, ""))[1] is None]
        unowned = _in_turns(unowned)
        numbers = {storage._cdata: self._known[storage._cdata][0] for storage, _ in unowned}  # noqa: SLF001
        new = [found for found in unowned if numbers[found[0]._cdata] >= self._opened]  # noqa: SLF001
        old = [found for found in unowned if numbers[found[0]._cdata] < self._opened]  # noqa: SLF001
        chosen = new[:_MOST_NAMED] + old[:_MOST_NAMED]
        holders = held_by([tensor for _, views in chosen for tensor in views], sys._getframe())  # noqa: SLF001
        for storage, views in chosen:
            named = [holders[id(tensor)] for tensor in views if id(tensor) in holders]
            if named:
                holder = min(named, key=lambda one: one[1] is None)
                self._tell(self._blocks[storage._cdata], None, *holder)  # noqa: SLF001

    def _add(self, storage: Any, owner: str | None, name: str | None) -> None:
        if self._count >= MOST:
            self.dropped += 1
            return
        block = block_of(storage)
        if block is not None:
            self._blocks[block.key] = block
            if owner in (tensor_owners.OPTIMIZER, tensor_owners.BUFFERS):
                self._may_go[block.key] = block
            elif owner == tensor_owners.PARAMETERS or (owner is None and len(self._may_go_soon) >= _MOST_SOON):
                self._seldom_go[block.key] = block
            else:
                self._may_go_soon[block.key] = block
            self._known[block.key] = self._count, owner
            self._count += 1
            self._tell(block, owner, name)

    def _tell(self, block: Block, owner: str | None, name: str | None, line: str | None = None) -> None:
        number = self._known[block.key][0]
        self._known[block.key] = number, owner
        place = [block.device_type, block.device_index, block.address, block.bytes]
        self._rows.append([number, *place, owner, name, line])

    def _poll(self, blocks: dict[int, Block]) -> bool:
        gone = [key for key, block in blocks.items() if bytes_left(block.reference) != block.bytes]
        for key in gone:
            self._gone.append(self._known.pop(key)[0])
            del self._blocks[key], blocks[key]
        return bool(gone)


def _in_turns(found: list[tuple[Any, list[Any]]]) -> list[tuple[Any, list[Any]]]:
    """Return the largest first, but only a few of one size before the next."""
    seen: Counter[int] = Counter()
    turns: list[tuple[int, int]] = []
    for storage, _ in found:
        size = storage.nbytes()
        turns.append((seen[size] // _AT_ONCE, -size))
        seen[size] += 1
    return [found[place] for place in sorted(range(len(found)), key=turns.__getitem__)]


def _by_storage(tensors: list[Any]) -> dict[int, tuple[Any, list[Any]]]:
    """Return each storage with its tensors, by the key of the storage."""
    found: dict[int, tuple[Any, list[Any]]] = {}
    for tensor in tensors:
        storage = storage_of(tensor)
        if storage is not None:
            found.setdefault(storage._cdata, (storage, []))[1].append(tensor)  # noqa: SLF001
    return found
