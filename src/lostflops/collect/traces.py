"""Traces of windows: written by another process, reported when complete, written at exit if that is impossible."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from lostflops.collect import export
from lostflops.collect.capture import WindowRequest, trace_file
from lostflops.collect.export import RAW, TraceForm
from lostflops.collect.placing import finish, plain_file, reduced_file

_MOST_HELD: Final = 2
"""At most this many recordings stay in memory until the exit."""
Tell = Callable[..., None]
"""`tell(request, state, reason, cost=, file=)` puts a record of a window."""


class TraceFiles:
    def __init__(self, folder: Path, rank: int, tell: Tell, form: TraceForm = RAW) -> None:
        self._folder, self._rank, self._tell, self._form = folder, rank, tell, form
        self._begun: list[tuple[WindowRequest, Path]] = []
        self._held: list[tuple[WindowRequest, Path, Any]] = []

    def write(self, request: WindowRequest, result: Any) -> None:
        """Begin to write the trace of a window; `result` is what the profiler recorded."""
        trace, began = trace_file(self._folder, self._rank, request.window), time.monotonic_ns()
        try:
            if export.begin(result.save, trace, self._form):
                self._begun.append((request, trace))
            elif len(self._held) < _MOST_HELD:
                self._held.append((request, trace, result))
            else:
                self._tell(
                    request,
                    "failed",
                    "no process could be started to write the trace",
                    cost=time.monotonic_ns() - began,
                )
        except OSError as error:
            self._tell(request, "failed", _words(error), cost=time.monotonic_ns() - began)

    def poll(self) -> None:
        """Report the traces that have been written since the last call."""
        for entry in list(self._begun):
            request, trace = entry
            if export.is_pending(trace):
                continue
            self._begun.remove(entry)
            found = export.outcome(trace)
            if found.is_written:
                is_reduced = bool(self._form.reducer) and found.is_reduced
                file = reduced_file(trace) if is_reduced else trace
                self._tell(request, "exported", found.reason, file=file.name)
            else:
                self._tell(request, "failed", found.reason)

    def close(self) -> None:
        """Write at exit, in this process, the traces for which no other process could be started."""
        for request, trace, result in self._held:
            try:
                result.save(os.fsencode(plain_file(trace)))
                finish(plain_file(trace), trace)
                self._tell(
                    request, "exported", "written at exit: no process could be started to write it", file=trace.name
                )
            except OSError as error:
                self._tell(request, "failed", _words(error))
        self._held.clear()
        self.poll()


def _words(error: OSError) -> str:
    return f"the trace cannot be written: {error.strerror or type(error).__name__}"
