"""`lostflops export`: a run for other tools."""

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO

import typer

from lostflops.cli.output import JsonOption, RunArgument, command, show
from lostflops.cli.scope import RankOption, StepOption, rank_bar

if TYPE_CHECKING:
    from lostflops.results import Result

HOW_TO_OPEN = (
    "To see it, open https://ui.perfetto.dev and choose 'Open trace file'. The page reads it in your browser: "
    "the trace is not sent anywhere."
)
EXAMPLE = "lostflops export run --perfetto trace.pftrace.gz --step 10 --step 11"


def export(
    run: RunArgument,
    *,
    perfetto: Annotated[
        Path | None,
        typer.Option(
            "--perfetto",
            metavar="FILE",
            help="Write a Perfetto trace into this file, compressed if its name ends in .gz.",
            show_default=False,
        ),
    ] = None,
    rank: RankOption = None,
    step: StepOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write a run for Perfetto.

    All ranks on one clock, each with its steps, its ledger, its waits and transfers apart, its memory, and every
    event of its streams and threads. Arrows lead from launches to kernels, and through the ranks of each collective.
    """
    from lostflops.errors import UsageError

    if perfetto is None:
        raise UsageError("say where to write it: --perfetto FILE")
    show(_written(run, perfetto, rank or [], step or []), as_json)


def _written(path: Path, file: Path, ranks: list[int], steps: list[int]) -> "Result":
    from lostflops.errors import UsageError
    from lostflops.export.perfetto import write_perfetto
    from lostflops.results import Figure, Result
    from lostflops.store.run import Run
    from lostflops.units import counted, format_bytes

    if file.is_dir():
        raise UsageError(f"{file} is a folder: name a file")
    if not file.parent.is_dir():
        raise UsageError(f"there is no folder {file.parent}")
    # A file that is there stays whole until the new one is.
    part = file.with_name(f"{file.name}.part")
    try:
        with Run.open(path) as run, rank_bar() as progress, ExitStack() as held:
            stream = _opened(part, held, packed=file.suffix == ".gz")
            made = write_perfetto(run, stream, ranks=ranks, steps=steps, progress=progress)
        part.replace(file)
    finally:
        part.unlink(missing_ok=True)
    size = file.stat().st_size
    slices, tracks, own = counted(made.slices, "slice"), counted(made.tracks, "track"), counted(made.ranks, "rank")
    return Result(
        name="export",
        title="Perfetto trace",
        verdict=f"Wrote {file} ({format_bytes(size)}): {slices} on {tracks} of {own}.",
        notes=(HOW_TO_OPEN,),
        next_command=command("open", path),
        more=(
            Figure("file", str(file)),
            Figure("bytes", size),
            Figure("ranks", made.ranks),
            Figure("slices", made.slices),
            Figure("tracks", made.tracks),
            Figure("points", made.points),
        ),
    )


def _opened(file: Path, held: ExitStack, *, packed: bool) -> BinaryIO:
    from lostflops.export.perfetto import compressed

    stream = held.enter_context(file.open("wb", buffering=1 << 20))
    return held.enter_context(compressed(stream)) if packed else stream
