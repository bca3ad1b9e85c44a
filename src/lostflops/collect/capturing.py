"""While the program captures a CUDA graph, nobody may ask the device anything: the capture would be void.

That holds for every thread, also for a mere question whether an event is over. So our threads ask under a lock that the
begin of a capture waits for, and not at all until its end.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any


class Captures:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open = 0

    @property
    def are_open(self) -> bool:
        return self._open > 0

    def ask(self, question: Callable[[], None]) -> None:
        """Call it unless a capture is open; none begins meanwhile."""
        with self._lock:
            if not self._open:
                question()

    def watch(self, graph: Any) -> Callable[[], None]:
        """Have the class whose context is a capture, `torch.cuda.graph`, tell us; returns what ends that."""
        enter, leave = graph.__enter__, graph.__exit__

        @functools.wraps(enter)
        def __enter__(self_: Any) -> Any:  # noqa: N807 - it takes the place of one
            with self._lock:
                self._open += 1
            try:
                return enter(self_)
            except BaseException:
                self._open -= 1
                raise

        @functools.wraps(leave)
        def __exit__(self_: Any, *error: Any) -> Any:  # noqa: N807 - it takes the place of one
            try:
                return leave(self_, *error)
            finally:
                self._open -= 1

        graph.__enter__, graph.__exit__ = __enter__, __exit__

        def restore() -> None:
            if graph.__enter__ is __enter__:
                graph.__enter__, graph.__exit__ = enter, leave

        return restore
