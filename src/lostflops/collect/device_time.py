"""Time on the accelerator between edges of phases and steps, from events that are polled and never waited for."""

from __future__ import annotations

from collections import deque
from typing import Any, Final

from lostflops.collect.graph_captures import GraphCaptures

_MOST_PENDING: Final = 64


class DeviceTime:
    """Device time of phases and steps, which are marked on the training thread and polled on any thread.

    A duration is known once the device has passed both of its marks.
    """

    def __init__(self, make_event: Any, captures: GraphCaptures | None = None) -> None:
        self._make_event = make_event
        self._captures = captures or GraphCaptures()
        self._marks: deque[tuple[Any, int, int | None]] = deque()
        """Event, phase that begins there (-1: no phase) and step that ended there (None: no step)."""
        self._step: dict[str, int] = {}
        self._is_whole = False
        self._phase = -1
        self.lost = 0

    def phase(self, phase: int) -> None:
        """Mark the beginning of `phase`; -1 is no phase."""
        self._phase = phase
        self._mark(phase, None)

    def step(self, number: int) -> None:
        """Mark the beginning of step `number`, which is the end of the step before."""
        self._mark(self._phase, number - 1)

    def _mark(self, phase: int, ended_step: int | None) -> None:
        if self._captures.are_open:
            # An event would become part of the program's graph; the step that is captured is not measured.
            self._marks.clear()
            self._is_whole = False
            return
        if len(self._marks) >= _MOST_PENDING * 8:
            self._marks.clear()
            self.lost += 1
            self._is_whole = False
        event = self._make_event()
        event.record()
        self._marks.append((event, phase, ended_step))

    def poll(self) -> list[dict[str, Any]]:
        """Return records of the steps that the device has finished."""
        found = []
        while len(self._marks) >= 2 and self._marks[1][0].query():
            begin, phase, _ = self._marks.popleft()
            end, _, ended_step = self._marks[0]
            lasted = round(begin.elapsed_time(end) * 1e6)
            for key in ("time", *_PHASE_KEYS.get(phase, ())):
                self._step[key] = self._step.get(key, 0) + lasted
            if ended_step is not None:
                if self._is_whole:
                    found.append({"kind": "device_step", "step": ended_step, **self._step})
                self._step, self._is_whole = {}, True
        return found


_PHASE_KEYS: Final = {0: ("data",), 1: ("forward",), 2: ("backward",), 3: ("optimizer",)}


def device_time(captures: GraphCaptures) -> DeviceTime | None:
    """Return a `DeviceTime` for the job's accelerator; None if the job uses no accelerator."""
    from functools import partial

    import torch

    from lostflops.collect.accelerator import accelerator, module_of

    kind = accelerator()
    if kind is None:
        return None
    event = getattr(module_of(kind), "Event", None) or partial(torch.Event, kind)
    return DeviceTime(partial(event, enable_timing=True), captures)
