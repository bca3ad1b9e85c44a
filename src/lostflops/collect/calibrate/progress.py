"""Progress for people: a bar on a terminal, otherwise a line now and then. Only rank 0 prints."""

from __future__ import annotations

import sys
import time
from typing import Final

_WIDTH: Final = 30
_QUIET: Final = 10.0
_REDRAWN: Final = 0.1


class CalibrationProgress:
    def __init__(self, is_shown: bool, seconds: float) -> None:
        self._began = time.monotonic()
        self._seconds = seconds
        self._is_shown = is_shown
        self._is_terminal = sys.stderr.isatty()
        self._last = self._began if not self._is_terminal else 0.0

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self._began

    def say(self, what: str) -> None:
        now = time.monotonic()
        if not self._is_shown or now - self._last < (_REDRAWN if self._is_terminal else _QUIET):
            return
        self._last = now
        text = bar(what, self.elapsed, self._seconds)
        if self._is_terminal:
            print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)
        else:
            print(f"lostflops: {text}", file=sys.stderr, flush=True)

    def close(self) -> None:
        if self._is_shown and self._is_terminal:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def bar(what: str, elapsed: float, seconds: float) -> str:
    """Return a progress bar with the time and what is measured.

    >>> bar("all_reduce, host, 1 MB", 30, 120)
    '[#######                       ]  30 of 120 s  all_reduce, host, 1 MB'
    """
    filled = int(_WIDTH * min(elapsed / seconds, 1))
    return f"[{'#' * filled:<{_WIDTH}}] {elapsed:3.0f} of {seconds:.0f} s  {what}"
