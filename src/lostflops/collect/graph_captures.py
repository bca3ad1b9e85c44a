"""No queries to the device while the program captures a CUDA graph: they would invalidate the capture.

That holds for every thread, even for a query whether an event is over. So our threads query under a lock that the begin
of a capture waits for, and not at all until its end.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any, Final

GRAPHS: Final = "CUDA graphs"
"""Name of CUDA graphs among what the collector cannot observe in this version of torch."""


class GraphCaptures:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open = 0

    @property
    def are_open(self) -> bool:
        return self._open > 0

    def forget(self) -> None:
        """Reset in a forked child, where the thread that held the lock or captured a graph does not exist."""
        self._lock, self._open = threading.Lock(), 0

    def ask(self, question: Callable[[], None]) -> None:
        """Call `question` unless a capture is open; no capture begins meanwhile."""
        with self._lock:
            if not self._open:
                question()

    def watch(self, graph: Any) -> Callable[[], None]:
        """Wrap the methods of `torch.cuda.CUDAGraph` with which all captures begin and end.

        Returns a function that restores them.
        """
        begin, end = graph.capture_begin, graph.capture_end

        @functools.wraps(begin)
        def capture_begin(self_: Any, *arguments: Any, **named: Any) -> Any:
            with self._lock:
                self._open += 1
            try:
                return begin(self_, *arguments, **named)
            except BaseException:
                self._open -= 1
                raise

        @functools.wraps(end)
        def capture_end(self_: Any, *arguments: Any, **named: Any) -> Any:
            try:
                return end(self_, *arguments, **named)
            finally:
                self._open -= 1

        graph.capture_begin, graph.capture_end = capture_begin, capture_end

        def restore() -> None:
            if graph.capture_begin is capture_begin:
                graph.capture_begin, graph.capture_end = begin, end

        return restore
