"""On which steps windows are: arithmetic that every rank does for itself, and requests that are files.

Window 0 comes from the settings, windows 1, 2, ... are asked for while the job runs (`lostflops snap`), and repetitions
are numbered from `REPEATS` on. An automatic window is repeated once. Ranks never talk: a window is known by its steps,
and each compares its own counter.
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
    """What `ranks` is compared with."""

    rank: int
    local_rank: int

    def is_asked(self, ranks: str) -> bool:
        """Whether this rank is among `all`, `hosts` or numbers such as `0,8`; ValueError if it is none of these.

        >>> RankNumbers(8, 0).is_asked("hosts"), RankNumbers(8, 0).is_asked("0,8"), RankNumbers(8, 0).is_asked("1")
        (True, True, False)
        """
        if ranks in ("all", "hosts"):
            return ranks == "all" or self.local_rank == 0
        return self.rank in {int(number) for number in ranks.split(",")}


def plan_window(steps: str, ranks: str) -> WindowRequest | None:
    """Window 0; ValueError where the steps are none.

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
    """The window that follows `number` times later."""
    return replace(base, window=REPEATS + number, first=base.first + number * every)


def second(first: WindowRequest) -> WindowRequest:
    """The automatic window that follows the first, of the same length. Where it begins does not depend on the length:
    a rank that did not learn of rank 0's in time has one of its own.

    >>> second(WindowRequest(0, 8, 12))
    WindowRequest(window=5001, first=44, steps=12, ranks='all')
    """
    return repeat_window(first, 1, AUTO_SECOND)


class Moves:
    """Rank 0 decides on window 0 of `auto`: its length, and while the program still compiles a later place, twice as
    far, a few times at most."""

    def __init__(self, folder: Path) -> None:
        self._file = request_file(folder, 0)
        self._known = _signature(self._file)
        self._compiled = -1
        self._count = 0

    def note_compilation(self, step: int) -> None:
        self._compiled = max(self._compiled, step)

    def decide(self, window: WindowRequest, step: int, steps: int) -> None:
        """On rank 0, two steps ahead: publish the length, and a later place if one of the last two steps compiled."""
        is_moved = self._compiled >= step - 2 and self._count < _MOST_MOVES
        self._count += is_moved
        publish(self._file, replace(window, first=window.first * (2 if is_moved else 1), steps=steps))

    def look(self) -> WindowRequest | None:
        """What was published since the last look."""
        found = _signature(self._file)
        if found is None or found == self._known:
            return None
        self._known = found
        return WindowRequest.from_bytes(self._file.read_bytes())


class Requests:
    """Requests that arrive while the job runs; those of an earlier start of the job are passed over."""

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
    """Put a request where ranks look, whole or not at all; FileExistsError if it must be new and is not."""
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_name(f".{file.name}.{os.getpid()}")
    part.write_bytes(request.to_bytes())
    try:
        if is_new:
            os.link(part, file)
        else:
            part.replace(file)
    finally:
        part.unlink(missing_ok=True)


def next_number(folder: Path) -> int:
    """A window that nobody has asked for."""
    numbers = [int(file.stem) for file in (folder / WINDOWS).glob("*.json") if file.stem.isdigit()]
    return max((number for number in numbers if number < REPEATS), default=0) + 1


def _signature(file: Path) -> tuple[int, int] | None:
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino
