"""Python stacks of the training thread, about 100 a second, while a window is open.

A frame is its function, file and line, never a value. Of a file's path, only the part after an entry of `sys.path` is
kept; an installed library keeps the name of the folder it is installed in, which separates it from the program.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import PurePath
from types import CodeType, FrameType
from typing import Any, Final

_PERIOD: Final = 0.01
_BATCH: Final = 100
_DEEPEST: Final = 200
_KNOWN_BY_NAME: Final = ("torch/", "functorch/", "lostflops/")


class Sampler:
    def __init__(self, put: Callable[[dict[str, Any]], None], wall: Callable[[], int]) -> None:
        self._put, self._wall = put, wall
        self._numbers: dict[str, int] = {}
        self._count = 0
        self._labels: dict[tuple[CodeType, int], str] = {}
        self._fresh: dict[str, str] = {}
        self._samples: list[list[int]] = []
        self._is_over = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, sampled: int) -> None:
        """Sample the thread of that identity, on a thread of our own, until `stop`; names are kept for one window."""
        self._numbers, self._labels = {}, {}
        self._is_over = over = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(sampled, over), name="lostflops-sampler", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop sampling and return at once; the last samples are put by the sampling thread."""
        self._is_over.set()

    def join(self, timeout: float) -> None:
        if self._thread is not None:
            self._thread.join(timeout)

    def _run(self, sampled: int, over: threading.Event) -> None:
        try:
            self._sample(sampled, over)
        except Exception as error:  # noqa: BLE001 - a thread that dies of one would print it among the program's output
            self._put({"kind": "note", "what": "sampling_failed", "count": 1, "reason": type(error).__name__})

    def _sample(self, sampled: int, over: threading.Event) -> None:
        while not over.wait(_PERIOD):
            frame = sys._current_frames().get(sampled)  # noqa: SLF001 - the documented way
            if frame is not None and not over.is_set():
                self._samples.append([self._wall(), self._number(frame)])
            del frame
            if len(self._samples) >= _BATCH:
                self._flush()
        self._flush()

    def _number(self, frame: FrameType) -> int:
        stack = self._stack(frame)
        if stack not in self._numbers:
            self._numbers[stack] = self._count
            self._count += 1
            self._fresh[str(self._numbers[stack])] = stack
        return self._numbers[stack]

    def _stack(self, frame: FrameType | None) -> str:
        labels: list[str] = []
        while frame is not None and len(labels) < _DEEPEST:
            key = (frame.f_code, frame.f_lineno)
            if key not in self._labels:
                self._labels[key] = label(frame)
            labels.append(self._labels[key])
            frame = frame.f_back
        return ";".join(reversed(labels))

    def _flush(self) -> None:
        if self._samples:
            self._put({"kind": "stacks", "names": self._fresh, "samples": self._samples})
            self._fresh, self._samples = {}, []


def label(frame: FrameType) -> str:
    """Return a frame's function, file and line."""
    return f"{_function(frame.f_code)} {place(frame.f_code.co_filename)}:{frame.f_lineno}"


def place(file: str, roots: Sequence[object] | None = None) -> str:
    """Return a file's path from its entry of `sys.path` on, or else its name alone.

    `;` and blanks become `_`, because they would split a stack. Entries of `sys.path` are not always strings.

    >>> place("/venv/lib/torch/nn/linear.py", ["/venv", "/venv/lib"]), place("/home/me/train.py", ["/venv/lib"])
    ('torch/nn/linear.py', 'train.py')
    >>> place("/venv/site-packages/typing_extensions.py", ["/venv/site-packages"])
    'site-packages/typing_extensions.py'
    """
    entries = [str(entry).rstrip("/") for entry in (sys.path if roots is None else roots)]
    held = [entry for entry in entries if entry and file.startswith(f"{entry}/")]
    entry = max(held, key=len, default="")
    relative = file[len(entry) + 1 :] if entry else PurePath(file).name
    if entry.endswith(("/site-packages", "/dist-packages")) and not relative.startswith(_KNOWN_BY_NAME):
        relative = f"{PurePath(entry).name}/{relative}"
    return "".join("_" if character in "; " else character for character in relative)


def _function(code: CodeType) -> str:
    return code.co_qualname.replace(" ", "_").replace(";", "_")
