"""Functions that a training program may call: where to record, where steps end, what it waits for.

If `lostflops run` already records the process, everything goes to its run.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Self, TypeVar

from lostflops.collect import current
from lostflops.collect.capture import FOLDER
from lostflops.collect.settings import DEFAULT_OPTIONS, Settings
from lostflops.collect.steps import DATA, OPTIMIZER

if TYPE_CHECKING:
    from lostflops.collect.recorder import Recorder

T = TypeVar("T")


def record(
    run: str | os.PathLike[str],
    *,
    steps: str = "auto",
    repeat: int = 0,
    ranks: str = "all",
    options: Iterable[str] = DEFAULT_OPTIONS,
    overhead: float = 0.01,
    keep_raw: bool = False,
) -> JobRecording:
    """Record the training of this process into the folder `run`, for the duration of the `with` block.

    The arguments are those of `lostflops run`. Raises UsageError if one of them is invalid.
    """
    folder = Path(run).absolute() / FOLDER
    wanted = Settings(
        folder=folder,
        steps=steps,
        repeat=repeat,
        ranks=ranks,
        options=frozenset(options),
        overhead=overhead,
        reducer=sys.executable,
        keep_raw=keep_raw,
    )
    return JobRecording(wanted.check())


def step() -> None:
    """End the training step here. After the first call, optimizers no longer end steps. No-op if nothing records."""
    if current.recorder is not None:
        _end_step(current.recorder)


def mark(name: str) -> None:
    """Record the memory in use at this point of the program under a name, for `lostflops memory`.

    Reads counters that torch and the kernel keep, and never waits for a device. Does nothing if nothing records or
    inside a compiled function, and never raises. A process records at most 2,000 marks, and 200 of one name; further
    marks are counted.
    """
    if current.recorder is not None:
        current.recorder.mark(name)


class JobRecording:
    """A recording from `start` to `stop`, or for a `with` block."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._is_ours = False

    def start(self, *, is_explicit: bool = False) -> Self:
        """Start recording. With `is_explicit`, only `step` ends steps, from the first one on."""
        if current.recorder is None:
            self._is_ours = _is_attached(self._settings)
        if is_explicit and current.recorder is not None:
            current.recorder.clock.is_explicit = True
        return self

    def stop(self) -> None:
        """Write the remaining records, and stop. A recording that was already running continues."""
        from lostflops.collect.attach import detach

        if self._is_ours:
            self._is_ours = False
            detach()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def step(self) -> None:
        """End the training step here, like `lostflops.step()`."""
        step()

    def steps(self, batches: Iterable[T]) -> Iterator[T]:
        """Yield the batches, one per step: a step is the wait for its batch and the loop body.

        If the loop is left with `break`, its last step ends if an optimizer stepped in it.
        """
        recorder = current.recorder
        if recorder is None:
            yield from batches
            return
        recorder.clock.is_explicit = True
        recorder.training()
        waiting = _TimedIterator(recorder, batches)
        for batch in waiting:
            try:
                yield batch
            except GeneratorExit:
                if recorder.clock.step.phases[OPTIMIZER]:
                    _end_step(recorder)
                raise
            _end_step(recorder)


class _TimedIterator(Iterator[T]):
    """An iterator over batches whose own time is recorded as time spent waiting for data."""

    def __init__(self, recorder: Recorder, batches: Iterable[T]) -> None:
        self._recorder = recorder
        recorder.enter(DATA)
        try:
            self._batches = iter(batches)
        finally:
            recorder.leave()

    def __next__(self) -> T:
        clock = self._recorder.clock
        known = clock.step.samples
        self._recorder.enter(DATA)
        try:
            batch = next(self._batches)
        finally:
            self._recorder.leave()
        # A loader that hooks saw has counted it already.
        self._recorder.handed_over(batch, is_counted=clock.step.samples == known)
        return batch


def _end_step(recorder: Recorder) -> None:
    def end(now: int) -> None:
        recorder.clock.is_explicit = True
        if recorder.clock.step.start < 0:
            recorder.clock.step.start = now  # nothing was seen before: the first step begins here
        else:
            recorder.clock.end(now)

    recorder.training()
    recorder.run_guarded(end)


def _is_attached(settings: Settings) -> bool:
    try:
        from lostflops.collect.attach import attach

        return attach(settings) is not None
    except Exception as error:  # noqa: BLE001 - training goes on, whatever becomes of the recording
        warnings.warn(f"lostflops: not recording: {error!r}", stacklevel=3)
        return False
