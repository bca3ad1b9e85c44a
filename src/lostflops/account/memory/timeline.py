"""Bytes by owner over the time of a window, in columns that fit a screen.

A column shows its fullest moment, so that no peak is lost, and owners sum to the total in each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from lostflops.account.memory.blocks import RankMemory
from lostflops.account.memory.owners import OWNERS
from lostflops.account.memory.peak import owners_after
from lostflops.core.results import Timeline

COLUMNS: Final = 50
"""Columns that fit in 80 characters, with names before and the largest value after them."""


def timeline(memory: RankMemory, steps: Sequence[tuple[int, int, int]] = (), columns: int = COLUMNS) -> Timeline:
    """Return bytes by owner over time; `steps` are the number, start and stop of each step.

    Steps outside the window are left out, and so is the time before and after all steps and events, in which nothing
    changes.
    """
    inside = [one for one in steps if memory.opened <= one[1] and one[2] <= memory.closed]
    opened = min((*memory.time[:1].tolist(), *(start for _, start, _ in inside)), default=memory.opened)
    closed = max((*(memory.time[-1:] + 1).tolist(), *(stop for _, _, stop in inside)), default=memory.closed)
    span = max(closed - opened, 1)
    columns = min(columns, span)
    edges = opened + span * np.arange(columns + 1, dtype=object) // columns
    edges = edges.astype(np.int64)
    # A state is what holds from an event on, the first from before them all.
    totals = np.concatenate(([memory.base], memory.total))
    times = np.concatenate(([opened], memory.time))
    first = np.searchsorted(memory.time, edges[:-1], side="left")
    last = np.concatenate((first[1:], [memory.time.size]))
    # What held before no longer does in a column that begins with an event; the window opened with what it opened with.
    first += np.append(memory.time, closed)[first] == edges[:-1]
    first[0] = 0
    fullest = np.array([low + totals[low : high + 1].argmax() for low, high in zip(first, last, strict=True)])
    held = np.array([list(owners_after(memory, state - 1).values()) for state in fullest.tolist()], np.int64)
    order = np.argsort(-held.max(axis=0), kind="stable")
    return Timeline(
        "timeline",
        "Over time, on the host",
        opened,
        closed,
        at=tuple(np.maximum(times[fullest], edges[:-1]).tolist()),
        total=tuple(totals[fullest].tolist()),
        rows=tuple((OWNERS[owner].value, tuple(held[:, owner].tolist())) for owner in order.tolist()),
        marks=tuple((number, start) for number, start, _ in inside),
        top=int(memory.time[memory.peak]) if memory.peak >= 0 else opened,
    )
