"""`Accelerator(log_with=LostflopsTracker("run"))`: all processes record from `init_trackers` to `end_training`."""

from __future__ import annotations

import os
from typing import Any

from accelerate.tracking import GeneralTracker

from lostflops.collect.api import JobRecording, record


class LostflopsTracker(GeneralTracker):  # type: ignore[misc]
    """A tracker that records the job; steps are the optimizer's, so gradient accumulation counts as it should.

    `settings` are those of `lostflops.record`. Logged values are not kept.
    """

    name = "lostflops"
    requires_logging_directory = False
    main_process_only = False

    def __init__(self, run: str | os.PathLike[str], **settings: Any) -> None:
        super().__init__()
        self._recording = record(run, **settings)

    @property
    def tracker(self) -> JobRecording:
        return self._recording

    def start(self) -> None:
        self._recording.start()

    def finish(self) -> None:
        self._recording.stop()
