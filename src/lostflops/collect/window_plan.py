"""Steps of windows: each rank computes them by itself, and requests are files.

Window 0 comes from the settings, windows 1, 2, ... are requested while the job runs (`lostflops snap`), and repetitions
are numbered from `REPEATS` on. An automatic window is repeated once. Ranks do not communicate: a window is defined by
its steps, and each rank compares its own counter.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from lostflops.collect.capture import WINDOWS, WindowRequest, request_file
from lostflops.collect.window_length import USUAL

REPEATS: Final = 5000
AUTO_FIRST: Final = 8
AUTO_SECOND: Final = 36
"""Steps between the two automatic windows."""
_MOST_MOVES: Final = 5


@dataclass(frozen=True, slots=True)
class RankNumbers:
    """A rank's number in the job and on its host, with which `ranks` of a request is compared."""

    rank: int
    local_rank: int

    def is_asked(self, ranks: str) -> bool:
        """Return whether this rank is among `all`, `hosts` or numbers such as `0,8`; raise ValueError for other texts.

        >>> RankNumbers(8, 0).is_asked("hosts"), RankNumbers(8, 0).is_asked("0,8"), RankNumbers(8, 0).is_asked("1")
        (True, True, False)
        """
        if ranks in ("all", "hosts"):
            return ranks == "all" or self.local_rank == 0
        return self.rank in {int(number) for number in ranks.split(",")}


def plan_window(steps: str, ranks: str) -> WindowRequest | None:
    """Return window 0, None if `steps` is `none`; raise ValueError if it is not a range of steps.

    >>> plan_window("20:2", "all")
    WindowRequest(window=0, first=20, steps=2, ranks='all')
    """
    if steps == "none":
        return None
    if steps == "auto":
        return WindowRequest(0, AUTO_FIRST, USUAL, ranks)
    first, count = (int(number) for number in steps.split(":"))
    if first < 0 or count < 1:
        raise ValueError(f"{steps} is not a range of steps")
    return WindowRequest(0, first, count, ranks)


def repeat_window(base: WindowRequest, number: int, every: int) -> WindowRequest:
    """Return repetition `number` of a window that repeats every `every` steps."""
    return replace(base, window=REPEATS + number, first=base.first + number * every)


def second(first: WindowRequest) -> WindowRequest:
    """Return the automatic window that follows the first, of the same length.

    Its beginning does not depend on the length: a rank that did not learn rank 0's length in time uses its own.

    >>> second(WindowRequest(0, 8, 12))
    WindowRequest(window=5001, first=44, steps=12, ranks='all')
    """
    return repeat_window(first, 1, AUTO_SECOND)


class Moves:
    """Rank 0's decisions on window 0 of `auto`: its length and, while the program still compiles, a later step.

    Each move doubles the window's first step; there are a few moves at most.
    """

    def __init__(self, folder: Path) -> None:
        self._file = request_file(folder, 0)
        self._known = _signature(self._file)
        self._compiled = -1
        self._count = 0

    def note_compilation(self, step: int) -> None:
        self._compiled = max(self._compiled, step)

    def decide(self, window: WindowRequest, step: int, steps: int) -> None:
        """Publish the length, on rank 0 and two steps ahead, and a later step if one of the last two steps compiled."""
        is_moved = self._compiled >= step - 2 and self._count < _MOST_MOVES
        self._count += is_moved
        publish(self._file, replace(window, first=window.first * (2 if is_moved else 1), steps=steps))

    def look(self) -> WindowRequest | None:
        """Return what was published since the last look; None if nothing was."""
        found = _signature(self._file)
        if found is None or found == self._known:
            return None
        self._known = found
        return WindowRequest.from_bytes(self._file.read_bytes())


class Requests:
    """Requests that arrive while the job runs; those of an earlier start of the job are ignored."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._next = 1
        while request_file(folder, self._next).exists():
            self._next += 1

    def look(self) -> WindowRequest | None:
        file = request_file(self._folder, self._next)
        try:
            data = file.read_bytes()
        except FileNotFoundError:
            return None
        self._next += 1
        return WindowRequest.from_bytes(data)


def publish(file: Path, request: WindowRequest, *, is_new: bool = False) -> None:
    """Put a request where ranks look, whole or not at all; raise FileExistsError if it must be new and is not."""
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        part.write_bytes(request.to_bytes())
        if is_new:
            os.link(part, file)
        else:
            part.replace(file)
    finally:
        part.unlink(missing_ok=True)


def next_number(folder: Path) -> int:
    """Return the number of a window that has not been requested yet."""
    numbers = [int(file.stem) for file in (folder / WINDOWS).glob("*.json") if file.stem.isdigit()]
    return max((number for number in numbers if number < REPEATS), default=0) + 1


def _signature(file: Path) -> tuple[int, int] | None:
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino
