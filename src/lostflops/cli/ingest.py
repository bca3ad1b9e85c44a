"""`lostflops ingest`: turn traces into a run."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace as with_next
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lostflops.cli.output import JsonOption, command, show
from lostflops.cli.turns import in_turn
from lostflops.store.spread.names import ENGINE, WORKERS, EngineName

if TYPE_CHECKING:
    from lostflops.core.results import Result
    from lostflops.ingest import IngestProgress

EXAMPLE = "lostflops ingest traces/ -o run"


def ingest(
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="SRC",
            help="Trace files, folders (searched recursively) or globs; also in S3: s3://bucket/traces.",
            show_default=False,
        ),
    ],
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            "-o",
            metavar="RUN",
            help="Folder or s3:// address of the run; created, or added to if it exists.",
            show_default=False,
        ),
    ],
    *,
    workers: Annotated[
        int | None,
        typer.Option(
            "--workers",
            envvar=WORKERS,
            min=1,
            metavar="N",
            help="Worker processes; an existing Ray cluster (RAY_ADDRESS) always uses all its cores.  "
            "[default: one per core]",
            show_default=False,
        ),
    ] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="If the run already has a rank from another file, replace it.")
    ] = False,
    engine: Annotated[
        EngineName,
        typer.Option(
            "--engine",
            envvar=ENGINE,
            help="Where to read: processes on this machine, or a Ray cluster (pip install 'lostflops[ray]').",
        ),
    ] = EngineName.LOCAL,
    as_json: JsonOption = False,
) -> None:
    """Read traces into a run.

    Files that are already in the run are skipped if unchanged, and read again if changed.
    """
    show(ingest_with_progress(sources, out, workers=workers, replace=replace, engine=engine), as_json)


def ingest_with_progress(
    sources: list[str],
    out: Path,
    *,
    workers: int | None = None,
    replace: bool = False,
    engine: EngineName = EngineName.LOCAL,
) -> "Result":
    from lostflops.api import ingest as read_traces

    def read() -> "Result":
        with progress_bar() as progress:
            return read_traces(sources, out, workers=workers, replace=replace, engine=engine, progress=progress)

    return with_next(in_turn(read), next_command=command("info", out))


@contextmanager
def progress_bar() -> "Iterator[Callable[[IngestProgress], None] | None]":
    """A bar with MB/s and time left when stderr is a terminal, else nothing."""
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

        def update(state: "IngestProgress") -> None:
            description = f"{state.files_done}/{state.files_total} files"
            bar.update(task, description=description, completed=state.bytes_done, total=state.bytes_total)

        yield update
