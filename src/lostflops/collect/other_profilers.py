"""Does the program itself use torch's profiler?

A process has one recording at a time: a second one replaces the first, and stopping the first then crashes. So ours
gives way before another begins, and does not begin as long as another is prepared or runs.
"""

from __future__ import annotations

import functools
import gc
import os
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from torch.autograd import profiler as torch_profiler
from torch.profiler import profiler as scheduled_profiler

_Profile: Final = torch_profiler.profile
ORIGINAL_PREPARE: Final[Callable[[Any], None]] = _Profile._prepare_trace  # noqa: SLF001 - where all profilers begin
ORIGINAL_START: Final[Callable[[Any], None]] = _Profile._start_trace  # noqa: SLF001
_PATIENCE: Final = 30.0
_MOST_FOLDERS: Final = 8


class OtherProfilers:
    """The program's profilers that are prepared or running, and our own, which has to give way to them."""

    def __init__(self) -> None:
        self._active: weakref.WeakSet[Any] = weakref.WeakSet(_running())
        self._give_way: Callable[[], None] | None = None
        self._thread = 0
        self._is_free = threading.Event()
        self.is_waiting = False
        """A profiler on another thread waits until ours has stopped."""
        self.is_lost = False
        """A profiler waited too long and replaced our recording, which must not be stopped any more."""
        self._begun = len(self._active)
        self._folders: dict[str, None] = {}
        _wrap("_prepare_trace", before=self._begins)
        _wrap("__exit__", after=self._forget)
        _watch_exports(self._on_export)

    @property
    def are_active(self) -> bool:
        return len(self._active) > 0

    @property
    def record(self) -> dict[str, Any] | None:
        """How often the program's own profilers began, and the folders they wrote to; None if no profiler began."""
        return {"begun": self._begun, "folders": list(self._folders)} if self._begun else None

    def occupy(self, give_way: Callable[[], None]) -> None:
        """Note that our profiler begins on this thread; `give_way` stops it, on this thread too."""
        self._thread = threading.get_ident()
        self._is_free.clear()
        self._give_way = give_way

    def free(self) -> None:
        self._give_way = None
        self.is_waiting = False
        self._is_free.set()

    def forget(self) -> None:
        """Reset in a forked child: our recording is the parent's, and no waiting thread exists here."""
        self._give_way, self.is_waiting, self._is_free = None, False, threading.Event()

    def _begins(self, profile: Any) -> None:
        give_way = self._give_way
        if give_way is not None and threading.get_ident() == self._thread:
            give_way()
        elif give_way is not None:
            self.is_waiting = True
            self.is_lost = not self._is_free.wait(_PATIENCE)
        self._begun += 1
        self._active.add(profile)

    def _on_export(self, path: Any) -> None:
        """Note the folder of a trace, unless it is a hidden file: `lostflops.trace_handler` writes those into a run."""
        with suppress(TypeError, ValueError, OSError):
            target = Path(os.fsdecode(path)).absolute()
            if not target.name.startswith(".") and len(self._folders) < _MOST_FOLDERS:
                self._folders.setdefault(str(target.parent))

    def _forget(self, profile: Any) -> None:
        self._active.discard(profile)


@functools.cache
def others() -> OtherProfilers:
    """Return the profilers known since the first call, which should come before the program's first profiler."""
    return OtherProfilers()


def _running() -> list[Any]:
    """Return the profilers that were prepared before we watched."""
    found = [thing for thing in gc.get_objects() if type(thing) is _Profile]
    return [profile for profile in found if getattr(profile, "entered", False) and profile.kineto_results is None]


def _watch_exports(exported: Callable[[Any], None]) -> None:
    """Call `exported` with the path of every trace that the program writes, also by `tensorboard_trace_handler`."""
    kind = scheduled_profiler._KinetoProfile  # noqa: SLF001 - what `profile` and programs' own schedules share
    original = kind.export_chrome_trace

    @functools.wraps(original)
    def export(self: Any, path: Any, *arguments: Any, **named: Any) -> Any:
        exported(path)
        return original(self, path, *arguments, **named)

    kind.export_chrome_trace = export


def _wrap(name: str, before: Callable[[Any], None] | None = None, after: Callable[[Any], None] | None = None) -> None:
    original = getattr(_Profile, name)

    @functools.wraps(original)
    def wrapper(self: Any, *arguments: Any) -> Any:
        if before is not None:
            before(self)
        try:
            return original(self, *arguments)
        finally:
            if after is not None:
                after(self)

    setattr(_Profile, name, wrapper)
