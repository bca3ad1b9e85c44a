"""Replay of a rank's timeline with other transfers, or with compute times multiplied by a factor.

A lane runs one call at a time, in the order of issue. A call waits for its members as long as it did, then moves data;
calls on the same link share it evenly. Without changes, the replay gives the measured times.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from lostflops.predict.scaling.timeline import Queued, StepTimeline

_NOTHING: Final = 1e-3
"""Rest of a transfer that is only rounding, in ns."""


def replay(
    steps: StepTimeline,
    transfers: Sequence[float] | None = None,
    compute: float = 1.0,
    waits: Sequence[float] | None = None,
) -> npt.NDArray[np.float64]:
    """Return the time of each step. `transfers` are the times of calls alone, `waits` how long they wait for members;
    both are as measured if not given."""
    links = _Links(
        steps.queued,
        transfers if transfers is not None else [call.alone for call in steps.queued],
        waits if waits is not None else [call.wait for call in steps.queued],
    )
    now = began = 0.0
    edges = []
    for point in steps.points:
        now += compute * point.compute + point.other
        if point.kind == "issue":
            links.issue(point.calls, now + point.delay)
        elif point.kind == "edge":
            edges.append(now)
        elif point.kind == "edge within":
            edges.append(began + point.delay * (now - began))
        else:
            began, now = now, max(now, links.finish(point.calls))
    return np.diff(np.array(edges))[::2]


class _Links:
    """Calls in flight; `finish` is asked in the order of time, after everything that was issued until then."""

    def __init__(self, calls: Sequence[Queued], transfers: Sequence[float], waits: Sequence[float]) -> None:
        self._calls, self._left, self._waits = calls, list(transfers), waits
        self._queues: dict[int, deque[tuple[float, int]]] = {}
        self._busy: set[int] = set()
        self._meeting: dict[int, float] = {}
        self._moving: list[int] = []
        self._done: dict[int, float] = {}
        self._now = 0.0

    def issue(self, calls: Iterable[int], time: float) -> None:
        for call in calls:
            self._queues.setdefault(self._calls[call].lane, deque()).append((time, call))

    def finish(self, calls: Iterable[int]) -> float:
        wanted = [call for call in calls if call not in self._done]
        while any(call not in self._done for call in wanted):
            self._advance()
        return max((self._done[call] for call in calls), default=0.0)

    def _advance(self) -> None:
        """Advance to the next start or end of any call."""
        self._start()
        rates = self._rates()
        times = [queue[0][0] for lane, queue in self._queues.items() if queue and lane not in self._busy]
        times += self._meeting.values()
        times += [self._now + self._left[call] * rate for call, rate in rates]
        then = max(min(times), self._now)
        for call, rate in rates:
            self._left[call] -= (then - self._now) / rate
        self._now = then
        for call in [call for call in self._moving if self._left[call] <= _NOTHING]:
            self._moving.remove(call)
            self._busy.discard(self._calls[call].lane)
            self._done[call] = then
        for call in [call for call, ready in self._meeting.items() if ready <= then]:
            del self._meeting[call]
            self._moving.append(call)

    def _start(self) -> None:
        for lane, queue in self._queues.items():
            if queue and lane not in self._busy and queue[0][0] <= self._now:
                _, call = queue.popleft()
                self._busy.add(lane)
                self._meeting[call] = self._now + self._waits[call]

    def _rates(self) -> list[tuple[int, float]]:
        """Return the calls that move data, and how many share the link of each."""
        links = [self._calls[call].link for call in self._moving]
        return [
            (call, 1.0 if link is None else float(links.count(link)))
            for call, link in zip(self._moving, links, strict=True)
        ]
