"""Wall time of the steps of a training loop, which rank 0 writes down when a file is asked for."""

import json
import os
import time
from pathlib import Path


class Stopwatch:
    def __init__(self, samples):
        self.samples = samples
        self.seconds = []
        self.since = time.perf_counter()

    def lap(self):
        now = time.perf_counter()
        self.seconds.append(now - self.since)
        self.since = now

    def save(self):
        where = os.environ.get("CLINIC_STEP_TIMES")
        if where and int(os.environ.get("RANK", "0")) == 0:
            Path(where).write_text(json.dumps({"seconds": self.seconds, "samples": self.samples}), encoding="utf-8")
