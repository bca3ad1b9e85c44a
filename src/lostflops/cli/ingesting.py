"""Ingest with a progress bar, after waiting for another process that writes to the same run."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace as with_next
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from lostflops.store.spread.names import EngineName

if TYPE_CHECKING:
    from lostflops.core.results import Result
    from lostflops.ingest import IngestProgress, IngestSummary

T = TypeVar("T")

_PATIENCE: Final = 60
_LOOK: Final = 0.2


def in_turn(action: Callable[[], T], *, behind_anybody: bool = False) -> T:
    """Run an action that needs the run's lock, after waiting for an ingest that the user did not start.

    The job itself starts an ingest while it trains. At the job's end there may be more (`behind_anybody`), from its
    other hosts. If the user started two ingests, the second fails at once.
    """
    from lostflops.core.errors import RunBusy

    deadline: float | None = None
    while True:
        try:
            return action()
        except RunBusy as error:
            now = time.monotonic()
            if not (error.is_early or behind_anybody) or (deadline is not None and now > deadline):
                raise
            if deadline is None:
                from lostflops.cli.output import tell

                deadline = now + _PATIENCE
                tell(f"waiting up to {_PATIENCE} s: {error}")
        time.sleep(_LOOK)


def ingest_with_progress(
    sources: list[str],
    out: Path,
    *,
    workers: int | None = None,
    replace: bool = False,
    engine: EngineName = EngineName.LOCAL,
) -> Result:
    from lostflops.api import ingest as read_traces
    from lostflops.cli.output import command
    from lostflops.cli.scope import bar_of

    def read() -> Result:
        with progress_bar() as progress, bar_of("computing ledgers") as ledgers:
            return read_traces(
                sources,
                out,
                workers=workers,
                replace=replace,
                engine=engine,
                progress=progress,
                ledger_progress=ledgers,
            )

    return with_next(in_turn(read), next_command=command("info", out))


def ingest_capture(capture: Path, folder: Path) -> None:
    from lostflops.cli.late import tell_of_left_out
    from lostflops.cli.output import command
    from lostflops.ingest import ingest

    def read() -> IngestSummary:
        with progress_bar() as progress:
            return ingest([capture], folder, progress=progress)

    summary = in_turn(read, behind_anybody=True)
    tell_of_left_out(summary.skipped, command("ingest", capture, "-o", folder))


@contextmanager
def progress_bar() -> Iterator[Callable[[IngestProgress], None] | None]:
    """Show a bar with MB/s and time left if stderr is a terminal; otherwise nothing."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn, TransferSpeedColumn
    from rich.progress import Progress as Bar

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("reading", total=None)

        def update(state: IngestProgress) -> None:
            description = f"{state.files_done}/{state.files_total} files"
            bar.update(task, description=description, completed=state.bytes_done, total=state.bytes_total)

        yield update
