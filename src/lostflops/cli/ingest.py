"""`lostflops ingest`: traces become a run."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lostflops.cli.output import JsonOption, command, show
from lostflops.cli.turns import in_turn
from lostflops.spread.names import ENGINE, WORKERS, EngineName

if TYPE_CHECKING:
    from lostflops.ingest import IngestSummary, Progress
    from lostflops.results import Result

MOST_SKIPPED = 10
EXAMPLE = "lostflops ingest traces/ -o run"


def ingest(
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="SRC",
            help="Trace files, folders (searched to the bottom) or globs; also in a store: s3://bucket/traces.",
            show_default=False,
        ),
    ],
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            "-o",
            metavar="RUN",
            help="Folder or s3:// address of the run; made, or added to.",
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
            help="Worker processes; as many as cores when not given. A Ray cluster that is there already (RAY_ADDRESS) "
            "uses all its cores.",
            show_default=False,
        ),
    ] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Let a file take the place of another one that holds its rank.")
    ] = False,
    engine: Annotated[
        EngineName,
        typer.Option(
            "--engine",
            envvar=ENGINE,
            help="Who reads: processes of this machine, or a Ray cluster (pip install 'lostflops[ray]').",
        ),
    ] = EngineName.LOCAL,
    as_json: JsonOption = False,
) -> None:
    """Read traces into a run.

    A file that the run holds already is skipped when it did not change, and read again when it did.
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
    from lostflops.analyze.quality import quality
    from lostflops.ingest import ingest as ingested
    from lostflops.store.places import remote
    from lostflops.store.run import Run

    def read() -> "IngestSummary":
        with progress_bar() as progress:
            return ingested(sources, out, workers=workers, replace=replace, engine=engine, progress=progress)

    summary = in_turn(read)
    if engine is not EngineName.LOCAL and remote(out):
        # What many machines have written need not come to this one before somebody asks.
        return _summarise(summary, out, None)
    with Run.open(out) as run:
        return _summarise(summary, out, quality(run))


def _summarise(summary: "IngestSummary", out: Path, quality: "Result | None") -> "Result":
    from lostflops.results import Field, Pair, Pairs, Result, Table
    from lostflops.units import counted, format_bytes, format_ns

    ranks = len(summary.ranks_added) + len(summary.ranks_replaced)
    rate = format_bytes(round(summary.bytes_read / summary.seconds)) + "/s" if summary.seconds > 0 else "no time"
    duration = format_ns(round(summary.seconds * 1e9))
    counts = Pairs(
        "ingested",
        "",
        (
            Pair("run", str(summary.run), "", "Run"),
            Pair("ranks_added", len(summary.ranks_added), "count", "Ranks added"),
            Pair("ranks_replaced", len(summary.ranks_replaced), "count", "Ranks replaced"),
            Pair("ranks_unchanged", len(summary.ranks_unchanged), "count", "Ranks unchanged"),
            Pair("events", summary.events, "count", "Events"),
            Pair("bytes_read", summary.bytes_read, "bytes", "Read"),
            Pair("ns", round(summary.seconds * 1e9), "ns", "Time"),
        ),
    )
    skipped = Table(
        "skipped",
        "Files left out",
        (Field("file"), Field("reason")),
        tuple(summary.skipped[:MOST_SKIPPED]),
        max(len(summary.skipped) - MOST_SKIPPED, 0),
    )
    doubtful = quality.to_json().get("doubtful_ranks", ()) if quality else ()
    return Result(
        name="ingest",
        title="Ingested",
        verdict=(
            f"{counted(ranks, 'rank')} and {counted(summary.events, 'event')} in {duration} ({rate})."
            if summary.bytes_read
            else f"Nothing to do: {counted(len(summary.ranks_unchanged), 'rank')} in the run already, unchanged."
        ),
        blocks=(counts, skipped) if summary.skipped else (counts,),
        notes=(
            (quality.verdict, *(f"rank {row['rank']} is {row['quality']}: {row['reasons']}" for row in doubtful[:3]))
            if quality and doubtful
            else ()
        ),
        next_command=command("info", out),
    )


@contextmanager
def progress_bar() -> "Iterator[Callable[[Progress], None] | None]":
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

        def update(state: "Progress") -> None:
            description = f"{state.files_done}/{state.files_total} files"
            bar.update(task, description=description, completed=state.bytes_done, total=state.bytes_total)

        yield update
