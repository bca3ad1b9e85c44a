"""The collector takes its place in a process: hooks are set, and nothing is written until the process trains."""

from __future__ import annotations

import atexit
import os

from lostflops.collect import current
from lostflops.collect.hooks import install
from lostflops.collect.other_profilers import others
from lostflops.collect.recorder import Recorder
from lostflops.collect.settings import Settings, from_environment


def attach(settings: Settings | None = None) -> Recorder | None:
    """Record this process as `settings` say, else as the environment does; once."""
    chosen = settings or from_environment()
    if current.recorder is not None or chosen is None:
        return current.recorder
    recorder = current.recorder = Recorder(chosen)
    try:
        recorder.remove_hooks = install(recorder)
        others()
    except Exception:
        recorder.is_off = True
        raise
    os.register_at_fork(after_in_child=recorder.abandon)
    atexit.register(recorder.close)
    return recorder


def detach() -> None:
    """End the recording of this process before the process ends; it may be attached again."""
    recorder, current.recorder = current.recorder, None
    if recorder is not None:
        recorder.close()
        recorder.remove_hooks()
        atexit.unregister(recorder.close)
