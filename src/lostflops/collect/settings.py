"""Settings of the collector, and the environment variable that carries them to every process of a job."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from lostflops.core.errors import UsageError

VARIABLE: Final = "LOSTFLOPS_COLLECT"
OPTIONS: Final = ("shapes", "flops", "memory", "stack", "modules", "samples")
"""What a deep window can record in addition to times."""
DEFAULT_OPTIONS: Final = frozenset({"shapes", "modules", "samples"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    folder: Path
    """Where this process writes: the capture of the run, or a spool of its host."""
    steps: str = "auto"
    """Steps of the deep window: `auto`, `none` or `FIRST:COUNT`."""
    repeat: int = 0
    """Steps after which the window is repeated; 0 for never."""
    ranks: str = "all"
    """Ranks that record windows: `all`, `hosts` or numbers, such as `0,8`."""
    options: frozenset[str] = DEFAULT_OPTIONS
    overhead: float = 0.01
    """Share of the step time that the collector may take."""
    reducer: str = ""
    """The Python that reduces traces on their host, if it has Lostflops' dependencies; empty: they are not reduced."""
    keep_raw: bool = False
    """Whether traces are kept in addition to their reduced form."""
    began: int | None = None
    """When the command of the job was started, as Unix time in ns; None if nobody told."""

    def check(self) -> Self:
        """Return the settings; raise UsageError if one of them is invalid."""
        if self.steps not in ("auto", "none") and not re.fullmatch(r"\d+:[1-9]\d*", self.steps):
            raise UsageError(f"steps {self.steps!r} must be auto, none or FIRST:COUNT, such as 20:3.")
        if self.ranks not in ("all", "hosts") and not re.fullmatch(r"\d+(,\d+)*", self.ranks):
            raise UsageError(f"ranks {self.ranks!r} must be all, hosts or numbers, such as 0,8.")
        if unknown := self.options - set(OPTIONS):
            raise UsageError(f"unknown options {', '.join(sorted(unknown))}: choose from {', '.join(OPTIONS)}.")
        if not 0 < self.overhead <= 1:
            raise UsageError(f"overhead {self.overhead!r} is not a share of the step time, such as 0.01.")
        return self

    def to_text(self) -> str:
        return json.dumps(
            {
                "folder": str(self.folder),
                "steps": self.steps,
                "repeat": self.repeat,
                "ranks": self.ranks,
                "options": sorted(self.options),
                "overhead": self.overhead,
                "reducer": self.reducer,
                "keep_raw": self.keep_raw,
                "began": self.began,
            }
        )

    @classmethod
    def from_text(cls, text: str) -> Settings:
        found = json.loads(text)
        return cls(
            folder=Path(found["folder"]),
            steps=found["steps"],
            repeat=found["repeat"],
            ranks=found["ranks"],
            options=frozenset(found["options"]),
            overhead=found["overhead"],
            reducer=found["reducer"],
            keep_raw=found["keep_raw"],
            began=found.get("began"),
        )


def from_environment(environment: Mapping[str, str] = os.environ) -> Settings | None:
    text = environment.get(VARIABLE)
    return Settings.from_text(text) if text else None
