"""A job that runs its own profiler: what that means for the run, and how to read the traces that it wrote."""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from lostflops.store.run import Run

KEY: Final = "own_profiler"
"""Key in table `job`."""
_MOST_FOLDERS: Final = 3


def own_traces(run: Run) -> str:
    """Return the sentence with the command for each folder of traces; empty if the job did not run a profiler
    itself."""
    rows = run.rows(f"select rank, value from job where key = '{KEY}' order by rank, attempt")
    if not rows:
        return ""
    folders = sorted({folder for _, value in rows for folder in json.loads(value).get("folders", ())})
    said = "The job runs torch.profiler itself, so Lostflops did not record the steps that it profiled."
    if not folders:
        return f"{said} To read its traces: lostflops ingest FOLDER_OF_ITS_TRACES -o {shlex.quote(_name(run))}"
    more = f" ({len(folders) - _MOST_FOLDERS} more folders)" if len(folders) > _MOST_FOLDERS else ""
    name = _name(run)
    commands = [
        f"lostflops ingest {shlex.quote(folder)} -o {shlex.quote(name if not number else f'{name}-{number + 1}')}"
        for number, folder in enumerate(folders[:_MOST_FOLDERS])
    ]
    return f"{said} To read its traces: {'; '.join(commands)}{more}"


def _name(run: Run) -> str:
    return f"{run.path}-own-traces"
