"""Number of steps of an automatic window: as many as are cheap, judged by the steps before it.

Rank 0's answer is published for all ranks. A rank that does not receive it in time uses its own: there are few lengths,
so ranks that run in step mostly choose the same.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from itertools import pairwise
from statistics import median
from typing import Any, Final

USUAL: Final = 8
_LENGTHS: Final = (20, 12, USUAL, 5, 3)
_CHEAP: Final = 2_000_000_000
"""A window has more steps than usual as long as they last no longer than this, in ns."""
_LONGEST: Final = 16_000_000_000
"""A window has the usual number of steps as long as they last no longer than this, in ns."""
_MOST_EVENTS: Final = 400_000
"""Limit of events in a window: some 150 MB of JSON, and a second to stop the profiler."""
_EVENTS_PER_NODE, _EVENTS_PER_PARAMETER = 12, 30
"""Estimated events of the profiler for each node of autograd's graph, forward and backward, and for the update of a
parameter: rather too many. Measured for layers, transformers and optimizers with and without `foreach`: 11 to 16 per
node."""


def window_steps(step: float, events: int) -> int:
    """Return the number of steps of a window, from the time of a step in ns and its number of events.

    >>> [window_steps(seconds * 1e9, 1000) for seconds in (0.01, 0.15, 0.5, 2, 3, 60)]
    [20, 12, 8, 8, 5, 3]
    >>> [window_steps(1e7, events) for events in (20_000, 50_000, 1_000_000)]
    [20, 8, 3]
    """
    by_time = max(_CHEAP / max(step, 1), min(USUAL, _LONGEST / max(step, 1)))
    fitting = min(by_time, _MOST_EVENTS / max(events, 1))
    return next((length for length in _LENGTHS if length <= fitting), _LENGTHS[-1])


class LastSteps:
    """Time and size of the steps before a window."""

    def __init__(self) -> None:
        self._edges: deque[tuple[int, int]] = deque(maxlen=4)

    def edge(self) -> None:
        """Note the end of a step, on the training thread."""
        self._edges.append((time.monotonic_ns(), _nodes()))

    def window_steps(self, optimizers: list[Any]) -> int:
        """Return the number of steps of a window; the usual number if too few steps were seen."""
        edges = list(self._edges)
        if len(edges) < 3:
            return USUAL
        times = [stop - start for (start, _), (stop, _) in pairwise(edges)]
        nodes = max(0, edges[-1][1] - edges[0][1]) // (len(edges) - 1)
        return window_steps(median(times), _EVENTS_PER_NODE * nodes + _EVENTS_PER_PARAMETER * _parameters(optimizers))


def _nodes() -> int:
    """Return how many nodes autograd has made on this thread; 0 if this version of torch does not say."""
    count = getattr(sys.modules["torch"]._C._autograd, "_get_sequence_nr", None)  # noqa: SLF001
    return int(count()) if count is not None else 0


def _parameters(optimizers: list[Any]) -> int:
    return sum(len(group["params"]) for optimizer in optimizers for group in optimizer.param_groups)
