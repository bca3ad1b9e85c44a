"""Changes that are known to leave memory as it is, unlike changes with an unknown effect."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from lostflops.predict.whatif.change import Facts, Remembered

if TYPE_CHECKING:
    from lostflops.account.memory.blocks import RankMemory


def keep_memory_unchanged(why: str) -> Callable[[RankMemory, str, Facts], Remembered]:
    """Return a `remember` function for changes that do not affect memory; `why` is a sentence for the reader."""

    def remember(memory: RankMemory, value: str, facts: Facts) -> Remembered:
        del value, facts
        return Remembered(memory, 0.0, (why,))

    return remember
