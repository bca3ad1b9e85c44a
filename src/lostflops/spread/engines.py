"""Which engine does the work, by its name."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from lostflops.spread.names import EngineName
from lostflops.spread.processes import Processes
from lostflops.spread.ray_tasks import ray_tasks
from lostflops.spread.work import Engine


@dataclass(frozen=True, slots=True)
class Spread:
    """`workers` are as many as cores where nobody says."""

    name: EngineName = EngineName.LOCAL
    asked: int | None = None

    @property
    def workers(self) -> int:
        return self.asked or os.cpu_count() or 1

    @contextmanager
    def engine(self) -> Iterator[Engine]:
        if self.name is EngineName.LOCAL:
            yield Processes(self.workers)
            return
        with ray_tasks(self.workers) as tasks:
            yield tasks
