"""Running a command so that its Python processes record themselves, and it notices nothing else of us."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from lostflops.collect.settings import VARIABLE, Settings

_SHIM: Final = Path(__file__).resolve().parent / "shim"
_PASSED_ON: Final = frozenset(
    {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2}
)


def recorded_environment(environment: Mapping[str, str], settings: Settings) -> dict[str, str]:
    """The environment with our place at the head of Python's path, and what to record."""
    others = environment.get("PYTHONPATH")
    path = os.pathsep.join([str(_SHIM), *([others] if others else [])])
    return {**environment, "PYTHONPATH": path, VARIABLE: settings.to_text()}


def run_command(words: Sequence[str], environment: Mapping[str, str], meanwhile: Callable[[], None]) -> int:
    """Run a command to its end and return its wait status; signals sent to us reach it.

    One that a terminal sends goes to the whole group, so the command has it already; one that a program sends to us
    alone is passed on. `meanwhile` is called about once a second.
    """
    watched = _PASSED_ON | {signal.SIGCHLD}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, watched)
    try:
        child = os.posix_spawnp(words[0], list(words), dict(environment), setsigmask=before)
        return _wait(child, watched, meanwhile)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _wait(child: int, watched: frozenset[signal.Signals], meanwhile: Callable[[], None]) -> int:
    while True:
        found = signal.sigtimedwait(watched, 1.0)
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return status
        if found is None:
            meanwhile()
        elif found.si_signo != signal.SIGCHLD and found.si_code <= 0:
            os.kill(child, found.si_signo)
