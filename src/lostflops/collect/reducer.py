"""Reduce one trace, as a program: python -E -P reducer.py TRACE FOLDER [idle]

It must cost training nothing, because other processes of a job may still train when one has ended: with `idle` it runs
only when no other process wants the processor, and it is the first to be killed when memory is short. It runs in the
Python of `lostflops run`, which has the packages of an ingest. Its last words on stderr are the reason for a failure.
"""

from __future__ import annotations

import gc
import os
import resource
import signal
import sys
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Final

LONGEST: Final = 600
_MOST_MEMORY: Final = 4 << 30
"""Limit of the address space in bytes; an ingest of one trace uses a tenth of it, whatever the size of the trace."""


def give_way() -> None:
    """Take the lowest priority for the processor, and so for the disk: only what others leave over.

    Where Linux shares processors among sessions first (autogroups), a priority counts only within a session. So the
    session's priority is lowered too, if the session was made for this.
    """
    try:
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    except (AttributeError, OSError):
        with suppress(OSError):
            os.nice(19)
    if os.getsid(0) in (os.getpid(), os.getppid()):
        with suppress(OSError):
            Path("/proc/self/autogroup").write_text("19")
    _give_memory_first()


def _give_memory_first() -> None:
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")


def _limit() -> None:
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(LONGEST)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_AS, (_MOST_MEMORY, _MOST_MEMORY))


def _load_lostflops(package: Path) -> None:
    """Make the Lostflops that this file belongs to importable, whatever else is installed.

    Packages whose `__init__` imports all of an ingest are made empty: that would take longer than a small trace.
    """
    for name in ("", ".ingest", ".ingest.formats"):
        module = ModuleType(f"lostflops{name}")
        module.__path__ = [str(package.joinpath(*name.split(".")))]
        sys.modules[module.__name__] = module


def _words(error: BaseException) -> str:
    """Return the reason of a failure without paths, which may reveal more than is meant to be recorded."""
    if isinstance(error, ModuleNotFoundError):
        return f"{error.name} is not installed where lostflops runs"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return type(error).__name__


def main(trace: Path, folder: Path, how: str = "") -> None:
    if how == "idle":
        give_way()
    _give_memory_first()
    _limit()
    gc.disable()  # looking for cycles, of which decoding makes none, costs a third of the time
    try:
        _load_lostflops(Path(__file__).resolve().parents[1])
        clean = import_module("lostflops.collect.placing").clean_blocks
        import_module("lostflops.ingest.reduce").reduce(trace, folder, clean)
    except Exception as error:  # noqa: BLE001 - the trace is kept as it is, whatever it was
        sys.exit(_words(error))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:])
