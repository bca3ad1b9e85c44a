"""Budgets of input: a file or a number in it cannot take more time or memory than it is worth.

Input beyond a budget is dropped and counted, or refused with an error. `benchmarks/budgets.py` measures what each
budget allows; SECURITY.md lists the figures.
"""

from __future__ import annotations

from typing import Final

LARGEST_WORLD: Final = 1_000_000
"""Ranks of the largest job that is accepted, and of the largest process group.

The largest known trainings have about 100,000 devices. One number for each rank of a job ten times as large takes 8 MB
and a few milliseconds, so a table with a place for each rank is always affordable.
"""

MOST_RANKS: Final = 100_000
"""Ranks with rows in one file, such as an op trace or the capture of a host.

Each rank needs a few KB of memory and a few ms, however little it recorded. The largest known trainings have as many.
"""

MOST_ATTEMPTS: Final = 1_000
"""Attempts of a job, counted from its captures: each process is compared with all of them."""

LARGEST_MANIFEST: Final = 256 << 20
"""Bytes of `run.json`. It lists the sources and files of a run: for 100,000 ranks about 50 MB."""

MOST_EXPANSION: Final = 100
"""Bytes of text for each byte of gzip: Kineto JSON compresses 8 to 30 times, and deflate itself reaches 1,032."""

LARGEST_ELEMENT: Final = 8 << 20
"""Bytes of one event of a Kineto trace; it is held in memory until it ends."""

LARGEST_HEADER: Final = 12 << 20
"""Bytes of a Kineto trace before its events, or after them."""

LARGEST_FRAME: Final = 64 << 20
"""Bytes of a frame of a capture; the collector writes a few KB at a time."""

CHECKS_PER_BYTE: Final = 16
"""Bytes of payload, for each byte of a capture, whose checksum is computed although it turns out to be wrong.

A damaged header states any length, and frames are looked for inside of it. After this many bytes were checked in vain,
what such a header states is skipped as damaged.
"""

DEEPEST_VALUE: Final = 64
"""Lists and objects inside of each other, in a pickle or in a fact of a capture: whoever reads them would fail."""

LARGEST_SCHEDULE: Final = 256 << 20
"""Bytes of a pipeline schedule; a thousand iterations with a thousand passes take about 40 MB."""

LARGEST_DUMP: Final = 64 << 20
"""Bytes of a Flight Recorder dump: a ring of 20,000 entries with stacks takes about 30 MB."""

MOST_BLOCKS: Final = 5_000_000
"""Blocks in a snapshot of the CUDA allocator."""

MOST_NAMES: Final = 250_000
"""Distinct names of events in the files that are read together; real traces have a few thousand.

To find the class of a name takes up to 0.1 ms.
"""

MOST_DETAILS: Final = 200_000
"""Distinct shapes, grids, and source lines, of each of these; real traces have a few thousand."""

MOST_LANES: Final = 1 << 20
"""Lanes of a rank: its threads and streams."""

MOST_DRAWN_LANES: Final = 20_000
"""Lanes of a timeline, those with the most time: 4,000 ranks with five each. A screen cannot show more."""


def is_rank(number: int) -> bool:
    """Return whether a rank of any accepted job can have this number.

    >>> is_rank(0), is_rank(LARGEST_WORLD), is_rank(-1)
    (True, False, False)
    """
    return 0 <= number < LARGEST_WORLD
