"""What a rank does when its step does not end: its stack, and a dump of the Flight Recorder.

A job that hangs is often killed before anybody looks, and its ranks then leave nothing behind. So each rank looks at
itself, on the collector's thread, when a step lasts for 8 s and three times as long as the last ones. If the step ends
after all, what was written is taken back. A thread that holds the interpreter lock for ever keeps ours from looking.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from contextlib import suppress
from types import FrameType
from typing import Any, Final

from lostflops.collect.capture import flight_file
from lostflops.collect.flight_ring import dump_ring
from lostflops.collect.sampler import label

KEY: Final = "stall"
FIRST_LOOK: Final = 8_000_000_000
_USUAL_STEPS: Final = 3
_RECENT: Final = 20
_DEEPEST: Final = 100


class Stalls:
    """Looks at a training thread whose step does not end, after 8 s, 16 s, 32 s, ..."""

    def __init__(self, recorder: Any) -> None:
        self._recorder = recorder
        self._file = flight_file(recorder.settings.folder, recorder.rank)
        self._step, self._next_look = -1, FIRST_LOOK
        self._recent: deque[int] = deque(maxlen=_RECENT)
        self._is_recorded = False
        self._remove_dump()  # of an earlier attempt

    def step_ended(self, duration: int) -> None:
        """Note how long a step took, on the training thread."""
        self._recent.append(duration)

    def is_due(self) -> bool:
        """Return whether the step has lasted so long that the rank should say where it is."""
        step = self._recorder.clock.step
        if step.number != self._step:
            self._step, self._next_look = step.number, max(FIRST_LOOK, _USUAL_STEPS * max(self._recent, default=0))
            self._take_back()
        if step.start < 0 or time.monotonic_ns() - step.start < self._next_look:
            return False
        self._next_look *= 2
        return True

    def record(self, thread: int) -> None:
        """Write the stack of the training thread and the dump."""
        step = self._recorder.clock.step
        stack = _stack(sys._current_frames().get(thread))  # noqa: SLF001 - the documented way
        lasts = time.monotonic_ns() - step.start
        within = self._recorder.interludes.current
        value = {"step": step.number, "ns": lasts, "time": self._recorder.wall(), "stack": stack, "within": within}
        self._recorder.put({"kind": "job", "key": KEY, "value": value})
        self._is_recorded = True
        data = dump_ring()
        if data is not None:
            part = self._file.with_name(f".{self._file.name}.new")
            part.write_bytes(data)
            part.replace(self._file)

    def close(self) -> None:
        """Take back what was written if the program ends by itself: its last step was the last one."""
        if sys.exc_info()[1] is None and getattr(sys, "last_value", None) is None:
            self._take_back()

    def _take_back(self) -> None:
        if self._is_recorded:
            self._is_recorded = False
            self._recorder.put({"kind": "job", "key": KEY, "value": {"time": self._recorder.wall(), "stack": []}})
            self._remove_dump()

    def _remove_dump(self) -> None:
        with suppress(OSError):
            self._file.unlink()


def _stack(frame: FrameType | None) -> list[str]:
    """Return the frames as function, file and line; the innermost is the last."""
    labels: list[str] = []
    while frame is not None and len(labels) < _DEEPEST:
        labels.append(label(frame))
        frame = frame.f_back
    return labels[::-1]
