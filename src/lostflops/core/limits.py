"""Limits of numbers that files state, so that a false number cannot take more time or memory than its file is worth."""

from __future__ import annotations

from typing import Final

LARGEST_WORLD: Final = 1_000_000
"""Ranks of the largest job that is accepted, and of the largest process group.

The largest known trainings have about 100,000 devices. One number for each rank of a job ten times as large takes 8 MB
and a few milliseconds, so a table with a place for each rank is always affordable.
"""

LARGEST_MANIFEST: Final = 256 << 20
"""Bytes of `run.json`. It lists the sources and files of a run: for 100,000 ranks about 50 MB."""


def is_rank(number: int) -> bool:
    """Return whether a rank of any accepted job can have this number.

    >>> is_rank(0), is_rank(LARGEST_WORLD), is_rank(-1)
    (True, False, False)
    """
    return 0 <= number < LARGEST_WORLD
