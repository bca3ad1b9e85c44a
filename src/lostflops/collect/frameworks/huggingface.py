"""`transformers.Trainer` records itself: `Trainer(..., callbacks=[LostflopsCallback("run")])`."""

from __future__ import annotations

import os
from typing import Any

from transformers import TrainerCallback

from lostflops.collect.api import record


class LostflopsCallback(TrainerCallback):  # type: ignore[misc]
    """A callback that records the job; with gradient accumulation a step of the Trainer has several microbatches.

    `settings` are those of `lostflops.record`.
    """

    def __init__(self, run: str | os.PathLike[str], **settings: Any) -> None:
        self._recording = record(run, **settings)

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        self._recording.start(is_explicit=True)

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self._recording.step()

    def on_train_end(self, *_: Any, **__: Any) -> None:
        self._recording.stop()
