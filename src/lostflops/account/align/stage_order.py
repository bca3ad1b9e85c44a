"""The order of pipeline stages: activations flow forward before any gradient flows back.

The first transfer of a step to end between two ranks is forward. This needs one rank's clock alone.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from lostflops.store.run import Run

Codes = npt.NDArray[np.int64]
_FIRST: Final = """
    with firsts as (
        select rank, peer, arg_min(op, stop) as op from collectives
        where op in ('send', 'recv') and peer is not null and step is not null group by rank, peer, step
    )
    select case when op = 'send' then rank else peer end, case when op = 'send' then peer else rank end, count(*)
    from firsts group by all"""


def first_transfers(run: Run) -> tuple[Codes, Codes, Codes]:
    """Return source and target of the first transfers of steps, and how often they came first."""
    source, target, votes = (np.asarray(column, np.int64) for column in run.columns(_FIRST).values())
    return source, target, votes


def stage_order(source: Codes, target: Codes, votes: Codes, stages: int) -> tuple[Codes | None, str]:
    """Return the stage of each place along the pipeline, and a note; None if that is the order of ranks.

    `source` and `target` are places along the pipeline between which first transfers went.

    >>> stage_order(np.array([1, 0]), np.array([0, 2]), np.array([5, 5]), 3)[0].tolist()
    [1, 0, 2]
    """
    ahead: Counter[tuple[int, int]] = Counter()
    for place, following, count in zip(source.tolist(), target.tolist(), votes.tolist(), strict=True):
        ahead[place, following] += count
    forward = {(place, after) for (place, after), count in ahead.items() if count > ahead.get((after, place), 0)}
    if not any(place == after + 1 for place, after in forward):
        return None, ""
    path = _path(forward, stages)
    if path is None:
        return None, "Transfers do not show the order of pipeline stages: the order of ranks is used."
    order = np.empty(stages, np.int64)
    order[path] = np.arange(stages)
    return order, f"Activations flow through the pipeline in the order {', '.join(map(str, path[:16]))} of its ranks."


def _path(forward: AbstractSet[tuple[int, int]], stages: int) -> list[int] | None:
    """Return the only path through all places along forward edges, or None."""
    following: defaultdict[int, list[int]] = defaultdict(list)
    for place, after in forward:
        following[place].append(after)
    reached = {after for _, after in forward}
    starts = following.keys() - reached
    if len(reached) != stages - 1 or len(starts) != 1:
        return None
    path = list(starts)
    while len(following[path[-1]]) == 1 and len(path) < stages:
        path.append(following[path[-1]][0])
    return path if len(set(path)) == stages else None
