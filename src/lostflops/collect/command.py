"""Run a command so that its Python processes record themselves, and nothing else changes for it."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from lostflops.collect.settings import VARIABLE, Settings

_SHIM: Final = Path(__file__).resolve().parent / "shim"
_PASSED_ON: Final = frozenset(
    {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2}
)
_RESTORED: Final = frozenset({signal.SIGPIPE, signal.SIGXFSZ})
"""Signals that Python ignores by default; the command would inherit that."""

_LOOK_AGAIN: Final = 0.5


def recorded_environment(environment: Mapping[str, str], settings: Settings) -> dict[str, str]:
    """Return the environment with our shim first in PYTHONPATH, and with the settings of the recording."""
    others = environment.get("PYTHONPATH")
    path = os.pathsep.join([str(_SHIM), *([others] if others else [])])
    return {**environment, "PYTHONPATH": path, VARIABLE: settings.to_text()}


def run_command(
    words: Sequence[str], environment: Mapping[str, str], meanwhile: Callable[[], None], output: int = 1
) -> int:
    """Run a command to its end and return its wait status; signals sent to us reach it. `output` is its stdout.

    A signal from a terminal goes to the whole process group, so the command has it already; a signal that a program
    sends to us alone is forwarded. `meanwhile` is called about once a second on its own thread: it may fail, and it may
    hang.
    """
    watched = _PASSED_ON | {signal.SIGCHLD}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, watched)
    # Where it was ignored when we started, nobody would tell us that the command has ended.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    has_ended = threading.Event()
    try:
        child = _spawn(words, environment, before, output)
        threading.Thread(target=_repeat, args=(meanwhile, has_ended), daemon=True).start()
        return _wait(child, watched)
    finally:
        has_ended.set()
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _spawn(words: Sequence[str], environment: Mapping[str, str], mask: Iterable[int], output: int) -> int:
    files = [(os.POSIX_SPAWN_DUP2, output, 1)] if output != 1 else []
    how: dict[str, Any] = {"setsigmask": mask, "setsigdef": _RESTORED, "file_actions": files}
    try:
        return os.posix_spawnp(words[0], list(words), dict(environment), **how)
    except OSError as error:
        if error.errno != errno.ENOEXEC:
            raise
        # A script that does not say what runs it: shells run it themselves.
        script = ["/bin/sh", shutil.which(words[0]) or words[0], *words[1:]]
        return os.posix_spawn(script[0], script, dict(environment), **how)


def _wait(child: int, watched: frozenset[signal.Signals]) -> int:
    while True:
        # A thread that was there before, such as a library's, can take the signal that tells the end.
        found = signal.sigtimedwait(watched, _LOOK_AGAIN)
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return status
        if found is not None and found.si_signo != signal.SIGCHLD and found.si_code <= 0:
            os.kill(child, found.si_signo)


def _repeat(action: Callable[[], None], has_ended: threading.Event) -> None:
    while not has_ended.wait(1.0):
        with suppress(Exception):
            action()
