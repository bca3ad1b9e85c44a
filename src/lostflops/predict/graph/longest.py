"""Longest paths through a network of tasks.

For many tasks the loop over all of them is compiled if numba is installed (`pip install lostflops[fast]`). Otherwise
plain Python runs a smaller network of knots, and the loop over all tasks only where that does not suffice. All work on
integers and give the same result.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from lostflops.predict.graph.knots import find_paths
from lostflops.predict.graph.network import Index, Ns, PathNetwork

WORTH_LOADING: Final = 1_000_000
"""Tasks that a process replays before it loads numba, which takes 0.4 s, and 2 s more to compile the first time. Plain
Python replays as many tasks in 0.3 to 0.7 s: a diagnosis of a small run ends before, a search over many changes does
not."""


class LongestPaths(NamedTuple):
    """Start and stop of each task, and when each meeting was complete."""

    start: Ns
    stop: Ns
    met: Ns
    waiting: npt.NDArray[np.int64]
    """Tasks that never start, because they wait for each other."""


class _Replay:
    tasks = 0
    """Tasks that this process has replayed, or is about to."""


def expect_replays(tasks: int) -> None:
    """Announce replays of this many tasks, so that numba is loaded before them if that is worth it."""
    _Replay.tasks += tasks


def longest(network: PathNetwork, *, compiled: bool | None = None) -> LongestPaths:
    """Compute when each task starts and stops. `compiled` chooses between numba and plain Python; None chooses numba
    once the process has replayed `WORTH_LOADING` tasks."""
    n, m = network.origin.size, network.transfer.size
    _Replay.tasks += n
    is_worth = compiled is None and _Replay.tasks > WORTH_LOADING
    run = _compile_work_off() if compiled or is_worth else None
    assert run is not None or not compiled, "numba is not installed"
    if run is None and (found := find_paths(network)) is not None:
        return LongestPaths(*found, np.empty(0, np.int64))
    start = network.origin.copy()
    stop = np.zeros(n, np.int64)
    met = np.zeros(m, np.int64)
    pending = np.bincount(network.dst, minlength=n) + network.follows
    missing = np.bincount(network.meeting[network.meeting >= 0], minlength=m)
    missing += np.bincount(network.turn[network.turn >= 0], minlength=m)
    out, first = _by_source(network.src, n)
    members, opens = _by_source(network.meeting, m)
    arrays = (
        start,
        stop,
        met,
        pending,
        missing,
        network.duration,
        network.gap,
        network.follows,
        network.meeting,
        network.transfer,
        network.turn,
        network.dst[out],
        network.delay[out],
        network.after_start[out],
        first,
        members,
        opens,
    )
    if run is None:
        lists = [array.tolist() for array in arrays]
        done = np.array(work_off(*lists), np.int64)
        start[:], stop[:], met[:] = lists[0], lists[1], lists[2]
    else:
        done = run(*arrays)
    never = np.ones(n, np.bool_)
    never[done] = False
    return LongestPaths(start, stop, met, np.flatnonzero(never))


def _by_source(source: Index, size: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return rows in the order of their source, without rows that have no source, and where the rows of each source
    begin."""
    order = np.argsort(source, kind="stable")
    order = order[np.searchsorted(source[order], 0) :]
    return order, np.concatenate(([0], np.cumsum(np.bincount(source[source >= 0], minlength=size))))


@cache
def _compile_work_off() -> Callable[..., Any] | None:
    try:
        from numba import njit  # noqa: PLC0415  an extra, asked for when it is needed
    except ImportError:
        return None
    compiled: Callable[..., Any]
    try:
        compiled = njit(cache=True, nogil=True)(work_off)
    except RuntimeError:  # neither this folder nor the user's cache can be written to
        compiled = njit(nogil=True)(work_off)
    return compiled


def work_off(  # noqa: PLR0917, PLR0912, C901  one loop over plain arrays, which is what can be compiled
    start: Any,
    stop: Any,
    met: Any,
    pending: Any,
    missing: Any,
    duration: Any,
    gap: Any,
    follows: Any,
    meeting: Any,
    transfer: Any,
    turn: Any,
    dst: Any,
    delay: Any,
    after_start: Any,
    first: Any,
    members: Any,
    opens: Any,
) -> Any:
    """Run the tasks from a stack, fill in `start`, `stop` and `met`, and return the tasks that have run."""
    n = len(start)
    ready = [task for task in range(n) if pending[task] == 0]
    done = [0 for _ in range(0)]
    ended = [0 for _ in range(0)]
    free = [0 for _ in range(0)]
    while len(ready) > 0:
        task = ready.pop()
        done.append(task)
        for edge in range(first[task], first[task + 1]):
            if after_start[edge]:
                follower = dst[edge]
                start[follower] = max(start[follower], start[task] + delay[edge])
                pending[follower] -= 1
                if pending[follower] == 0:
                    ready.append(follower)
        here = meeting[task]
        if here < 0:
            stop[task] = start[task] + duration[task]
            ended.append(task)
        else:
            met[here] = max(met[here], start[task])
            missing[here] -= 1
            if missing[here] == 0:
                free.append(here)
        while len(free) > 0:
            here = free.pop()
            for place in range(opens[here], opens[here + 1]):
                member = members[place]
                stop[member] = met[here] + transfer[here] + duration[member]
                ended.append(member)
            then = turn[here]
            if then >= 0:
                met[then] = max(met[then], met[here] + transfer[here])
                missing[then] -= 1
                if missing[then] == 0:
                    free.append(then)
        while len(ended) > 0:
            task = ended.pop()
            for edge in range(first[task], first[task + 1]):
                if not after_start[edge]:
                    follower = dst[edge]
                    start[follower] = max(start[follower], stop[task] + delay[edge])
                    pending[follower] -= 1
                    if pending[follower] == 0:
                        ready.append(follower)
            follower = task + 1
            if follower < n and follows[follower]:
                start[follower] = max(start[follower], stop[task] + gap[task])
                pending[follower] -= 1
                if pending[follower] == 0:
                    ready.append(follower)
    return np.array(done, np.int64)
