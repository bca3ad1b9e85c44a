"""A job that watches itself: it asks for a window when it becomes slower, and for a verdict when it hangs.

The decisions are here; what they do (request, ingest, write, send) is in `SelfWatchActions`, so that tests need no job.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Protocol

from lostflops.account.facts.changes import JobChange
from lostflops.core.errors import LostflopsError
from lostflops.core.units import format_ns, pluralise
from lostflops.live.board import Board, StepLine
from lostflops.live.notices import Notice, describe_change
from lostflops.live.sessions import Attempt

MessageKind = Literal["slower", "late_rank", "data", "memory", "hang", "finding", "moving"]

_HOUR: Final = 3600.0
_LONGEST_WINDOW: Final = 900.0
"""Seconds after which the traces of a window are not waited for any more."""
_FOR_DUMPS: Final = 20.0
"""Seconds that ranks get to write where they are, once the job seems to hang."""
_HANG: Final = 60.0
_HANG_FACTOR: Final = 2.0
"""A job hangs if no step ends for so many seconds, and so many times as long as its longest step took so far."""
_LONGEST_INTERLUDE: Final = 1800.0
"""A rank that saves a checkpoint or evaluates may take so many seconds, and so may a first step, which may compile, and
a restart after the processes of a job were killed."""
_KEPT_STEPS: Final = 64
"""A message has so many of the last steps, so that it shows what led to it."""


class SelfWatchActions(Protocol):
    def ask_window(self, step_ns: float) -> int:
        """Request a window on all ranks and return its number; raise `LostflopsError` if that is not possible."""

    def is_written(self, window: int) -> bool:
        """Return whether all ranks have written their trace of the window, or why they did not."""

    def explain_window(self, window: int) -> str:
        """Return what the window shows, and where to read on."""

    def are_dumped(self) -> bool:
        """Return whether all ranks have written where they are."""

    def are_gone(self) -> bool:
        """Return whether the processes of the ranks here have ended without saying so: the job was killed, and may be
        started again."""

    def explain_hang(self) -> str:
        """Return which ranks block the job, and where in the program they are."""

    def report(self, kind: MessageKind, text: str, facts: dict[str, Any]) -> None:
        """Write a message where people look."""


@dataclass(slots=True)
class SelfWatch:
    """Takes what a board says about each look at the job."""

    board: Board
    actions: SelfWatchActions
    per_hour: int = 2
    """At most so many windows an hour; 0 for none."""
    _asked: deque[float] = field(default_factory=deque)
    """When windows were requested in the last hour."""
    _open: dict[int, float] = field(default_factory=dict)
    """Windows that are being recorded, and when each was requested."""
    _stalled: bool = False
    """Whether the board reported a stall that is not explained yet."""
    _longest: float = 0.0
    """Longest step of the attempt, in seconds."""
    _is_hanging: bool = False
    _recent: deque[StepLine] = field(default_factory=lambda: deque(maxlen=_KEPT_STEPS))
    _known_changes: int = 0
    _attempt: int = -1

    def look(self, said: Iterable[StepLine | Notice], now: float) -> None:
        for item in said:
            if isinstance(item, StepLine):
                self._recent.append(item)
                self._longest = max(self._longest, item.time / 1e9)
                self._moves()
            elif item.kind == "attempt":
                self._begin(item.attempt)
            elif item.kind == "stall" and not self._is_hanging:
                self._stalled = True
        changes = self.board.changes
        for change in changes[self._known_changes :]:
            self._report_change(change, now)
        self._known_changes = len(changes)
        self._finish_windows(now)
        if not self._is_hanging and self._hangs(now):
            self._report_hang(now)

    def _hangs(self, now: float) -> bool:
        """Return whether no step has ended for so long that it is no pause, and ranks have written where they are."""
        attempt = self.board.current
        if attempt is None or attempt.is_ended or not (self._stalled or attempt.progress is None):
            return False
        quiet = now - _last_progress(attempt)
        is_paused = attempt.progress is None or any(session.interlude for session in attempt.sessions.values())
        limit = _LONGEST_INTERLUDE if is_paused else max(_HANG, _HANG_FACTOR * self._longest)
        if quiet <= limit or not (quiet > limit + _FOR_DUMPS or self.actions.are_dumped()):
            return False
        return quiet > _LONGEST_INTERLUDE or not self.actions.are_gone()

    def _begin(self, attempt: int) -> None:
        self._attempt = attempt
        self._known_changes, self._stalled, self._is_hanging, self._longest = 0, False, False, 0.0
        self._open.clear()
        self._recent.clear()

    def _moves(self) -> None:
        self._stalled = False
        if self._is_hanging:
            self._is_hanging = False
            self._report("moving", "Steps end again.")

    def _report_change(self, change: JobChange, now: float) -> None:
        text = describe_change(change)
        facts: dict[str, Any] = {"step": change.step, "before": change.before, "after": change.after}
        if change.rank is not None:
            facts["ranks"] = [change.rank]
        while self._asked and now - self._asked[0] > _HOUR:
            self._asked.popleft()
        if len(self._asked) >= self.per_hour:
            limit = f"the limit is {pluralise(self.per_hour, 'window')} per hour"
            self._report(change.kind, f"{text} No window is recorded: {limit}.", facts)
            return
        try:
            window = self.actions.ask_window(change.after if change.kind != "memory" else self._step_ns())
        except LostflopsError as error:
            self._report(change.kind, f"{text} No window is recorded: {str(error).removesuffix('.')}.", facts)
            return
        self._asked.append(now)
        self._open[window] = now
        self._report(change.kind, f"{text} Recording window {window} to find out why.", {**facts, "window": window})

    def _step_ns(self) -> float:
        return self.board.totals.recent_median()

    def _finish_windows(self, now: float) -> None:
        for window, asked in list(self._open.items()):
            if self.actions.is_written(window) or now - asked > _LONGEST_WINDOW:
                del self._open[window]
                self._report("finding", self.actions.explain_window(window), {"window": window})

    def _report_hang(self, now: float) -> None:
        self._stalled, self._is_hanging = False, True
        quiet = now - _last_progress(self.board.current) if self.board.current else 0.0
        since = f"No step has ended for {format_ns(round(quiet * 1e9))}."
        self._report("hang", f"{since} {self.actions.explain_hang()}", {})

    def _report(self, kind: MessageKind, text: str, facts: dict[str, Any] | None = None) -> None:
        self.actions.report(kind, text, {"attempt": self._attempt, **(facts or {}), "last_steps": self._last_steps()})

    def _last_steps(self) -> list[dict[str, Any]]:
        return [
            {
                "step": line.step,
                "time_ns": line.time,
                "slowest_rank": line.slowest,
                "longest_wait_ns": line.longest_wait,
            }
            for line in self._recent
        ]


def _last_progress(attempt: Attempt) -> float:
    """Return when a step last ended, or the attempt began."""
    return attempt.begun if attempt.progress is None else attempt.progress
