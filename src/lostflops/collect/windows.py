"""Deep windows: a few steps recorded by torch's profiler, on the same steps of all ranks.

    planned -> started -> stopped -> exported       or skipped, or failed, each with its reason

The step before a window is the profiler's warm-up. A window opens and closes between two steps, on the training thread;
its trace is written by another process. An error ends the window, and nothing else.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import replace
from typing import Any, Final

from lostflops.collect.capture import WindowRequest
from lostflops.collect.clock_exchange import ClockExchange
from lostflops.collect.export import TraceForm
from lostflops.collect.open_window import OpenWindow
from lostflops.collect.other_profilers import others
from lostflops.collect.profiling import is_another_active, silence_profiler
from lostflops.collect.sampler import Sampler
from lostflops.collect.traces import TraceFiles
from lostflops.collect.window_length import LastSteps
from lostflops.collect.window_plan import REPEATS, Moves, RankNumbers, Requests, plan_window, repeat_window, second

_NEVER: Final = 1 << 62
_LONGEST_DRAIN: Final = 2
"""Steps that a device may need to finish what a window's last step queued."""


class Windows:
    def __init__(self, recorder: Any) -> None:
        self._recorder, settings = recorder, recorder.settings
        others()
        self._place = RankNumbers(recorder.rank, recorder.local_rank)
        self._moves, self._requests = Moves(settings.folder), Requests(settings.folder)
        form = TraceForm(settings.reducer, settings.keep_raw)
        self._traces = TraceFiles(settings.folder, recorder.rank, self._tell, form)
        self._clocks = ClockExchange(recorder)
        self.sampler = Sampler(recorder.put, recorder.wall)
        self._base = plan_window(settings.steps, settings.ranks)
        self._is_auto = settings.steps == "auto"
        self._last_steps = LastSteps()
        self._begun: WindowRequest | None = None
        """Window 0, if it is open or was."""
        self._plan: list[WindowRequest] = []
        self._inbox: deque[WindowRequest] = deque()
        self._open: OpenWindow | None = None
        self._step = self._next = 0
        if self._base is not None:
            self._add(self._base)

    @property
    def is_profiling(self) -> bool:
        return self._open is not None

    def note_compilation(self, step: int) -> None:
        self._moves.note_compilation(step)

    def edge(self, step: int) -> None:
        """Do what is due before `step` begins, on the training thread."""
        self._step = step
        if self._is_auto and self._begun is None:
            self._last_steps.edge()
        if step < self._next and self._open is None and not self._inbox:
            return
        try:
            self._turn(step)
        except Exception as error:  # noqa: BLE001 - of any kind, and none may reach the program
            self._on_error(error)

    def poll(self) -> None:
        """Look for new requests, and for traces that have been written, on the collector's thread."""
        self._traces.poll()
        try:
            self._look()
        except (OSError, ValueError) as error:
            self._recorder.note("window_requests", f"a window request cannot be read: {type(error).__name__}")

    def _look(self) -> None:
        request = self._requests.look()
        if request is not None:
            self._inbox.append(request)
        if self._is_auto and self._begun is not None:
            decided = self._moves.look()
            if decided is None:
                return
            if decided.first != self._begun.first:
                self._recorder.note("window_moved", f"window 0 moved to step {decided.first} after it had started here")
            self._inbox.append(decided)

    def close(self) -> None:
        """End all windows at exit, and write what is left."""
        self._clocks.close()
        self.give_up("the program ended")
        self._traces.close()

    def give_up(self, reason: str) -> None:
        """End all windows, because no step follows; an open window keeps its whole steps, and goes if it has none."""
        if (
            self._open is not None
            and self._step <= self._open.request.first
            and "memory" not in self._recorder.settings.options
        ):
            window, self._open = self._open, None
            window.abandon()
            others().free()
            self._tell(window.request, "skipped", f"{reason} before the first step of the window was over")
        elif self._open is not None:
            self._open.mark_unfinished(self._step)
            self._end(f"{reason} in step {self._step}", is_last=True)
        for request in self._plan:
            if request.window < REPEATS and self._place.is_asked(request.ranks):
                self._tell(request, "skipped", f"{reason} before the window")
        self._plan.clear()

    def abandon(self) -> None:
        """Forget the open window in a forked child: what was recorded is the parent's, and nothing is added to it."""
        if self._open is not None:
            self._open = None
            others().forget()
            silence_profiler()

    def _turn(self, step: int) -> None:
        while self._inbox:
            self._take(self._inbox.popleft())
        window = self._open
        if window is not None:
            self._go_on(window, step)
        if self._open is None:
            self._begin_due(step)
        self._next = min((self._attention(request) for request in self._plan), default=_NEVER)

    def _attention(self, request: WindowRequest) -> int:
        """Return the step before which there is something to do for a request."""
        return request.first - (2 if self._is_movable(request) and self._recorder.rank == 0 else 1)

    def _is_movable(self, request: WindowRequest) -> bool:
        return self._is_auto and request.window == 0

    def _take(self, request: WindowRequest) -> None:
        """Add a window to come, or set the length of the open one, which rank 0 decided and this rank learned late."""
        begun = self._begun if request.window == 0 else None
        window = self._open if self._open is not None and self._open.request == begun else None
        if begun is None or request.first != begun.first:
            if window is not None:
                self._end(f"rank 0 moved the window to step {request.first}")
            self._add(request)
        elif window is not None and self._step <= begun.first + begun.steps:
            window.request = self._begun = request

    def _add(self, request: WindowRequest) -> None:
        try:
            is_asked = self._place.is_asked(request.ranks)
        except ValueError:
            self._tell(request, "skipped", f"{request.ranks[:50]!r} does not name ranks")
            return
        if is_asked or self._is_movable(request):
            self._plan = [known for known in self._plan if known.window != request.window] + [request]
            self._next = min(self._next, self._attention(request))
            if is_asked:
                self._tell(request, "planned")

    def _begin_due(self, step: int) -> None:
        for request in sorted(self._plan, key=lambda found: found.first):
            if self._is_movable(request) and step == request.first - 2 and self._recorder.rank == 0:
                self._moves.decide(request, step, self._length())
            if step >= request.first - 1 and self._open is None:
                self._begin_or_move(request, step)
            elif step >= request.first:
                self._plan.remove(request)
                self._drop(request, "skipped", "another window was open")

    def _begin_or_move(self, request: WindowRequest, step: int) -> None:
        decided = self._moves.look() if self._is_movable(request) else None
        if decided is not None and decided.first - 1 > step:
            self._add(decided)
            return
        self._plan.remove(request)
        if self._is_movable(request):
            request = self._with_length(request, decided)
        if step > request.first:
            self._drop(request, "skipped", f"the request arrived too late, at step {step}")
        elif not self._place.is_asked(request.ranks):
            self._follow(request)
        elif is_another_active():
            self._drop(request, "skipped", "another profiler is active")
        else:
            self._start(request, step)

    def _with_length(self, request: WindowRequest, decided: WindowRequest | None) -> WindowRequest:
        """Return the request with the length that rank 0 decided, or with this rank's own if that is not known yet."""
        if decided is not None and decided.first == request.first:
            return decided
        return replace(request, steps=self._length()) if request == self._base else request

    def _length(self) -> int:
        return self._last_steps.window_steps(self._recorder.optimizers())

    def _start(self, request: WindowRequest, step: int) -> None:
        if request.window == 0:
            self._begun = request
        self._open = OpenWindow(self._recorder, request, self.sampler)
        others().occupy(self._give_way)
        self._open.prepare()
        if step == request.first:
            self._go_on(self._open, step)

    def _go_on(self, window: OpenWindow, step: int) -> None:
        request, last = window.request, window.request.first + window.request.steps
        if others().is_waiting:
            self._end("another profiler started")
        elif step == request.first:
            window.start(step)
            self._tell(request, "started", cost=window.cost)
        elif step < last:
            window.next_step(step)
        elif window.is_drained or step >= last + _LONGEST_DRAIN:
            self._end(None)

    def _give_way(self) -> None:
        """End our window, because the program starts a profiler of its own on this thread."""
        try:
            self._end("another profiler started")
        except Exception as error:  # noqa: BLE001
            self._on_error(error)

    def _end(self, reason: str | None, *, is_last: bool = False) -> None:
        window = self._open
        assert window is not None
        result = window.stop()
        self._open = None
        others().free()
        if not is_last:
            self._follow(window.request)
        if result is None:
            self._tell(window.request, "skipped" if reason else "failed", reason or "the profiler was not running")
            return
        self._tell(window.request, "stopped", reason, cost=window.cost)
        self._traces.write(window.request, result)
        if not is_last:
            self._clocks.begin(window.request.window)

    def _follow(self, request: WindowRequest) -> None:
        """Plan the repetition that follows a window that is over, if there is one."""
        every, base = self._recorder.settings.repeat, self._base
        if every > 0 and base is not None and not 0 < request.window < REPEATS:
            over = max(self._step, request.first + request.steps)
            self._add(repeat_window(base, (over - base.first) // every + 1, every))
        elif self._is_movable(request):
            self._add(second(request))

    def _drop(self, request: WindowRequest, state: str, reason: str) -> None:
        self._tell(request, state, reason)
        self._follow(request)

    def _on_error(self, error: Exception) -> None:
        window, self._open = self._open, None
        reason = f"{type(error).__name__} in the collector"
        self._recorder.note("windows_failed", reason)
        if window is not None:
            window.abandon()
            others().free()
            self._tell(window.request, "failed", reason)
            self._follow(window.request)

    def _tell(
        self, request: WindowRequest, state: str, reason: str | None = None, *, cost: int = 0, file: str | None = None
    ) -> None:
        self._recorder.put(
            {"kind": "window", "window": request.window, "first": request.first, "steps": request.steps, "state": state,
             "time": self._recorder.wall(time.monotonic_ns()), "reason": reason, "cost": cost, "file": file}
        )  # fmt: skip
