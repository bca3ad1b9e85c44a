"""Choice of the engine that does the work, by its name."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from lostflops.core.errors import UsageError
from lostflops.core.resources import count_cores
from lostflops.store.memory_limit import limit_workers
from lostflops.store.spread.names import ENGINE, WORKERS, EngineName
from lostflops.store.spread.processes import Processes
from lostflops.store.spread.ray_tasks import ray_tasks
from lostflops.store.spread.work import Engine


@dataclass(frozen=True, slots=True)
class ChosenEngine:
    """The engine to use, and its number of workers."""

    name: EngineName = EngineName.LOCAL
    asked: int | None = None
    """Number of workers; None for what the environment says, or one per core as far as memory allows."""

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> ChosenEngine:
        """Return the engine for an analysis, which has no options for it.

        >>> ChosenEngine.from_environment({"LOSTFLOPS_ENGINE": "ray", "LOSTFLOPS_WORKERS": "3"})
        ChosenEngine(name=<EngineName.RAY: 'ray'>, asked=3)
        """
        name = environment.get(ENGINE, EngineName.LOCAL)
        if name not in set(EngineName):
            raise UsageError(f"{ENGINE}={name!r} is not an engine: choose from {', '.join(EngineName)}.")
        return cls(EngineName(name), _stated_workers(environment))

    @property
    def is_single(self) -> bool:
        """Whether all work is done in this process anyway."""
        return self.name is EngineName.LOCAL and self.workers == 1

    @property
    def workers(self) -> int:
        return self.asked or _stated_workers(os.environ) or min(count_cores(), limit_workers())

    @contextmanager
    def engine(self) -> Iterator[Engine]:
        if self.name is EngineName.LOCAL:
            yield Processes(self.workers)
            return
        with ray_tasks(self.workers) as tasks:
            yield tasks


def _stated_workers(environment: Mapping[str, str]) -> int | None:
    workers = environment.get(WORKERS, "")
    if workers and not (workers.isdecimal() and int(workers)):
        raise UsageError(f"{WORKERS}={workers!r} is not a number of workers.")
    return int(workers) if workers else None
