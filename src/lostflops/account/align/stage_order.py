"""The order of pipeline stages: activations flow forward before any gradient flows back.

The first transfer of a step to end between two ranks is forward. This needs one rank's clock alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from lostflops.store.run import Run

_FIRST: Final = """
    with firsts as (
        select rank, peer, arg_min(op, stop) as op from collectives
        where op in ('send', 'recv') and peer is not null and step is not null group by rank, peer, step
    )
    select case when op = 'send' then rank else peer end, case when op = 'send' then peer else rank end, count(*)
    from firsts group by all"""


def stage_order(
    run: Run, ranks: npt.NDArray[np.int64], places: npt.NDArray[np.int64], stages: int
) -> tuple[npt.NDArray[np.int64], str]:
    """Return the stage of each place along the pipeline dimension, and a note if that is not the order of ranks."""
    ascending = np.arange(stages)
    columns = run.columns(_FIRST)
    source, target, votes = (np.asarray(column, np.int64) for column in columns.values())
    known = np.isin(source, ranks) & np.isin(target, ranks)
    source, target = (places[np.searchsorted(ranks, ends[known])] for ends in (source, target))
    ahead = np.zeros((stages, stages), np.int64)
    np.add.at(ahead, (source, target), votes[known])
    forward = ahead > ahead.T
    if not forward.any() or not forward.T[ascending[:-1], ascending[1:]].any():
        return ascending, ""
    path = _path(forward)
    if path is None:
        return ascending, "Transfers do not show the order of pipeline stages: the order of ranks is used."
    order = np.empty(stages, np.int64)
    order[path] = ascending
    return order, f"Activations flow through the pipeline in the order {', '.join(map(str, path[:16]))} of its ranks."


def _path(forward: npt.NDArray[np.bool_]) -> list[int] | None:
    """Return the only path through all places along forward edges, or None."""
    starts = np.flatnonzero(~forward.any(axis=0))
    if starts.size != 1:
        return None
    path = [int(starts[0])]
    while (ahead := np.flatnonzero(forward[path[-1]])).size == 1 and int(ahead[0]) not in path:
        path.append(int(ahead[0]))
    return path if len(path) == forward.shape[0] else None
