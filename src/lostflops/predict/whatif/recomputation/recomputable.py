"""The modules of a run that could be run again, on the rank whose memory has the highest peak."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Final

import numpy as np

from lostflops.account.memory.answers import WITH_MEMORY
from lostflops.core.errors import AlreadySo, NotApplicable, UsageError
from lostflops.core.units import format_bytes, parse_bytes
from lostflops.predict.whatif.recomputation.choose import cheapest, frontier
from lostflops.predict.whatif.recomputation.edit import recompute_modules
from lostflops.predict.whatif.recomputation.kept import find_kept_blocks
from lostflops.predict.whatif.recomputation.options import options

if TYPE_CHECKING:
    from lostflops.account.memory.blocks import RankMemory
    from lostflops.predict.whatif.recomputation.calls import ModuleCalls

_SIZE: Final = re.compile(r"[\d.]+\s*[kKMGTPE]?i?B")


@dataclass(frozen=True, slots=True)
class Recomputable:
    calls: ModuleCalls
    memory: RankMemory

    def find_modules(self, value: str) -> tuple[int, ...]:
        """Return modules by their names, or the cheapest choice whose peak is at most the given bytes.

        Raise `NotApplicable` if no choice fits, `UsageError` for names of modules that cannot be chosen.
        """
        if not self.calls.modules:
            raise NotApplicable(f"no module was recorded in both forward and backward: record with {WITH_MEMORY}")
        return self._fitting(parse_bytes(value)) if is_size(value) else of_names(self.calls.modules, names_in(value))

    def _fitting(self, limit: int) -> tuple[int, ...]:
        have = options(self.memory, self.calls)
        found = cheapest(have, limit)
        if found is None:
            lowest = frontier(have)[-1]
            peak = format_bytes(have.peak(()))
            raise NotApplicable(f"no choice of modules lowers the peak of {peak} below {format_bytes(lowest.peak)}")
        if not found.chosen:
            raise AlreadySo(f"the peak is already {format_bytes(have.peak(()))}")
        return found.chosen

    def layers(self) -> tuple[int, ...]:
        """Return the outermost numbered modules, else the outermost modules: those that a user would wrap by hand."""
        modules = self.calls.modules
        in_rows = [at for at, name in enumerate(modules) if name.split(".")[-1].isdecimal()]
        return _outermost(self.calls.end.tolist(), in_rows or range(len(modules)))

    def shares(self) -> dict[str, float]:
        """Return the part of each module's forward that is run again, without what backward does not need."""
        again, whole = (self.calls.per_step(column) for column in (self.calls.ns, self.calls.forward_ns))
        share = np.divide(again, whole, out=np.ones(whole.size), where=whole > 0)
        return dict(zip(self.calls.modules, share.tolist(), strict=True))

    def edit_memory(self, memory: RankMemory, modules: Collection[int]) -> RankMemory:
        return recompute_modules(memory, find_kept_blocks(memory, self.calls), modules)


def is_size(value: str) -> bool:
    """Return whether the value is a number of bytes.

    >>> is_size("8GiB"), is_size("layers.0,layers.1"), is_size("0")
    (True, False, False)
    """
    return _SIZE.fullmatch(value.strip()) is not None


def names_in(value: str) -> list[str]:
    return [name.strip() for name in value.split(",") if name.strip()]


def of_names(modules: Sequence[str], names: Sequence[str]) -> tuple[int, ...]:
    """Return the places of these modules.

    >>> of_names(("a", "a.b", "c"), ["c", "a"])
    (0, 2)
    """
    for name in names:
        if name not in modules:
            near = get_close_matches(name, modules, n=3)
            raise UsageError(f"recompute: module {name!r} cannot be recomputed; try {', '.join(near or modules[:5])}")
        if outer := next((other for other in names if name.startswith(f"{other}.")), None):
            raise UsageError(f"recompute: {name} is inside {outer}: give only one of them")
    return tuple(sorted({modules.index(name) for name in names}))


def _outermost(end: Sequence[int], modules: Sequence[int]) -> tuple[int, ...]:
    found, until = list[int](), 0
    for module in modules:
        if module >= until:
            found.append(module)
            until = end[module]
    return tuple(found)
