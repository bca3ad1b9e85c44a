"""Attach the collector to a process: hooks are set, and nothing is written until the process trains."""

from __future__ import annotations

import atexit
import functools
import os
from collections.abc import MutableMapping

from lostflops.collect import current
from lostflops.collect.forward_calls import ForwardCalls
from lostflops.collect.hooks import install
from lostflops.collect.other_profilers import others
from lostflops.collect.recorder import Recorder
from lostflops.collect.settings import Settings, from_environment


def attach(settings: Settings | None = None) -> Recorder | None:
    """Start to record this process as `settings` say, or else as the environment says.

    A process that is recorded already keeps its recorder. Returns None if nothing asks for a recording.
    """
    chosen = settings or from_environment()
    if current.recorder is not None or chosen is None:
        return current.recorder
    _prepare_torch(os.environ)
    recorder = current.recorder = Recorder(chosen, current.import_began)
    try:
        install(recorder)
        recorder.forward_calls = ForwardCalls(recorder)
        others()
    except Exception:
        recorder.is_off, current.recorder = True, None
        recorder.remove_hooks()
        raise
    _watch_forks()
    atexit.register(recorder.close)
    return recorder


def detach() -> None:
    """End the recording of this process before the process ends; it may be attached again."""
    recorder, current.recorder = current.recorder, None
    if recorder is not None:
        recorder.close(is_exit=False)
        recorder.remove_hooks()
        atexit.unregister(recorder.close)


def _prepare_torch(environment: MutableMapping[str, str]) -> None:
    """Set variables that torch reads when it first profiles and first makes a process group; keep those the job set."""
    environment.setdefault("KINETO_LOG_LEVEL", "99")
    if "TORCH_NCCL_TRACE_BUFFER_SIZE" not in environment:
        environment.setdefault("TORCH_FR_BUFFER_SIZE", "2000")


@functools.cache
def _watch_forks() -> None:
    """Register our fork handler, once per process: it cannot be unregistered."""
    os.register_at_fork(after_in_child=_in_child)


def _in_child() -> None:
    if current.recorder is not None:
        current.recorder.abandon()
