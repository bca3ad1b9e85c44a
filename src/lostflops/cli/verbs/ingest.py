"""`lostflops ingest`: turn traces into a run."""

from pathlib import Path
from typing import Annotated

import typer

from lostflops.cli.ingesting import ingest_with_progress
from lostflops.cli.output import JsonOption, show
from lostflops.store.spread.names import ENGINE, WORKERS, EngineName

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
            help="Worker processes on this machine; an existing Ray cluster (--engine ray, RAY_ADDRESS) uses all its "
            "cores.  [default: one per core, and per 512 MiB of LOSTFLOPS_MEMORY]",
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
